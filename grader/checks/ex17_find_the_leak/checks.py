"""Checks of ex17_find_the_leak: the history, the best params, and what is alive at each step.

The first window of steps is compared with each later one: live bytes and the number of live arrays
may not grow from one to the other, nor the memory of the host to the last one. Of what was made
between the first and the last, the arrays of one step at most may still be there in the end: the
best params, and what came with them. More of them are a leak that drips.
"""

import ast
import re
from collections.abc import Callable
from dataclasses import replace

import msgspec

from grader.checks.ex17_find_the_leak import EXERCISE
from grader.checks.ex17_find_the_leak.facts import (
    AGAIN,
    BEST_OF,
    BETTER_ALONE,
    FIRST,
    HISTORY_OF,
    HUNDREDS,
    KEEPERS,
    KEPT_FROM,
    KEPT_OF_REPORTS,
    KEPT_ON_HOST,
    LAST,
    LATER,
    LOWEST,
    NOT_AS_TOLD,
    ONLY,
    OTHER_PARAMS,
    SETTLED,
    TRAINS,
    WATCHED,
    WINDOW_LATER,
    Alive,
    Holder,
)
from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import bytes_of, calls_of, culprits, definition, seen, to_host, wanted
from grader.judging.loops import FLOATS
from grader.judging.results import differing_leaf, renamed
from grader.judging.words import plural
from grader.records.record import Observed, Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File

NOTED = 256
"""Bytes that are noted of the reads of a step, at most. Up to 150 more than usual were seen."""
WINDOW = 20
"""Steps of a window. It is this long because some loops read ten losses at a time."""
HELD = 1
"""Of so many steps, arrays may be held for long: of the one that was given the best params."""
LEAST = 4
"""Arrays beyond those of one set of params that a variable holds if it is told to hold many."""
NEAR = 3
"""What one step leaves (params, a loss, copies of both) is first seen within so many steps."""


ALL = "Each batch gets one step. What ends the loop before the batches do?"
AHEAD = "the first is missing"
LAST_MISSING = "the last is missing"
FIRST_MISSING = re.compile(r"the first \d+ are missing$")
LIMITED = (
    "Each batch had its step, and the first ones have no entry in the history that you return. "
    "What limits the length of your history, cuts it, or begins it late?"
)
ONE_LATE = (
    "Each batch had its step, and the last report made no entry. When does your loop write down a "
    "report, and what becomes of the one that it still holds when the batches end?"
)
ALL_TOLD = "Each batch gets one step, and each step an entry of the history: the first one, too."
SAME_PARAMS = "A step returns new params. What does the next step get?"
FLOATS_ONLY = "float(x) is a number. On a CPU, np.asarray(x) is a view of x, and keeps x alive."


@EXERCISE.check(
    ground="observed",
    hints=(
        "The history has one entry for each batch: the report's loss, and the largest of its "
        "errors.",
        FLOATS_ONLY,
    ),
)
def history_is_kept(record: Record) -> Result:
    """The history has the reference's loss and worst error for each batch, as floats."""
    taken, batches = len(_levels(seen(record))), len(_levels(wanted(record)))
    if 0 < taken < batches and (leaving := statements.leaving(record, "train")):
        expected = f"`step` is called once for each of {batches} batches"
        return Failure(expected, f"{plural(taken, 'call')}, and then the loop ends", leaving, ALL)
    leaves = seen(record).values.get("history", ())
    if [leaf.path for leaf in leaves] == [leaf.path for leaf in wanted(record).values["history"]]:
        for leaf in leaves:
            if leaf.kind in ("jax", "numpy") and leaf.type not in FLOATS:
                kind = "still a jax.Array" if leaf.kind == "jax" else f"of type `{leaf.type}`"
                failure = Failure("the history holds floats", f"`history{leaf.path}` is {kind}")
                return replace(_of_history(record, failure), hint=FLOATS_ONLY)
    different = differing_leaf(record, "history", rtol=1e-4, atol=1e-6)
    if different is None:
        return _of_short_runs(record)
    found = _of_history(record, different)
    if found.observed.endswith(LAST_MISSING) and taken == batches:
        loop = statements.rounds(record, "train")
        return replace(found, culprits=loop or found.culprits, hint=ONE_LATE)
    if found.observed.endswith(AHEAD) and (taken_out := calls_of(record, ("next", "islice"))):
        return replace(found, culprits=taken_out, hint=ALL_TOLD)
    if taken == batches and FIRST_MISSING.search(found.observed):
        limited = calls_of(record, ("deque",))
        place = limited if len(limited) == 1 else found.culprits
        return replace(found, culprits=place, hint=LIMITED)
    if "the first params again" not in found.observed:
        return _of_other_params(record, found)
    return replace(found, culprits=statements.call(record, "train", "step"), hint=SAME_PARAMS)


def _of_other_params(record: Record, found: Failure) -> Failure:
    """The failure of a loss, with the step that was not given what the one before returned."""
    step = seen(record).facts[OTHER_PARAMS]
    if not step or f"`history[{step}]" not in found.expected:
        return found
    said = f"{found.observed}; step {step}, counted from 0, was not given the params that the one "
    place = statements.call(record, "train", "step")
    return replace(found, observed=f"{said}before it returned", culprits=place, hint=SAME_PARAMS)


def _of_short_runs(record: Record) -> Failure | None:
    """The failure where the history of a run of a few steps is another one."""
    for name in HISTORY_OF.values():
        if failure := differing_leaf(record, name, rtol=1e-4, atol=1e-6):
            found = _of_history(record, renamed(failure, name, "history"))
            few = "in a run of few steps, where all losses and errors are below 0"
            return replace(found, observed=f"{found.observed}, {few}", hint=found.hint or FEW)
    for told in filter(None, seen(record).facts[NOT_AS_TOLD]):
        expected = "the history has what each report says, to the last bit, however many there are"
        entry = "`history[" in told
        here = definition(record, "train")
        place = statements.result(record, "train", 1, 2) if entry else here
        return Failure(expected, told, place, AS_TOLD if entry else HOWEVER_MANY)
    return None


AS_TOLD = (
    "float(x) of an array is its number as it is. What does your code do to it before it is "
    "written down?"
)
HOWEVER_MANY = "Which entries does your history hold when there are hundreds of steps?"


FEW = (
    "The history of the long run is right. What does your code do otherwise where there are few "
    "steps, and with which number does it compare a loss or an error?"
)


def _of_history(record: Record, failure: Failure) -> Failure:
    """The failure with the expression whose value the history holds there, else its statement."""
    key = next((key for key in ("loss", "worst") if f"['{key}']`" in failure.expected), "")
    key = key or next((key for key in ("loss", "worst") if f"['{key}']`" in failure.observed), "")
    place = statements.entry(record, "train", key) if key and not failure.hint else []
    if place in ([], definition(record, "train")):
        exchanged = "exchanged" in failure.observed  # both values: the whole `return`
        place = statements.result(record, "train", *(() if exchanged else (1, 2)))
    hint = ALL_TOLD if failure.observed.endswith(BETTER_ALONE) else failure.hint
    return replace(failure, culprits=place, hint=hint)


def _failed(record: Record, expected: str, observed: str, hint: str = "") -> Failure:
    return Failure(expected, observed, definition(record, "train"), hint)


@EXERCISE.check(
    ground="observed",
    after=("history_is_kept",),
    hints=(
        "The best params are those with the lowest loss of all steps. A report describes the "
        "params that the step was given, not those that it returned.",
    ),
)
def best_is_kept(record: Record) -> Result:
    """The params with the lowest loss are the reference's."""
    failure = differing_leaf(record, "best", rtol=1e-4, atol=1e-5)
    if failure is None:
        return _best_at_an_end(record)
    if failure.observed.endswith("deleted"):
        return replace(failure, culprits=_deleting(record), hint=DELETED)
    if failure.observed.endswith("before the first step"):
        if second := _second_loop(record):
            observed = f"{failure.observed}; `batches` is used up where the marked loop begins"
            return replace(failure, observed=observed, culprits=second, hint=USED_UP)
        failure = replace(failure, hint=BEGINS)
        if differing_leaf(record, FIRST, rtol=1e-4, atol=1e-5):
            later = "; in a run whose first params are the best, later ones are returned"
            failure = replace(failure, observed=failure.observed + later, hint=TURNED_ROUND)
    if failure.observed.endswith("the last step was given"):
        failure = replace(failure, hint=EVERY_STEP)
    if failure.observed.endswith("below the loss before it"):
        failure = replace(failure, hint=COMPARED)
    mine, right = seen(record).facts[BEST_OF], wanted(record).facts[BEST_OF]
    if mine >= 0 and "that is" not in failure.observed:
        steps = f"these are the params of step {mine}, and step {right} has the lowest loss"
        failure = replace(failure, observed=f"{failure.observed}; {steps}, both counted from 0")
    chosen = failure.observed.endswith(WHICH) or failure.hint == TURNED_ROUND
    place = (statements.choosing if chosen else statements.result)(record, "train", 0, 2)
    return replace(failure, culprits=_in_an_inner_function(record) or place)


def _in_an_inner_function(record: Record) -> list[Culprit]:
    """The only statement of an inner function that sets variables of `train`; or nothing."""
    file = File(record.source)
    outer = [node for node in ast.walk(file.tree) if isinstance(node, ast.Nonlocal)]
    names = {name for node in outer for name in node.names}
    made = [
        node
        for function in ast.walk(file.tree)
        if isinstance(function, ast.FunctionDef) and any(node in function.body for node in outer)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        and any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(node.targets[0]))
    ]
    return [file.place(made[0])] if len(made) == 1 else []


def _second_loop(record: Record) -> list[Culprit]:
    """What the second of two loops of `train` goes over, if that is `batches`, as in the first."""
    file = File(record.source)
    top = file.doing("train")
    loops = [node for node in ast.walk(top) if isinstance(node, ast.For)] if top else []
    over = [
        loop.iter
        for loop in sorted(loops, key=lambda loop: loop.lineno)
        if any(isinstance(n, ast.Name) and n.id == "batches" for n in ast.walk(loop.iter))
    ]
    apart = len(over) == 2 and all(
        one is two or one.iter not in ast.walk(two) for one in loops for two in loops
    )
    return [file.place(over[1])] if apart else []


USED_UP = (
    "`batches` is an iterator: it gives each batch once. What is left of it when a loop has gone "
    "through it? The best params can be kept while it runs."
)


def _best_at_an_end(record: Record) -> Failure | None:
    """The failure where the first or the last step of a run does not count as the best."""
    ends = {LAST: "last", ONLY: "only"}
    for name in (FIRST, LAST, ONLY, AGAIN, HUNDREDS):
        if failure := differing_leaf(record, name, rtol=1e-4, atol=1e-5):
            found = renamed(failure, name, "best")
            end = ends.get(name, "first")
            observed = f"{found.observed}, in a run whose {end} step was given the best params"
            place = statements.choosing(record, "train", 0, 2)
            return replace(found, observed=observed, culprits=place, hint=EACH_COUNTS)
    return None


EACH_COUNTS = (
    "The loss of each step counts, that of the first one and that of the last one, too. Which "
    "steps does your code leave out?"
)
WHICH = (
    "before the first step",
    "the highest loss",
    "the smallest of the largest errors",
    "below the loss before it",
)
"""How it ends what is said of params that another condition has chosen."""
BEGINS = (
    "No later params took the place of the first ones. What does a loss need, to be the lowest so "
    "far? With which number does your code begin, which way does it compare, and is that loss "
    "among those that it is compared with?"
)
TURNED_ROUND = (
    "The best params are those with the lowest loss. Which way does your code compare a loss with "
    "the one that it keeps?"
)
EVERY_STEP = (
    "The params of the last step took the place of better ones. With which number is a loss "
    "compared, and which lines of your code change that number?"
)
COMPARED = (
    "The lowest loss of all steps is below every other. With which number is a loss compared, and "
    "what becomes of that number from one step to the next?"
)
DELETED = "delete() frees an array for everyone who uses it. Who else uses this one?"


def _deleting(record: Record) -> list[Culprit]:
    found = statements.every(record, "train", "delete")
    here = definition(record, "train")
    return found if found != here else calls_of(record, ("delete",)) or here


@EXERCISE.check(
    ground="observed",
    after=("best_is_kept",),
    hints=(
        "The shapes tell what is held: (16, h) and (h,) belong to params, (n, 16) to a batch; (n,) "
        "is its targets, or the errors of a report. Which line of `train` keeps it?",
        "Neither del nor gc nor clearing caches frees an array that a list still holds.",
        "A NumPy view is a reference, too: np.asarray(x) may share the memory of x, and keeps x "
        "alive.",
    ),
)
def live_bytes_flat(record: Record) -> Result:
    """The bytes of live arrays do not grow with the number of steps."""
    mine, theirs = _levels(seen(record)), _levels(wanted(record))
    if len(mine) != len(theirs):
        return _other_steps(record, len(mine), len(theirs))
    slack = _slack(record)
    above = max(one.nbytes for one in mine) - max(one.nbytes for one in theirs)
    grown, when, what = _grown(mine, lambda one: one.nbytes)
    if grown > slack:
        expected = "live bytes grow by no more than one set of params and two reports"
        return _held(record, Failure(expected, f"{grown:,} bytes {when}: {what}"))
    if above > slack:
        peak = max(range(len(mine)), key=lambda index: mine[index].nbytes)
        return Failure(
            "no step holds more than the current params, the best params, two batches and a report",
            f"{above:,} bytes more than with the reference, at step {peak + 1} of {len(mine)}: "
            f"{_more(theirs[peak], mine[peak])}",
            calls_of(record, ("tee",)) or statements.taken(record, "train", "batches"),
        )
    return None


def _slack(record: Record) -> int:
    """Bytes by which two steps may differ: one set of params, and the errors of two reports."""
    return int(wanted(record).facts["bytes of params and two reports"])


def _grown(
    levels: list[Alive], size: Callable[[Alive], int], *, in_the_end: bool = False
) -> tuple[int, str, str]:
    """How much more there is in a later window than in the first, when, and of what.

    It is the window that holds most, or the last one.

    Each window is judged by the step that holds least. What waits to be read or to be freed
    is gone at some step of a window; what is kept is there at all of them.
    """

    def least(start: int) -> int:
        return min(range(start, start + WINDOW), key=lambda index: size(levels[index]))

    last = len(levels) - WINDOW
    windows = range(last, last - 1 if in_the_end else SETTLED, -1)
    early, late = least(SETTLED), max(map(least, windows), key=lambda index: size(levels[index]))
    before, after = levels[early], levels[late]
    when = f"more at step {late + 1} than at step {early + 1}"
    return size(after) - size(before), when, _more(before, after)


def _levels(observed: Observed) -> list[Alive]:
    """What was alive at each step."""
    return msgspec.convert(observed.facts["alive"], list[Alive])


def _other_steps(record: Record, mine: int, theirs: int) -> Result:
    """Why the steps cannot be compared: the reference's loop took another number of them."""
    if not theirs:
        return Unable("the reference called no step")
    expected = f"`step` is called once for each of {theirs} batches"
    hint = "Each batch gets one step. Which call of `step` is one too many, or missing?"
    return _failed(record, expected, plural(mine, "call"), hint)


def _more(before: Alive, after: Alive) -> str:
    """`21 more of float32[4096]`, for every kind of array of which there are more."""
    more = {name: n - before.arrays.get(name, 0) for name, n in sorted(after.arrays.items())}
    return ", ".join(f"{count} more of `{name}`" for name, count in more.items() if count > 0)


@EXERCISE.check(
    ground="observed",
    after=("live_bytes_flat",),
    hints=(
        "A loss has only 4 bytes, but it is an array. A run of a million steps keeps a million "
        "of them.",
        "On a CPU, np.asarray(loss) is a view, which keeps the array alive. float(loss) does not, "
        "in its own step or one step late.",
    ),
)
def live_arrays_flat(record: Record) -> Result:
    """The number of live arrays does not grow with the number of steps."""
    mine = _levels(seen(record))
    grown, when, what = _grown(mine, lambda one: sum(one.arrays.values()))
    # One more set of params, and two reports of two arrays each.
    if grown > len(seen(record).values["best"]) + 4:
        expected = "the last steps have as many live arrays as the first"
        return _held(record, Failure(expected, f"{grown} arrays {when}: {what}"))
    left = min((_left(mine, step) for step in range(len(mine) - WINDOW, len(mine))), key=len)
    if len(left) > HELD:
        expected = "in the end, the best params are all that is left of earlier steps"
        steps = ", ".join(f"{step + 1}" for step in left)
        return _held(record, Failure(expected, f"arrays from steps {steps} are still alive"))
    return _kept_from_run_to_run(record)


def _kept_from_run_to_run(record: Record) -> Failure | None:
    """The failure where a call of `train` leaves arrays behind that the next one does not free."""
    kept = seen(record).facts[KEPT_FROM] - wanted(record).facts[KEPT_FROM]
    if kept >= OF_A_REPORT:
        expected = "once its results are gone, no array of a call of `train` is left"
        observed = f"{kept} more are alive after the last call than before the first"
        return _kept_by(record, Failure(expected, observed, hint=FROM_CALL_TO_CALL))
    if left := seen(record).facts[KEPT_OF_REPORTS]:
        expected = "once its results are gone, no array of a report is left"
        observed = f"alive after the last call: {', '.join(f'`{kind}`' for kind in left)}"
        return _kept_by(record, Failure(expected, observed, hint=FROM_CALL_TO_CALL))
    return _grown_later(record)


def _kept_by(record: Record, failure: Failure, *, host: bool = False) -> Failure:
    """The failure with the variable of the file that held most between calls of `train`."""
    keepers = msgspec.convert(seen(record).facts[KEEPERS], list[Holder])
    name = keepers[host].name
    place = statements.filled(record, name.rpartition(".")[2]) if name else []
    if not place:
        return replace(failure, culprits=definition(record, "train"))
    observed = f"{failure.observed}; `{name}` holds the most"
    return replace(failure, observed=observed, culprits=place)


OF_A_REPORT = 2
"""The arrays of a report. A single array may be a constant that a file keeps."""


def _grown_later(record: Record) -> Failure | None:
    """The failure where a later call of `train` keeps arrays from step to step."""
    arrays = len(seen(record).values["best"]) + 4
    if (grown := _grown_in_later_calls(record, lambda one: sum(one.arrays.values()))) > arrays:
        return _failed(record, IN_EACH_CALL, f"{grown} more arrays {LATER_ALONE}", LATER_CALLS)
    if (grown := _grown_in_later_calls(record, lambda one: one.nbytes)) > _slack(record):
        return _failed(record, IN_EACH_CALL, f"{grown:,} bytes more {LATER_ALONE}", LATER_CALLS)
    run = msgspec.convert(seen(record).facts[LATER], list[list[Alive]])[WATCHED.index(HUNDREDS)]
    # Until the lowest loss is behind, the best params may be those that another variable holds.
    counts = [sum(one.arrays.values()) for one in run[SETTLED + seen(record).facts[LOWEST] :]]
    grown = min(counts[-WINDOW:], default=0) - min(counts[:WINDOW], default=0)
    if grown >= len(seen(record).values["best"]):
        observed = f"{grown} more arrays at the end of a call with {len(run)} steps"
        return _failed(record, IN_EACH_CALL, observed, HOWEVER_MANY_STEPS)
    return None


HOWEVER_MANY_STEPS = "What does your code keep when there are hundreds of steps?"


def _grown_in_later_calls(record: Record, size: Callable[[Alive], int]) -> int:
    """How much more there is at the end of a later call than at its beginning, at most."""
    runs = msgspec.convert(seen(record).facts[LATER], list[list[Alive]])
    levels = [[size(one) for one in run] for run in runs if len(run) >= SETTLED + 2 * WINDOW_LATER]
    ends = ((run[SETTLED : SETTLED + WINDOW_LATER], run[-WINDOW_LATER:]) for run in levels)
    return max((min(late) - min(early) for early, late in ends), default=0)


LATER_ALONE = "in a later call; in the first, there were no more"
IN_EACH_CALL = "the last steps have as many live arrays as the first, in each call of `train`"
LATER_CALLS = "What does your code do otherwise when `train` is called again?"


FROM_CALL_TO_CALL = "What outlives a call of `train`: a list of the file, a default, a cache?"


def _left(levels: list[Alive], now: int) -> list[int]:
    """The steps between the first window and the last whose arrays are alive at step `now`.

    Of steps close to each other, only the first.
    """
    left: list[int] = []
    last = -NEAR
    for step in levels[now].since:
        if SETTLED < step < len(levels) - WINDOW:
            left += [step] if step - last >= NEAR else []
            last = step
    return left


@EXERCISE.check(
    ground="observed",
    after=("live_arrays_flat",),
    hints=("A copy on the host fills the host's memory instead of the device's.",),
)
def host_bytes_flat(record: Record) -> Result:
    """What Python and NumPy hold grows by the history alone."""
    # Python's own objects come and go, and what watches the reads notes each of them.
    most = 2 * _slack(record) + NOTED * len(_levels(seen(record)))
    of_two = 2 * int(wanted(record).facts["bytes of params"])
    for size, limit in ((_held_bytes, of_two - 1), (_host_bytes, most)):
        grown, when, _ = _grown(_levels(seen(record)), size, in_the_end=True)
        history, _, _ = _grown(_levels(wanted(record)), size, in_the_end=True)
        if grown - history > limit:
            expected = "of each step, the host keeps only the floats of the history"
            bytes_ = f"about {float(f'{grown:.2g}'):,.0f} bytes"
            observed = f"{bytes_} {when}: copies of arrays, views or texts"
            return _held(record, Failure(expected, observed), host=True)
    return _kept_on_the_host(record, of_two) or _best_on_the_host(record)


def _kept_on_the_host(record: Record, limit: int) -> Failure | None:
    """The failure where later calls of `train` keep more on the host than `limit` bytes."""
    if (grown := _grown_in_later_calls(record, _held_bytes)) > limit:
        expected = "of each step, the host keeps only the floats of the history, in each call"
        return _failed(record, expected, f"{grown:,} bytes more {LATER_ALONE}", LATER_CALLS)
    kept = seen(record).facts[KEPT_ON_HOST] - wanted(record).facts[KEPT_ON_HOST]
    if kept <= limit:
        return None
    expected = "once its results are gone, nothing of a call of `train` is left on the host"
    observed = f"{kept:,} bytes more after the last call than after the second"
    return _kept_by(record, Failure(expected, observed, hint=FROM_CALL_TO_CALL), host=True)


def _best_on_the_host(record: Record) -> Failure | None:
    """The failure where the best params are NumPy's arrays."""
    leaves = seen(record).values["best"]
    if all(leaf.kind == "jax" for leaf in leaves):
        return _through_the_host(record)
    expected = "the best params are those that `step` was given: each a jax.Array, on its device"
    observed = f"`best{next(x.path for x in leaves if x.kind != 'jax')}` is an array of the host"
    place = calls_of(record, ("device_get", "np.asarray", "np.array", "numpy.asarray"))
    return Failure(
        expected, observed, place or statements.result(record, "train", 0, 2), AS_THEY_ARE
    )


def _through_the_host(record: Record) -> Failure | None:
    """The failure where `train` reads the largest array of the params to the host."""
    largest = max(map(bytes_of, wanted(record).values["best"]))
    reads = [event for event in to_host(seen(record), TRAINS) if event.nbytes == largest]
    if not reads:
        return None
    expected = "no params are copied to the host: the best ones are those that `step` was given"
    count = plural(sum(event.count for event in reads), "read")
    observed = f"{count} of an array of the params, {largest:,} bytes each"
    return Failure(expected, observed, culprits(record, reads), AS_THEY_ARE)


AS_THEY_ARE = (
    "One set of params on the device is no leak. Which line copies the best params to the host?"
)


def _host_bytes(alive: Alive) -> int:
    return alive.host


def _held_bytes(alive: Alive) -> int:
    return alive.held


def _held(record: Record, failure: Failure, *, host: bool = False) -> Failure:
    """The failure with what held most at the last step, and where the file puts more into it."""
    observed, failure = seen(record), replace(failure, culprits=definition(record, "train"))
    holder = msgspec.convert(observed.facts["holders"], list[Holder])[1 if host else 0]
    if holder.calls:
        said = f"{holder.weight} calls of `{holder.name}` have not ended, and hold their variables"
        place = calls_of(record, [holder.name])[:1]
    elif holder.name and (host or holder.weight > len(observed.values["best"]) + LEAST):
        what = "most of it" if host else f"{holder.weight} arrays"
        said = f"`{holder.name}` holds {what}"
        place = statements.filled(record, holder.name.rpartition(".")[2])
    else:
        return failure
    place = place or [*failure.culprits]
    return replace(failure, observed=f"{failure.observed}; {said}", culprits=place)


@EXERCISE.check(
    ground="observed",
    after=("best_is_kept",),
    hints=(
        DELETED,
        "An array that nothing refers to is freed by itself: delete nothing.",
    ),
)
def given_arrays_stay(record: Record) -> Result:
    """`train` deletes neither the params nor the batches that it was given."""
    for deletion in seen(record).facts["deleted"]:
        expected = "`train` deletes nothing that it was given: its caller may still use it"
        return Failure(expected, deletion, _deleting(record))
    return None
