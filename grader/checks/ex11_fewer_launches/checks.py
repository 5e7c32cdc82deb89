"""Checks of ex11_fewer_launches: the numbers, launches and compiles of a run, and its time."""

import msgspec

from grader.checks.ex11_fewer_launches import EXERCISE
from grader.checks.ex11_fewer_launches.facts import Length, Run, deleted_after, state_after
from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import (
    culprits,
    definition,
    differing_leaf,
    events,
    probe_gap,
    seen,
    timing_result,
)
from grader.judging.record import Record
from grader.judging.words import plural


def _runs(record: Record) -> list[Run]:
    return msgspec.convert(seen(record).facts["runs"], list[Run])


def _lengths(record: Record) -> list[Length]:
    return msgspec.convert(seen(record).facts["lengths"], list[Length])


def _all_steps(record: Record) -> list[int]:
    """The number of steps of every run that is kept."""
    return [run.steps for run in _runs(record)] + [run.steps for run in _lengths(record)]


@EXERCISE.check(ground="observed")
def same_state(record: Record) -> Result:
    """Angles and speeds after the run are the reference's."""
    names = map(state_after, _all_steps(record))
    found = (differing_leaf(record, name, rtol=1e-3, atol=1e-5) for name in names)
    return next((failure for failure in found if failure), None)


@EXERCISE.check(
    ground="observed",
    after=("same_state",),
    hints=("A donated argument is deleted by the call. The caller did not offer it.",),
)
def start_is_kept(record: Record) -> Result:
    """The caller's angle and speed are still there after the run."""
    for steps in _all_steps(record):
        if deleted := seen(record).facts[deleted_after(steps)]:
            return Failure(
                "a simulation can be run again from the same start",
                f"the run deletes the caller's {' and '.join(deleted)}, because `simulate` "
                "donates them",
                definition(record, "simulate"),
            )
    return None


@EXERCISE.check(
    ground="observed",
    after=("same_state",),
    hints=(
        "If the step is jitted, each step is one launch. How many steps does a run have?",
        "The loop itself belongs in the jitted function.",
    ),
)
def one_launch(record: Record) -> Result:
    """A run launches one program, whatever its number of steps."""
    problem = seen(record).facts.get("no counter")
    if problem:
        return Unable(f"launches could not be counted: {problem}")
    for run in _runs(record):
        if run.launches != 1:
            return Failure(
                f"1 program is launched for a run of {plural(run.steps, 'step')}",
                _launched(run),
                definition(record, "simulate"),
            )
    return None


def _launched(run: Run) -> str:
    """`140 launches, 5 for each step: of add, multiply, sin, subtract`."""
    if not run.launches:
        return "no program is launched: the device computes nothing"
    each = run.launches / run.steps
    often = f", {each:.3g} for each step" if each >= 1 else ""
    names = f": of {', '.join(run.functions[:6])}" if run.functions else ""
    return f"{run.launches} launches{often}{names}"


@EXERCISE.check(
    ground="observed",
    after=("one_launch",),
    hints=(
        "jax.jit keeps compiled programs by function. A function that is made in each call is a "
        "new one in each call.",
        "Make the jitted function once, at the top level of the file, for example with a "
        "decorator. Outside jit, lax.fori_loop and lax.scan compile their body again if it is a "
        "new function.",
    ),
    anchor="compiled-once",
)
def compiled_once(record: Record) -> Result:
    """A second run with the same number of steps compiles nothing."""
    gap = probe_gap(seen(record), "compiles")
    found = list(events(seen(record), "compile", phase="again"))
    if not found:
        return gap
    total = sum(event.count for event in found)
    names = sorted({event.detail for event in found if event.detail})
    return Failure(
        "a second run with the same number of steps uses the compiled program of the first",
        f"{plural(total, 'program')} compiled again: {', '.join(names)}",
        culprits(record, found),
    )


@EXERCISE.check(
    ground="observed",
    after=("one_launch",),
    hints=(
        "A Python loop inside jit runs while the function is traced. What does it leave in the "
        "program?",
        "Every pass through the loop is written into the program, and the compiler works on each "
        "copy. lax.fori_loop and lax.scan write the step down once.",
    ),
    anchor="compiled-once",
)
def one_copy_of_the_step(record: Record) -> Result:
    """The program for many steps is about as long as the program for few."""
    problem = seen(record).facts["no text"]
    if problem:
        return Unable(f"programs could not be read: {problem}")
    few, many = _lengths(record)
    more = many.lines - few.lines
    if more < many.steps - few.steps:
        return None
    return Failure(
        f"the program for {many.steps} steps is about as long as the one for {few.steps}",
        f"it has {many.lines:,} lines, and the one for {few.steps} has {few.lines:,}: the loop is "
        "unrolled, and the program holds a copy of each step",
        definition(record, "simulate"),
    )


@EXERCISE.check(
    ground="timing",
    hints=(
        "One launch can still be slow. What else does your code do in each step, or in each call?",
        "A callback stops the device in each step, and waits for Python.",
        "Is the function that holds the loop jitted? Outside jit, Python prepares lax.fori_loop "
        "and lax.scan again in each call.",
    ),
)
def ten_times_faster(record: Record) -> Result:
    """A run takes at most a tenth of the time of the loop in Python."""
    return timing_result(record, "loop", "a run")
