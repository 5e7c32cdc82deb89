"""ex11_fewer_launches: a run of many steps is one program, launched once.

No program is exported here: exporting would make one program of any function, also of the
loop this exercise is about. The launches are counted where they happen.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import msgspec

from grader.checking import Exercise, Failure, LoopTiming, Observe, Result, Unable, unpack
from grader.evidence import (
    culprits,
    definition,
    differing_leaf,
    events,
    probe_gap,
    seen,
    timing_result,
)
from grader.record import Record
from grader.words import plural

PROMISE = "`simulate` returns (angle, speed)"
PENDULUMS = 96
TIMED_STEPS = 30


class Run(msgspec.Struct):
    """A run that was not the first of its kind: the programs it launched."""

    steps: int
    launches: int
    functions: list[str]


class Length(msgspec.Struct):
    """A long run that was the first of its kind: how long the text of what it compiled is."""

    steps: int
    lines: int


def _start(rng: Any, count: int = PENDULUMS) -> tuple[Any, Any]:
    """Angles and speeds of `count` pendulums, float32 (count,), on the device."""
    import jax
    import numpy as np

    angle, speed = rng.uniform(-1, 1, (2, count)).astype(np.float32)
    placed: tuple[Any, Any] = jax.device_put((angle, speed))
    return placed


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Two numbers of steps, twice each, to count the second run's launches; two long runs."""
    from grader.probes import launches

    with observe.unwatched():
        counter = launches.Counter()
        reader = launches.Reader()
    observe.fact("no counter", counter.problem)
    observe.fact("no text", reader.problem)
    runs, lengths = [], []
    for steps in (int(rng.integers(5, 10)), int(rng.integers(20, 30))):
        with observe.phase("first"):
            submission.simulate(*_start(rng), steps)
        with observe.phase("again"):
            counted = _run(submission, observe, rng, steps, counter.count)
        runs.append(Run(steps, *counted))
    # Twelve is a multiple of most small numbers, so that a loop unrolled by 4 has no remainder.
    long = 12 * int(rng.integers(10, 13))
    for steps in (long, 2 * long):
        with observe.phase("long"):
            lengths.append(Length(steps, _run(submission, observe, rng, steps, reader.read)))
    observe.fact("runs", msgspec.to_builtins(runs))
    observe.fact("lengths", msgspec.to_builtins(lengths))


def _run(
    submission: ModuleType, observe: Observe, rng: Any, steps: int, watch: Callable[..., Any]
) -> Any:
    """One run, and what `watch` saw of it."""
    start = _start(rng)
    state, seen = watch(lambda: submission.simulate(*start, steps))
    angle, speed = unpack(state, 2, PROMISE)
    observe.value(_name(steps), {"angle": angle, "speed": speed})
    gone = [name for name, array in zip(("angle", "speed"), start, strict=True) if _gone(array)]
    observe.fact(f"deleted after {steps}", gone)
    return seen


def _gone(array: Any) -> bool:
    return bool(array.is_deleted())


def _name(steps: int) -> str:
    return f"state after {steps} steps"


def seconds_of_a_step(submission: ModuleType, rng: Any) -> float:
    """Nothing scales with the time of a step here."""
    return 0.0


def pace(submission: ModuleType, rng: Any, steps: int, unit: float) -> Callable[[], list[float]]:
    """`steps` simulations of TIMED_STEPS steps, each from a start of its own."""
    starts = [_start(rng) for _ in range(min(steps, 32))]

    def run() -> list[float]:
        ends = [
            submission.simulate(*starts[index % len(starts)], TIMED_STEPS) for index in range(steps)
        ]
        return [float(angle[0]) for angle, _ in ends[:: max(1, steps // 8)]]

    return run


def naive(angle: Any, speed: Any, steps: int) -> Any:
    """The loop this exercise is about: each operation is a launch."""
    import jax.numpy as jnp

    for _ in range(steps):
        speed = speed - 0.01 * jnp.sin(angle)
        angle = angle + 0.01 * speed
    return angle, speed


EXERCISE = Exercise(
    title="Many small launches become one",
    lesson="lessons/06-when-the-gpu-pays",
    anchor="many-launches-or-one",
    edits=("simulate",),
    drive=drive,
    loop_timing=LoopTiming(
        at_most=0.1, pace=pace, unit=seconds_of_a_step, naive=naive, function="simulate"
    ),
    hints=(
        "Outside jit, each operation is a program of its own. How many does a step launch?",
        "A loop can be a part of a program: jax.lax.fori_loop and jax.lax.scan.",
        "Write a body that makes one step, jax.lax.fori_loop(0, steps, body, (angle, speed)), "
        "and @jax.jit on the function that holds the loop.",
    ),
)


def _runs(record: Record) -> list[Run]:
    return msgspec.convert(seen(record).facts["runs"], list[Run])


def _lengths(record: Record) -> list[Length]:
    return msgspec.convert(seen(record).facts["lengths"], list[Length])


def _all_steps(record: Record) -> list[int]:
    return [x.steps for x in _runs(record)] + [x.steps for x in _lengths(record)]


@EXERCISE.check(ground="observed")
def same_state(record: Record) -> Result:
    """Angles and speeds after the run are the reference's."""
    names = map(_name, _all_steps(record))
    found = (differing_leaf(record, name, rtol=1e-3, atol=1e-5) for name in names)
    return next((failure for failure in found if failure), None)


@EXERCISE.check(
    ground="observed",
    after=("same_state",),
    hints=("An argument that is donated is gone after the call. Nobody asked for that here.",),
)
def start_is_kept(record: Record) -> Result:
    """The caller's angle and speed are still there after the run."""
    for steps in _all_steps(record):
        if gone := seen(record).facts[f"deleted after {steps}"]:
            expected = "a simulation can be run again from the same start"
            observed = f"the run deletes the caller's {' and '.join(gone)}: donated"
            return Failure(expected, observed, definition(record, "simulate"))
    return None


@EXERCISE.check(
    ground="observed",
    after=("same_state",),
    hints=(
        "A jitted step makes one launch of a step. And how many steps are there?",
        "The loop itself belongs into the jitted function.",
    ),
)
def one_launch(record: Record) -> Result:
    """A run launches one program, however many steps it has."""
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
        return "none was launched: nothing was computed by the device"
    each = run.launches / run.steps
    often = f", {each:.3g} for each step" if each >= 1 else ""
    names = f": of {', '.join(run.functions[:6])}" if run.functions else ""
    return f"{run.launches} launches{often}{names}"


@EXERCISE.check(
    ground="observed",
    after=("one_launch",),
    hints=(
        "jax.jit keeps compiled programs by function. A function that is made anew on each call "
        "is unknown on each call.",
        "Make the jitted function once, at the top of the file: a decorator does. "
        "lax.fori_loop and lax.scan outside jit compile their body again when it is a new one.",
    ),
    anchor="compiled-once",
)
def compiled_once(record: Record) -> Result:
    """A second run of as many steps compiles nothing."""
    gap = probe_gap(seen(record), "compiles")
    found = list(events(seen(record), "compile", phase="again"))
    if not found:
        return gap
    names = sorted({event.detail for event in found if event.detail})
    return Failure(
        "a second run of as many steps finds its program compiled",
        f"{plural(sum(e.count for e in found), 'program')} compiled again: {', '.join(names)}",
        culprits(record, found),
    )


@EXERCISE.check(
    ground="observed",
    after=("one_launch",),
    hints=(
        "A Python loop inside jit runs while the function is traced. What is left of the loop?",
        "Every turn is written into the program, and the compiler works on each copy. "
        "lax.fori_loop and lax.scan write the step down once.",
    ),
    anchor="compiled-once",
)
def one_copy_of_the_step(record: Record) -> Result:
    """The program is as long for many steps as for few."""
    problem = seen(record).facts["no text"]
    if problem:
        return Unable(f"programs could not be read: {problem}")
    few, many = _lengths(record)
    more = many.lines - few.lines
    if more < many.steps - few.steps:
        return None
    return Failure(
        f"the program of {many.steps} steps is about as long as that of {few.steps}",
        f"it has {many.lines:,} lines, and that of {few.steps} has {few.lines:,}: the loop is "
        "unrolled, and the program holds a copy of each step",
        definition(record, "simulate"),
    )


@EXERCISE.check(
    ground="timing",
    hints=(
        "One launch, and still slow: what is done in each step, or in each call, besides the run?",
        "A callback leaves the device for Python in each step.",
        "Is the function that holds the loop jitted? Outside jit, Python prepares lax.fori_loop "
        "and lax.scan anew in each call.",
    ),
)
def ten_times_faster(record: Record) -> Result:
    """A run takes at most a tenth of the time of a loop in Python."""
    return timing_result(record, "loop", "a run")
