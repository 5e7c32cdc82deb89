"""Checks of ex08_boundary_copy: the copies of each array, the reads, and the numbers.

The log of JAX says how many copies to the device a run made; `Run.came` says of which arrays.
"""

import ast
import re
from collections import Counter
from dataclasses import replace
from math import prod

import msgspec
from msgspec.structs import replace as replace_in

from grader.checks.ex08_boundary_copy import EXERCISE
from grader.checks.ex08_boundary_copy.facts import HIDES, RUNS, SLIPS, Run
from grader.judging.arrays import compare, label
from grader.judging.checking import Failure, Result
from grader.judging.evidence import (
    calls_of,
    culprit,
    culprits,
    definition,
    events,
    hidden_error,
    probe_gap,
    seen,
    to_host,
    wanted,
)
from grader.judging.results import differing_leaf
from grader.judging.words import plural, where
from grader.records.record import Event, Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File, reached
from grader.source.slips import last_name

NUMBER = 16
"""Bytes of the largest number: arrays of params, stats and batches are larger."""
SINGLE = 128
"""So many bytes of single numbers may be in the programs of a run beyond those of the reference."""
AHEAD = 2
"""How many batches after its own may have been taken when a step begins."""


def _runs(record: Record) -> list[Run]:
    return msgspec.convert(seen(record).facts[RUNS], list[Run])


def _named(run: Run) -> str:
    """`a run of 17 batches`."""
    return f"a run of {plural(run.batches, 'batch')}"


def _copies(record: Record, run: Run) -> tuple[int, list[Event]]:
    """The copies to the device in a run, by JAX's log: their number, and the events."""
    found = list(events(seen(record), "h2d", phase=run.phase))
    return sum(event.count for event in found), found


BEFORE = (
    "The first batch needs care too: until then the params are NumPy arrays, and two calls get "
    "them."
)


def _miscounted(record: Record, name: str) -> Result:
    """The failure for the first array of `name` that a run copies too often."""
    if gap := probe_gap(seen(record), "transfers"):
        return gap
    for run in _runs(record):
        for key in run.came.get(name, {}):
            if failure := _copied_too_often(record, run, name, key):
                return failure
    return None


def _copied_too_often(record: Record, run: Run, name: str, key: str) -> Failure | None:
    """The failure if a run copies the array `name[key]` more often than it must."""
    total, found = _copies(record, run)
    too_many, fewest = total > run.fewest, run.fewest_of_each(name)
    # In a buffer that another array had lies a copy, or the same array: the log decides.
    copied = [came for came in run.came[name][key] if too_many or came[0] != "again"]
    if len(copied) <= fewest:
        return None
    what = "an array placed again" if too_many else "a copy made on the device"
    if any(how == "numpy" for how, _ in copied):
        what = "a NumPy array"
    lines = [line for how, line in copied if how == "numpy" or not too_many]
    each = 1 if what == "a NumPy array" else len(copied) // fewest
    own = _own_lines(record, lines, len(copied), each)
    rest = "" if own else f". All lines that copy are listed, {plural(total, 'copy')} in all"
    return Failure(
        f"{plural(fewest, 'copy')} of `{name}[{key!r}]` to the device in {_named(run)}",
        f"{plural(len(copied), 'copy')}: the calls got {what}{rest}",
        _unplaced(record, name) + (own or _likely_first(record, run, found, lines, (name, key))),
        BEFORE if name == "params" and len(copied) == fewest + 1 else "",
    )


def _unplaced(record: Record, name: str) -> list[Culprit]:
    """The only call behind `train` that gets its argument `name` as it came, and does not place it.

    Nothing where the name gets another value, or stands in several calls.
    """
    file = File(record.source)
    nodes = [node for top in reached(file, "train") for node in ast.walk(top)]
    names = (node for node in nodes if isinstance(node, ast.Name) and node.id == name)
    if any(isinstance(node.ctx, ast.Store) for node in names):
        return []
    calls = [
        node
        for node in nodes
        if isinstance(node, ast.Call) and last_name(node.func) not in PLACING
        for given in (*node.args, *(keyword.value for keyword in node.keywords))
        if isinstance(given, ast.Name) and given.id == name
    ]
    return [file.place(calls[0])] if len(calls) == 1 else []


PLACING = ("device_put", "asarray", "array", "map")
"""What places an array, or a tree of them, on the device."""


def _likely_first(
    record: Record, run: Run, found: list[Event], lines: list[int], array: tuple[str, str]
) -> list[Culprit]:
    """All lines that copy: first those known to copy this array, or one of as many bytes."""
    name, key = array
    leaves = wanted(record).values[run.results[1]] if name == "params" else []
    sizes = {4 * prod(leaf.shape) for leaf in leaves if leaf.path == f"[{key!r}]"}
    likely = {*lines, *(event.line for event in found if event.nbytes in sizes)}
    return sorted(culprits(record, found), key=lambda place: place.line not in likely)


def _own_lines(record: Record, lines: list[int], copies: int, each: int) -> list[Culprit]:
    """The lines that copy an array, if they are known for all of its copies.

    If it is copied `each` times in a row, a line that makes no first copy comes first.
    """
    if 0 in lines or len(lines) < copies:
        return []
    needed = set(lines[::each])
    times = sorted(Counter(lines).items(), key=lambda item: (item[0] in needed, item[0]))
    return [culprit(record, line, count) for line, count in times]


@EXERCISE.check(
    ground="observed",
    hints=(
        "A list of batches holds all of them in memory before the first step runs.",
        "Copy a batch when its turn comes, or one step before.",
    ),
)
def one_batch_at_a_time(record: Record) -> Result:
    """Batches are taken and copied as the steps need them, and each batch gets its step."""
    for run in _runs(record):
        if run.steps != run.batches:
            expected = f"{plural(run.batches, 'call')} of `step`, one for each batch"
            hint = "`step` is the first argument of `train`. It is called once for each batch."
            own = statements.call(record, "train", "sgd_step") if not run.steps else []
            if own == [] and run.steps < run.batches and (own := calls_of(record, ["next"])):
                hint = TAKEN
            place = own or definition(record, "train")
            return Failure(expected, plural(run.steps, "call"), place, hint)
        if run.ahead > AHEAD:
            expected = f"when a step begins, at most {AHEAD} batches after its own have been taken"
            observed = f"in {_named(run)}, {run.ahead} had been taken beyond that "
            observed += "of the step that began"
            return Failure(expected, observed, statements.taken(record, "train", "batches"))
        if run.placed > 1:
            expected = "when a step begins, at most one batch after its own lies on the device"
            observed = f"in {_named(run)}, {run.placed} lay there"
            place = statements.call(record, "train", "islice", "popleft", "deque")
            return Failure(expected, observed, place, ONE_BEFORE)
    if hidden := seen(record).facts[HIDES]:
        observed = "`train` returned errors of batches, as if it had taken all of its steps"
        return hidden_error(record, "train", f"`{hidden[0]}`", observed)
    return None


TAKEN = (
    "An iterator gives each batch once, and what `next` took does not come in a loop that follows. "
    "Which batch gets no call of `step`?"
)
ONE_BEFORE = "Each batch takes memory. Copy it in its own step, or in the one before."


@EXERCISE.check(
    ground="observed",
    hints=(
        "Two calls get the batch. Do both get what the first one copied?",
        "jax.device_put returns the array on the device; the NumPy array stays what it was. "
        "Use what it returns, in both calls.",
    ),
)
def batch_copied_once(record: Record) -> Result:
    """Each array of a batch is copied to the device once."""
    return _miscounted(record, "batch")


@EXERCISE.check(
    ground="observed",
    hints=("`stats` never change. Copy them where they are needed first: before the loop.",),
)
def stats_copied_once(record: Record) -> Result:
    """Each array of `stats` is copied to the device once in a run, not in each step."""
    return _miscounted(record, "stats")


@EXERCISE.check(
    ground="observed",
    after=("one_batch_at_a_time",),
    hints=(
        "What `step` returns is on the device already. It need not be copied there.",
        BEFORE,
    ),
)
def params_copied_once(record: Record) -> Result:
    """The params are copied to the device once, before the first step, and stay there."""
    return _miscounted(record, "params")


@EXERCISE.check(
    ground="observed",
    after=("one_batch_at_a_time",),
    hints=("The error of a batch is measured before its step, with the params of that moment.",),
)
def same_numbers(record: Record) -> Result:
    """Params and errors are what the calls returned, and the caller's dicts stay as they are."""
    for run in _runs(record):
        if run.changed:
            more = f" and {len(run.changed) - SHOWN} more" * (len(run.changed) > SHOWN)
            named = ", ".join(run.changed[:SHOWN])
            return Failure(
                "in each step and afterwards, the caller's dicts hold the arrays of before",
                f"replaced, moved, taken out, put in or overwritten: {named}{more}",
                statements.written_into(record, "train"),
                CALLERS,
            )
        if run.other:
            step, other = run.other
            return Failure(
                f"call {step + 1} of `step` gets batch {step + 1}, in {_named(run)}",
                f"it gets batch {other + 1}",
                statements.call(record, "train", "step"),
                WHICH_BATCH,
            )
        for name, gave in zip(run.results, run.gave, strict=True):
            failure = differing_leaf(record, name, rtol=1e-4, atol=1e-5)
            failure = failure or _not_returned(record, name, gave)
            if failure:
                return _in_words(record, failure, run)
        if run.late:
            return Failure(
                f"the error of a batch is measured before its step, in {_named(run)}",
                f"{plural(run.late, 'step')} came first: one that donates its params deletes them",
                statements.call(record, "train", "error_of"),
                MEASURED_LATE,
            )
    return None


def _not_returned(record: Record, name: str, gave: str) -> Failure | None:
    """The failure if what a run returned is not what calls returned, to the last bit.

    Where there were more calls than batches, an error may be that of any call.
    """
    mine, returned = (seen(record).values[one] for one in (name, gave))
    failure = compare(name, mine, returned, "", "", rtol=0, atol=0)
    if len(returned) < len(mine):
        return None  # a program that was compiled ahead of time is not watched
    if failure is None or len(mine) == len(returned):
        return failure and replace(failure, hint=failure.hint or AS_RETURNED)
    for leaf in mine:
        alike = (replace_in(one, path=leaf.path) for one in returned)
        found = [compare(name, [leaf], [one], "", "", rtol=0, atol=0) for one in alike]
        if all(found):
            return found[0] and replace(found[0], hint=AS_RETURNED)
    return None


WHICH_BATCH = "A batch is taken, measured and stepped with. Which line gives its name another one?"
MEASURED_LATE = "`error_of` needs the params that `step` gets. Which of the two calls comes first?"
AS_RETURNED = "What the calls return is returned as it is. Which line computes with it?"
SHOWN = 4
"""How many of the arrays that changed are named."""
CALLERS = "What is written into a dict or an array, its owner sees, too. Make a new one."


def _in_words(record: Record, failure: Failure, run: Run) -> Failure:
    """The failure with the run it is of: `errors[3]`, in a run of 17 batches."""
    expected = f"{failure.expected}, in {_named(run)}"
    index = int(failure.expected.startswith("`errors"))
    first = failure.expected.startswith("`errors[0]`")
    told = failure.observed.endswith(SLIPS)
    in_one = index and failure.observed.startswith("it is one array")
    hint = failure.hint or ("" if told else FIRST if first else "" if index else LAST)
    made = statements.result(record, "train", index, 2)
    place, observed = definition(record, "train"), failure.observed
    measured = statements.call(record, "train", "error_of")
    if observed.endswith(SLIPS[0]) and place != measured:
        place, made = measured, []
    other = _other_argument(record, run)
    if other and index and (first or other[2].startswith("dtype")):
        observed += f"; the first call got another `{''.join(other[:2])}`"
        observed += f": {other[2]}, not {other[3]}" if other[3] else ""
        made, hint = statements.assigned(record, "train", other[0]), hint or FIRST
    hint = IN_ONE if in_one else hint
    return replace(
        failure, expected=expected, observed=observed, culprits=place, hint=hint, made=made
    )


def _other_argument(record: Record, run: Run) -> tuple[str, str, str, str] | None:
    """Which array the first call got with other values than it should: ("stats", "['mean']").

    And its shape or dtype, beside the right one; both are empty where these are right.
    """
    other = differing_leaf(record, run.first_call, rtol=1e-6, atol=1e-6)
    name = re.match(r"`[\w ]+\['(\w+)'\](\['\w+'\])", other.expected) if other else None
    if other is None or name is None:
        return None
    form = re.search(r" has (?:shape|dtype) (.+)$", other.expected)
    got = re.match(r"shape \(.*?\)|dtype \w+", other.observed)
    return (name[1], name[2], *((got[0], form[1]) if got and form else ("", "")))


IN_ONE = (
    "`errors` is a list, and each array in it is what `error_of` returned. Which call makes one "
    "array of them?"
)
LAST = "The errors are right, so each step had the right params. Which does `train` return?"
FIRST = (
    "The first error is that of `params`, `stats` and the first batch as they came. What does "
    "`error_of` get?"
)


@EXERCISE.check(
    ground="observed",
    after=("batch_copied_once", "stats_copied_once", "params_copied_once"),
    hints=("Each call copies a Python or NumPy number to the device, as it does an array.",),
)
def nothing_else_is_copied(record: Record) -> Result:
    """Nothing is copied but params, stats and batches, from the host to the device."""
    gap = probe_gap(seen(record), "transfers")
    known = msgspec.convert(wanted(record).facts[RUNS], list[Run])
    for run, theirs in zip(_runs(record), known, strict=True):
        moved = list(events(seen(record), "d2d", phase=run.phase))
        if not gap and moved:
            return Failure(
                f"0 copies of what is on a device already, in {_named(run)}",
                plural(sum(event.count for event in moved), "copy"),
                culprits(record, moved),
                STRAIGHT,
            )
        total, found = _copies(record, run)
        if not gap and total > run.fewest:
            arrays, size = run.arrays, sum((event.nbytes or 0) * event.count for event in found)
            return Failure(
                f"at most {run.fewest} copies to the device in {_named(run)}, "
                f"each of one array: {arrays['params']} of `params`, {arrays['stats']} of `stats`, "
                f"and {arrays['batch']} of each batch",
                f"{plural(total, 'copy')} to the device",
                culprits(record, _of_numbers(found) or found),
                IN_PARTS if 0 < size <= run.bytes_of_all else "",
            )
        # Fewer copies of what is put together first leave no room for copies of anything else.
        copied = sum((event.nbytes or 0) * event.count for event in found)
        # A NumPy array that a function closes over goes to the device with its program.
        # Single numbers are needed there, as the reference's programs need some, too.
        few = SINGLE + sum(size for size in theirs.constants if size <= NUMBER)
        small = [size for size in run.constants if size <= NUMBER]
        baked = [size for size in run.constants if size > NUMBER] + small * (sum(small) > few)
        copied += sum(baked)
        if not gap and copied > run.bytes_of_all:
            return Failure(
                f"{run.bytes_of_all:,} bytes are copied to the device in {_named(run)}: "
                "params and stats once, and each batch once",
                f"{copied:,} bytes{_baked(baked)}",
                culprits(record, found),
            )
    return gap


IN_PARTS = "One copy takes all of an array. Which line takes it apart before it is copied?"


def _of_numbers(copies: list[Event]) -> list[Event]:
    """The copies of single numbers, from lines that copy nothing larger."""
    large = {event.line for event in copies if (event.nbytes or NUMBER + 1) > NUMBER}
    return [event for event in copies if event.line not in large]


STRAIGHT = (
    "One copy takes an array from the host to the device where it is needed. Which line copies it "
    "once more?"
)


def _baked(sizes: list[int]) -> str:
    """What of the copied bytes were constants of programs, in words."""
    what = f"; of these, {sum(sizes):,} in {plural(len(sizes), 'constant')} of compiled programs"
    return what * bool(sizes)


@EXERCISE.check(
    ground="observed",
    after=("batch_copied_once", "stats_copied_once", "params_copied_once"),
    hints=(
        "float(), np.asarray(), print() and jax.device_get copy an array to the host.",
        "Keep the array that `error_of` returns as it is. The caller reads it when it is needed.",
    ),
    anchor="reading-stops-the-loop",
)
def nothing_is_read(record: Record) -> Result:
    """No array is copied back to the host: errors and params stay on the default device."""
    found = to_host(seen(record))
    if found:
        observed = f"{plural(sum(event.count for event in found), 'read')} in four runs"
        return Failure("no read of an array in `train`", observed, culprits(record, found))
    for name in (name for run in _runs(record) for name in run.results):
        known = {(leaf.memory_kind, where(leaf)) for leaf in wanted(record).values[name]}
        leaves = (leaf for leaf in seen(record).values[name] if leaf.kind == "jax")
        away = (leaf for leaf in leaves if (leaf.memory_kind, where(leaf)) not in known)
        if moved := next(away, None):
            place = definition(record, "train")
            expected = f"{label(name, moved.path)} stays on the default device"
            return Failure(expected, where(moved), place)
    if programs := sum(run.through_host for run in _runs(record)):
        told = f"{plural(programs, 'program')} that `train` compiles keep arrays in host memory"
        return Failure(
            "all arrays stay on the device", told, statements.call(record, "train", "jit")
        )
    return probe_gap(seen(record), "reads")
