"""Checks of ex11_fewer_launches: the numbers, launches and compiles of a run, and its time."""

import ast
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import msgspec

from grader.checks.ex11_fewer_launches import EXERCISE
from grader.checks.ex11_fewer_launches.facts import (
    AGAIN,
    BY_OLD_SPEED,
    COMMITTED,
    FEW,
    FIRST,
    GOING_ON,
    OPERATIONS,
    WEAK,
    Run,
    phase_of,
    state_after,
)
from grader.judging.arrays import load
from grader.judging.checking import Failure, Result, Unable
from grader.judging.differences import IN_BFLOAT16
from grader.judging.evidence import (
    calls_of,
    culprits,
    definition,
    events,
    probe_gap,
    seen,
    timing_result,
    to_host,
    wanted,
)
from grader.judging.results import differing_leaf
from grader.judging.words import plural
from grader.records.record import Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File
from grader.source.statements.search import first_in, only_place


def _runs(record: Record, *phases: str) -> list[Run]:
    """The runs of these phases, or all; those of few steps, which show little, come last."""
    runs = msgspec.convert(seen(record).facts["runs"], list[Run])
    runs.sort(key=lambda run: run.steps < FEW)
    return [run for run in runs if not phases or run.phase in phases]


OF_WHICH_DTYPE = "Of which dtype is the state, from the start to the last step?"
BY_THE_NUMBER = "Which number in your code stands for the steps: a fixed count, a limit, an `if`?"


@EXERCISE.check(
    ground="observed",
    hints=("A run of n steps calls `step` n times, each time with what it returned before.",),
)
def same_state(record: Record) -> Result:
    """Angles and speeds after the run are the reference's."""
    runs = _runs(record)
    failures = [_differs(record, run) for run in runs]
    first = next(((run, found) for run, found in zip(runs, failures, strict=True) if found), None)
    if first is None:
        return None
    run, failure = first
    if failure.observed == "it is 2 values" and calls_of(record, ["scan"]):
        return replace(failure, hint=OF_A_SCAN, culprits=_loop(record))
    wrong = [one for one, found in zip(runs, failures, strict=True) if found]
    if run.began and all(one.began == run.began for one in wrong):
        observed = f"{failure.observed}; at the start of such a run, {run.began}"
        return replace(failure, observed=observed, hint=BY_THE_START, made=_loop(record))
    if not failure.hint and (same := _right_in_another(record, run)):
        observed = f"{failure.observed}; in run {same.number}, the state is right"
        place = statements.choice(record, "simulate")
        return replace(failure, observed=observed, hint=BY_THE_CALL, culprits=place)
    right = {one.steps for one in runs if one not in wrong and not one.began}
    if not failure.hint and (when := _right_when(right, {one.steps for one in runs} - right)):
        observed = f"{failure.observed}; {when}, the state is right"
        hint = OF_A_PART if "even" in when else BY_THE_NUMBER
        return replace(failure, observed=observed, hint=hint, made=_loop(record))
    if not failure.hint and _but_for_turns(record, run):
        observed = f"{failure.observed}: these are the right angles, but for whole turns"
        return replace(_placed(record, replace(failure, observed=observed)), hint=TURNS)
    if failure.observed.endswith(IN_BFLOAT16):
        return replace(_placed(record, failure), hint=OF_WHICH_DTYPE)
    return _placed(record, failure)


TURNS = "`step` lets an angle grow beyond a whole turn. Which of your lines brings it back?"


def _but_for_turns(record: Record, run: Run) -> bool:
    """Whether only angles differ after a run, and each by whole turns."""
    import numpy as np

    name = state_after(run.steps, run.number)
    sides = (seen(record).values[name], wanted(record).values[name])
    mine, theirs = ({x.path: load(x.data).astype(float) for x in side if x.data} for side in sides)
    if {*mine} != {*theirs} or any(mine[path].shape != theirs[path].shape for path in mine):
        return False
    apart = {path: (mine[path] - theirs[path]) / math.tau for path in mine}
    turns = {path: np.round(x) for path, x in apart.items()}
    near = all(np.all(np.abs(apart[path] - turns[path]) < NEAR_A_TURN) for path in apart)
    return near and {path for path in turns if turns[path].any()} == {"['angle']"}


NEAR_A_TURN = 1e-3
"""By which part of a turn an angle may be off."""


def _differs(record: Record, run: Run) -> Failure | None:
    """How the state of a run differs. After few steps, nothing but the last digits may."""
    rtol = min(1e-3, OF_A_STEP * max(run.steps, FEW))
    return differing_leaf(record, state_after(run.steps, run.number), rtol=rtol, atol=1e-5)


OF_A_STEP = 2e-5
"""By which part of itself a number may be off for each step, up to 1 part in 1,000."""


def _right_when(right: set[int], wrong: set[int]) -> str:
    """After which numbers of steps the state is right, if one sentence says it of all of them.

    A single step tells nothing: most mistakes show from the second one on.
    """
    right = right - {1}
    if right and not any(steps % 2 for steps in right) and all(steps % 2 for steps in wrong):
        return "after any even number of steps"
    shorter = right and max(right) < min(wrong)
    return f"up to {max(right)} steps" if shorter else ""


OF_A_SCAN = (
    "jax.lax.scan returns two things: the last carry, and what its function gave in each round. "
    "Which of them is the state?"
)
BY_THE_START = (
    "Runs that begin otherwise are right. What does your code do, or leave out, because of the "
    "numbers that it begins with?"
)
OF_A_PART = (
    "Each round makes more than one step. What of the steps that are left if their number is odd?"
)
BY_THE_CALL = (
    "Two runs with the same number of steps are not alike. What does your code remember from one "
    "call to the next, and what does it do otherwise then?"
)


def _right_in_another(record: Record, run: Run) -> Run | None:
    """A run with the same number of steps whose state is right, if there is one."""
    others = (one for one in _runs(record) if one.steps == run.steps and not one.began)
    return next((one for one in others if not _differs(record, one)), None)


def _placed(record: Record, failure: Failure) -> Failure:
    """At what is not as in `step`; or what a loop's body returns, or the call that loops."""
    if failure.observed.endswith(AROUND_THE_STEPS):
        if (times := statements.matching(record, "simulate", _TIMES)) and _some_are_right(record):
            return replace(failure, culprits=times, hint=FRACTIONS)
        rounded = statements.condition(record, "simulate") and _some_are_right(record)
        return replace(failure, culprits=_around(record), hint=ROUNDED if rounded else failure.hint)
    if unlike := statements.unlike(record, "step"):
        observed = f"{failure.observed}; what is marked is not as in `step`"
        return replace(failure, observed=observed, culprits=unlike)
    if BY_OLD_SPEED in failure.observed and (moving := _moving(record)):
        return replace(failure, culprits=moving, hint=WHICH_SPEED)
    body = statements.result(record, "simulate", inner=True)
    inside = body != definition(record, "simulate")
    made = body if inside else statements.each_round(record, "simulate") or _loop(record)
    return replace(failure, made=made)


WHICH_SPEED = "`step` moves the angle by the new speed. Which speed does the marked line take?"


def _moving(record: Record) -> list[Culprit]:
    """The only sum of something and a product behind `simulate`: in `step`, it is the new angle."""
    file = File(record.source)

    def sums(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
        for node in nodes:
            match node:
                case (
                    ast.BinOp(op=ast.Add(), right=ast.BinOp(op=ast.Mult()))
                    | ast.BinOp(op=ast.Add(), left=ast.BinOp(op=ast.Mult()))
                    | ast.AugAssign(op=ast.Add(), value=ast.BinOp(op=ast.Mult()))
                ):
                    yield node

    return only_place(file, first_in(file, "simulate", sums))


ROUNDED = (
    "For some numbers of steps, the state is right. What does the condition of your loop compare: "
    "whole numbers, or sums that are rounded?"
)


_TIMES = r"\w+(\.numpy)?\.arange\(.*\d\.\d"
FRACTIONS = (
    "For some numbers of steps, the state is right. How many rounds does the marked line make: "
    "does it count whole numbers, or add up fractions that are rounded?"
)


def _some_are_right(record: Record) -> bool:
    """Whether the state is right after some numbers of steps."""
    return any(_differs(record, run) is None for run in _runs(record) if not run.began)


def _around(record: Record) -> list[Culprit]:
    """What says how many rounds a loop makes; or what a body returns that is called as often."""
    place = statements.condition(record, "simulate") or statements.rounds(record, "simulate")
    place = place or _loop(record)
    whole = any("fori_loop(0, steps," in one.text for one in place)
    return (whole and statements.each_round(record, "simulate")) or place


def _loop(record: Record) -> list[Culprit]:
    return statements.call(record, "simulate", "fori_loop", "scan", "while_loop")


AROUND_THE_STEPS = (
    "one step short",
    "one step too far",
    "exchanged at the start",
    "no step was made",
)
"""How it ends what is said of a state of which each step may be right."""


@EXERCISE.check(
    ground="observed",
    after=("same_state",),
    hints=("A donated argument is deleted by the call. The caller did not offer it.",),
)
def start_is_kept(record: Record) -> Result:
    """The caller's angle and speed are still there after a run, and its state after later ones."""
    for run in _runs(record):
        if run.deleted:
            return Failure(
                "a simulation can be run again from the same start",
                f"the run deletes the caller's {' and '.join(run.deleted)}, because `simulate` "
                "donates them",
                statements.matching(record, "simulate", _DONATING)
                or definition(record, "simulate"),
            )
    later = ((run, *found) for run in _runs(record) for found in run.later.items())
    for run, word, names in later:
        return Failure(
            "a later run deletes nothing that an earlier one was given, or returned",
            f"a later run deletes {word} {' and '.join(names)}, of {plural(run.steps, 'step')}",
            calls_of(record, ("delete",)) or definition(record, "simulate"),
            "What does your code keep of a run, and what does it do with it in the next one?",
        )
    return None


_DONATING = r".*\bdonate_arg"
ONE_CALL = (
    "Each call of a jitted function is a launch. One call can take all steps, however many there "
    "are, if the whole loop is in it."
)


@EXERCISE.check(
    ground="observed",
    after=("same_state",),
    hints=(
        "If the step is jitted, each step is one launch. How many steps does a run have?",
        ONE_CALL,
    ),
)
def one_launch(record: Record) -> Result:
    """A run launches one program, whatever its number of steps, and the host reads no state."""
    problem = seen(record).facts.get("no counter")
    if problem:
        return Unable(f"launches could not be counted: {problem}")
    runs = _runs(record)
    wrong = [run for run in runs if run.launches != 1]
    if not wrong:
        return _read(record)
    some = "" if len(wrong) == len(runs) else f" (in {len(wrong)} of {len(runs)} runs)"
    return Failure(
        f"1 program is launched for a run of {plural(wrong[0].steps, 'step')}"
        + _only_of_so_many(wrong, [run for run in runs if run.launches == 1]),
        _launched(wrong[0]) + some,
        _computing(record, wrong[0]),
        _why_launched(record, wrong[0]),
    )


def _only_of_so_many(wrong: list[Run], right: list[Run]) -> str:
    """How many pendulums the first of the wrong runs has, where the right ones have all less."""
    fewest, most = (
        min((run.pendulums for run in wrong), default=0),
        max((run.pendulums for run in right), default=0),
    )
    return f", of {wrong[0].pendulums:,} pendulums" if 0 < most < fewest else ""


def _read(record: Record) -> Result:
    """The failure if a run brings a state to the host, which then may compute steps."""
    reads = to_host(seen(record))
    if not reads:
        return _told(record) or probe_gap(seen(record), "reads")
    total = plural(sum(event.count for event in reads), "read")
    return Failure(
        "a run reads no array: its steps are computed on the device",
        f"{total} in {plural(len(_runs(record)), 'run')}",
        culprits(record, reads),
        ON_THE_HOST,
    )


def _told(record: Record) -> Failure | None:
    """The failure where the program of a run gives a state to Python."""
    told = [run.steps for run in _runs(record, FIRST) if run.told]
    if not told:
        return None
    return Failure(
        "no run gives its state to the host",
        f"the program for {plural(told[0], 'step')} gives numbers to a function of Python",
        calls_of(record, ("debug.callback", "io_callback", "pure_callback", "debug.print")),
        "What runs on the host while the program runs, and what does it get?",
    )


def _computing(record: Record, run: Run) -> list[Culprit]:
    """The reads by which the host gets what it computes with, or the call of what is launched."""
    reads = to_host(seen(record)) if _is_on_the_host(run) else []
    if reads or not run.functions:
        return culprits(record, reads) or definition(record, "simulate")
    if _is_beside_the_loop(record, run):
        own = {*File(record.source).names, "scan", "fori_loop", "while_loop"}
        beside = statements.call(record, "simulate", *sorted(run.functions.keys() - own))
        if beside != definition(record, "simulate"):
            return beside
        of_numpy = statements.matching(record, "simulate", _OF_NUMPY)
        parts = _unpacking(record) if {*run.functions} & _OF_PARTS else []
        return parts or of_numpy or _loop(record)
    if _are_unnamed(run):
        return statements.rounds(record, "simulate") or definition(record, "simulate")
    often = max(run.functions, key=run.functions.__getitem__)
    return statements.call(record, "simulate", often)


def _are_unnamed(run: Run) -> bool:
    """Whether what is launched at each step has no name: a program that was compiled ahead."""
    return not run.launches % run.steps and sum(run.functions.values()) < run.launches


def _unpacking(record: Record) -> list[Culprit]:
    """What `simulate` returns, if it takes parts there; or the one that unpacks a call."""
    returned = statements.result(record, "simulate")
    if any("[" in one.text.partition("#")[0] for one in returned):
        return returned
    file = File(record.source)
    function = file.doing("simulate")
    taken = [
        node
        for node in (ast.walk(function) if function else ())
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Call)
    ]
    return [file.place(taken[0])] if len(taken) == 1 else returned


def _is_on_the_host(run: Run) -> bool:
    """Whether no program is launched but those by which jnp.asarray places a NumPy array."""
    return {*run.functions} <= {"stage"} and run.launches == sum(run.functions.values())


def _why_launched(record: Record, run: Run) -> str:
    """The hint for a number of launches, or "" for the check's first one."""
    if _as_in_another(record, run):
        return BY_THE_CALL
    if _is_on_the_host(run):
        return ON_THE_HOST
    if _is_beside_the_loop(record, run):
        return BESIDE
    return ONE_CALL if run.launches % run.steps else ""


def _as_in_another(record: Record, run: Run) -> bool:
    """Whether a run with the same number of steps launched one program, and this one none."""
    others = (one for one in _runs(record) if one.steps == run.steps)
    return not run.launches and any(one.launches == 1 for one in others)


def _is_beside_the_loop(record: Record, run: Run) -> bool:
    """Whether one program may take all steps, and the others stand beside.

    Then none is launched twice, or each run launches the same ones, whatever its steps. Where there
    is one step only, some parts of an array are the whole of it, and cost nothing.
    """
    others = (one.functions for one in _runs(record, run.phase) if one.steps > 1)
    same = 1 in run.functions.values() and all(one == run.functions for one in others)
    return same or {*run.functions.values()} == {1}


_OF_PARTS = {"dynamic_slice", "squeeze", "_unstack", "unstack"}
"""What JAX calls the programs that take an array apart outside jit."""
_OF_NUMPY = r"(jnp|jax\.numpy)\.\w+\((?!.*\)\.)"
"""How a call of jax.numpy begins whose result is not asked for something else."""
BESIDE = (
    "No program here is launched for each step. But each call of jax.numpy that stands outside the "
    "jitted function is one more, and so is each part of an array, `x[0]`. What of your code is "
    "not inside it?"
)
ON_THE_HOST = "What computes the steps, if not one program of JAX? NumPy works on the host."
MOST_NAMES = 6
"""So many functions are listed, those that were called most often."""


def _launched(run: Run) -> str:
    """How many launches there were, and of what: "140 launches, 2 for each step: 70 of `sin`"."""
    if not run.launches:
        return "no program is launched: the device computes nothing"
    if _is_on_the_host(run):
        placing = f"{run.launches} of `stage`, by which jnp.asarray places a NumPy array"
        return f"nothing is launched but {placing}: the device computes nothing"
    each = run.launches / run.steps
    often = f", {each:g} for each step" if each >= 1 and each % 1 == 0 else ""
    named = {} if _are_unnamed(run) else run.functions
    names = [f"{count} of `{name}`" for name, count in named.items()]
    more = ", ..." if len(names) > MOST_NAMES else ""
    listed = f": {', '.join(names[:MOST_NAMES])}{more}" if names else ""
    return f"{run.launches} launches{often}{listed}"


NEW_BODY = (
    "Outside jit, lax.fori_loop and lax.scan compile their body again in each call if it is a new "
    "function."
)
LOOPS = {"jit(scan)", "jit(while)", "jit(while_loop)", "jit(fori_loop)"}
"""What JAX calls a loop of its own that it compiles outside jit."""


@EXERCISE.check(
    ground="observed",
    after=("one_launch",),
    hints=(
        "jax.jit keeps compiled programs by function. A function that is made in each call is a "
        "new one in each call.",
        "Make the jitted function once, at the top level of the file, for example with a "
        "decorator.",
        NEW_BODY,
    ),
    anchor="compiled-once",
)
def compiled_once(record: Record) -> Result:
    """A run compiles one program at most, and a later one with the same number of steps none."""
    gap = probe_gap(seen(record), "compiles")
    found = list(events(seen(record), "compile", phase=AGAIN))
    if not found:
        return _compiled_too_often(record) or _compiled_going_on(record) or gap
    total = sum(event.count for event in found)
    names = sorted({event.detail for event in found if event.detail})
    cleared, later = calls_of(record, ("clear_caches",)), len(_runs(record, AGAIN))
    some = total < later and not (cleared or LOOPS.issuperset(names))
    said = f" in {plural(later, 'later run')}, some of which compile nothing" * some
    few = _few_are_kept(record) if some else 0
    many = f"the last {few} numbers" if few > 1 else "the last number"
    kept = f"; only the program of {many} of steps is found again" if few else ""
    return Failure(
        "a later run with the same number of steps uses the compiled program of the first",
        f"{plural(total, 'program')} compiled again{said}: {', '.join(names)}{kept}",
        cleared or _jitting(record) or _cache(record, few) or culprits(record, found),
        CLEARED
        if cleared
        else NEW_BODY
        if LOOPS.issuperset(names)
        else FORGOTTEN
        if few
        else KNOWN_BY * some,
    )


def _compiled_too_often(record: Record) -> Failure | None:
    """The failure where first runs compile more programs than there are of them."""
    found = list(events(seen(record), "compile", phase=FIRST))
    first, total = len(_runs(record, FIRST)), sum(event.count for event in found)
    if total <= first:
        return None
    return Failure(
        f"{plural(first, 'program')} compiled for {plural(first, 'first run')}: one for each",
        f"{plural(total, 'program')} compiled",
        culprits(record, found),
    )


def _compiled_going_on(record: Record) -> Failure | None:
    """The failure where a run compiles that begins with the state which another one returned."""
    if not any(events(seen(record), "compile", phase=GOING_ON)):
        return None
    came = next(run.came_back for run in _runs(record, GOING_ON))
    observed = "a run that went on from what `simulate` returned compiled a program"
    placing = statements.matching(record, "simulate", _PLACING) if came == COMMITTED else []
    return Failure(
        "a run that goes on from the state of an earlier one uses the program of that one",
        observed + (came and f": it came back {came}"),
        placing or statements.result(record, "simulate"),
        OTHER_STATE.get(came, ""),
    )


_PLACING = r".*\b(out_shardings|device_put)\b"
OTHER_STATE = {
    COMMITTED: "jit has one program for arrays that are committed to a device, and another one for "
    "those that are not. Which line names a device?",
    WEAK: "A number of Python, or jnp.full(shape, 0.0), is float32 only until it meets another "
    "dtype. jit has a program of its own for such arrays. Which line makes the state of one?",
}
"""The hint by what is odd about a state that was returned."""


def _few_are_kept(record: Record) -> int:
    """Of how many numbers of steps, those that came last, the programs are kept; 0 if not so."""
    runs = msgspec.convert(seen(record).facts["runs"], list[Run])
    compiled = {event.phase for event in events(seen(record), "compile", phase=AGAIN)}
    for kept in range(1, len({run.steps for run in runs})):
        last: list[int] = []
        fits = True
        for number, run in enumerate(runs, 1):
            missing = run.steps not in last
            again = run.phase == AGAIN
            fits = fits and not (again and missing != (phase_of(AGAIN, number) in compiled))
            last = [*(steps for steps in last if steps != run.steps), run.steps][-kept:]
        if fits:
            return kept
    return 0


def _cache(record: Record, few: int) -> list[Culprit]:
    """The only cache of the file, if it keeps but few programs."""
    file = File(record.source)
    found = [
        node
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("lru_cache")
    ]
    return [file.place(found[0])] if few and len(found) == 1 else []


def _jitting(record: Record) -> list[Culprit]:
    """The only call of jax.jit in `simulate`, which makes a new function each time; or nothing."""
    inside = statements.jits_inside(record, ["simulate"])
    place = statements.call(record, "simulate", "jit") if inside else []
    return [] if place == definition(record, "simulate") else place


KNOWN_BY = (
    "Some later runs find the program of the first, and others make a new one. By what does your "
    "code know a program: by the number of steps, or also by something that is new in each run?"
)
FORGOTTEN = (
    "How many programs does your code keep, and what becomes of one when runs with other numbers "
    "of steps come between?"
)
CLEARED = "jax.clear_caches drops every program that is compiled. What does the next call do?"


BASE, MORE_COPIES = 100, 8
"""The program for more steps than BASE may hold twice as many copies of the step as the one for
BASE, and so many more. A loop that is unrolled by k holds k copies or more, with those of what is
left over below 2 k."""


@EXERCISE.check(
    ground="observed",
    after=("one_launch",),
    hints=(
        "A loop that Python runs while the function is traced, or that JAX is told to unroll, "
        "puts a copy of the step into the program for each round. Which of your loops does that?",
        "Every pass through the loop is written into the program, and the compiler works on each "
        "copy. lax.fori_loop and lax.scan write the step down once.",
    ),
    anchor="compiled-once",
)
def one_copy_of_the_step(record: Record) -> Result:
    """The program for many steps holds about as much arithmetic as the program for few."""
    problem = seen(record).facts["no text"]
    if problem:
        return Unable(f"programs could not be read: {problem}")
    runs = _runs(record, FIRST)
    long = next((run for run in runs if run.is_unrolled), None)
    few = next((run for run in runs if run.steps == BASE), runs[0])
    most = 2 * few.operations + MORE_COPIES * OPERATIONS
    long = long or next((run for run in runs if run.operations > most and run.steps > BASE), None)
    if long is None:
        return None
    return Failure(
        f"the program for {long.steps} steps holds about as much arithmetic as one for "
        f"{min(runs[0].steps, few.steps)}",
        f"it has {long.operations:,} operations, and a step has {OPERATIONS}: the loop is "
        f"unrolled, and the program holds about {long.operations // OPERATIONS:,} of its steps",
        (_loop(record) if "unroll=" in record.source else []) or definition(record, "simulate"),
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
    result = timing_result(record, "loop", "a run")
    prepared = statements.matching(record, "simulate", _PREPARING)
    if isinstance(result, Failure) and prepared:
        return replace(result, culprits=prepared, hint=PREPARED)
    return result


_PREPARING = r".*\.lower\(.*\)\.compile\("
PREPARED = (
    "`lower` and `compile` prepare a program whenever they are called. A jitted function that is "
    "called itself does that once."
)
