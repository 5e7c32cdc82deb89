"""Checks of ex19_shard_batch: how each batch is split, what its rows hold, and its loss."""

import ast
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import msgspec

from grader.checks.ex19_shard_batch import EXERCISE
from grader.checks.ex19_shard_batch.facts import (
    AGAIN,
    ARRAYS,
    BATCHES,
    MARKED,
    MISSING,
    SPLIT,
    UNDER_JIT,
    Batch,
    changed_of,
    constants_of,
    told_of,
    uneven_of,
)
from grader.judging.arrays import FORM, figures, load
from grader.judging.checking import Failure, Result
from grader.judging.evidence import (
    calls_of,
    culprits,
    definition,
    events,
    probe_gap,
    seen,
    through_a_program,
    to_host,
    wanted,
)
from grader.judging.results import other_order, other_parts
from grader.judging.words import EVERYWHERE, PARTS, in_memory, plural, shards, typed, where
from grader.records.record import Event, Leaf, Observed, Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File

TAKEN_OUT = 1e18
"""Below this, the square of a float32 is finite, so that a mask of 0 takes it out of a sum."""


def _batches(record: Record) -> Iterator[tuple[str, Batch]]:
    """Each batch by its name, as the reference was given it."""
    for name in SPLIT:
        yield name, msgspec.convert(wanted(record).facts[name], Batch)


def _failure(
    record: Record, expected: str, observed: str, name: str, place: Sequence[Culprit]
) -> Failure:
    return Failure(expected, f"{observed}, for {name}", place)


def _placing(record: Record) -> list[Culprit]:
    """Where `shard_batch` says how the rows are split."""
    return statements.call(record, "shard_batch", "P", "PartitionSpec", "device_put")


def _adding(record: Record) -> list[Culprit]:
    """Where `shard_batch` counts the rows that are missing, or adds them."""
    counting = statements.call(record, "shard_batch", "ceil", "device_count", "devices")
    for found in (statements.remainder(record, "shard_batch"), counting):
        if found != definition(record, "shard_batch"):
            return found
    return _padding(record)


def _padding(record: Record) -> list[Culprit]:
    """Where `shard_batch` adds rows: in one call, or in several of one function."""
    here = definition(record, "shard_batch")
    every = (statements.every(record, "shard_batch", name) for name in FILLING)
    found = (place for place in (_filling(record), *every) if place != here)
    return next(found, None) or _placing(record)


FILLING = ("pad", "concatenate", "vstack", "full", "resize")
"""Functions of NumPy that make an array of more rows."""


def _filling(record: Record) -> list[Culprit]:
    """The only call by which `shard_batch` adds rows, or the line that defines it."""
    return statements.call(record, "shard_batch", *FILLING)


def _making(record: Record, key: str) -> list[Culprit]:
    """Where `shard_batch` makes the array `key`, or adds rows to inputs and targets."""
    found = statements.assigned(record, "shard_batch", key, f"_{key}")
    if found != definition(record, "shard_batch"):
        return found
    if key == "mask":
        return statements.result(record, "shard_batch", 2, 3)
    return _filling(record)


def _leaf(record: Record, name: str, key: str) -> Leaf:
    """The array `key` of the batch `name`, as the submission returned it."""
    return _in(seen(record), name, key)


def _in(observed: Observed, name: str, key: str) -> Leaf:
    found = [x for x in observed.values[name] if x.path.startswith(f"['{key}']")]
    if len(found) == 1 and found[0].path != f"['{key}']":
        return Leaf("", "other", "tree that holds an array")
    return _single(found)


def _single(leaves: Sequence[Leaf]) -> Leaf:
    """The one leaf of a value; a leaf of kind "other" where the value is a tree of several."""
    return leaves[0] if len(leaves) == 1 else Leaf("", "other", "tree of several values")


ALONG_DATA = (
    'Only the axis "data" of the mesh splits the rows. Along another axis, devices may hold copies.'
)


@EXERCISE.check(
    ground="observed",
    hints=(
        "P() names no axis: every device gets all rows, and computes with all of them.",
        ALONG_DATA,
    ),
    anchor="read-a-sharding",
)
def batch_is_split(record: Record) -> Result:
    """Every batch is split over the axis "data", the ragged one too."""
    for name, batch in _batches(record):
        if shape := seen(record).facts.get(uneven_of(name)):
            return _cannot_be_split(record, name, batch, shape)
        for key in ARRAYS:
            leaf, right = _leaf(record, name, key), _in(wanted(record), name, key)
            if leaf.kind in ("jax", "numpy") and len(leaf.shape) != len(right.shape):
                order = ": is the order (inputs, targets, mask)?" * (leaf.shape[1:] != (1,))
                place = statements.result(record, "shard_batch")
                return Failure(
                    f"`{key}` has {plural(len(right.shape), 'dimension')}, as {_what_it_is(key)}",
                    f"it has {len(leaf.shape)}, of shape {leaf.shape}, for {name}{order}",
                    place if order else _making(record, key),
                    FORM,
                )
            if leaf.kind in ("jax", "numpy") and leaf.shape[1:] != right.shape[1:]:
                return _other_columns(record, name, key)
            if leaf.shape[:1] == (0,):
                continue  # `as_few_rows_as_it_takes` counts rows
            on_all = len(leaf.devices) == batch.devices
            if not (on_all and _parts(leaf) == batch.parts and _by_data(leaf, batch.parts)):
                expected = f'`{key}` is split over "data" into {plural(batch.parts, "part")}'
                observed = _lies(leaf, batch.devices)
                batch_of = f"{name} ({plural(batch.rows, 'row')})"
                place = _splitting(record, key, leaf, batch)
                failure = _failure(record, expected, observed, batch_of, place)
                hint = REMEMBERED if name == AGAIN else _how_to_split(leaf, batch)
                return replace(failure, hint=hint)
            if elsewhere := _elsewhere(record, name, key, batch):
                return elsewhere
    return None


def _elsewhere(record: Record, name: str, key: str, batch: Batch) -> Failure | None:
    """The failure of parts that lie in another order of devices, or not in their memory."""
    leaf, right = _leaf(record, name, key), _in(wanted(record), name, key)
    if in_memory(leaf):
        expected, observed = f"`{key}` is in device memory", f"it is in {leaf.memory_kind} memory"
        place = statements.call(record, "shard_batch", "NamedSharding", "device_put")
        return replace(_failure(record, expected, observed, name, place), hint=OF_A_KIND)
    if leaf.shape[:1] != (batch.full,):
        return None  # `as_few_rows_as_it_takes` counts rows
    exchanged, other = other_parts(leaf, right), other_order(leaf, right)
    if not (exchanged or other):
        return None
    expected = f"the devices hold `{key}` in the order of the mesh"
    observed = exchanged or f"the devices of its sharding are {other}"
    return replace(_failure(record, expected, observed, name, _placing(record)), hint=OF_THE_MESH)


OF_THE_MESH = "The mesh that `shard_batch` gets knows that order: `mesh` itself, and no other mesh."
OF_A_KIND = "A sharding that names no kind of memory is in the device's. Which line names another?"


def _splitting(record: Record, key: str, leaf: Leaf, batch: Batch) -> list[Culprit]:
    """Where `shard_batch` says how the array `key` is split, or leaves it whole."""
    here, on_all = definition(record, "shard_batch"), len(leaf.devices) == batch.devices
    whole = statements.left_whole(record, "shard_batch", key)
    if on_all and _parts(leaf) == 1 and whole != here:
        return whole
    made = statements.result(record, "shard_batch", ARRAYS.index(key), len(ARRAYS))
    place = _placing(record)
    return made if place == here or not (on_all or made == here) else place


LENGTH = (
    'This mesh has several axes, and the rows are split over "data" alone. With which number does '
    "the marked line count?"
)
TOO_SHORT = (
    "x[:k] has no more rows than x has. Where do the added rows come from, if more are missing "
    "than there are?"
)
NOT_MISSING = (
    "rows % parts is how many rows the last part has where it is not full. -rows % parts is how "
    "many it lacks."
)


def _cannot_be_split(record: Record, name: str, batch: Batch, shape: Sequence[int]) -> Failure:
    """The failure of rows that JAX could not split: some are missing still."""
    of_columns = {_in(wanted(record), name, key).shape[1:]: key for key in ARRAYS}
    key = of_columns.get(tuple(shape[1:]), "")
    rows, got, missing = batch.rows, shape[0], batch.full - batch.rows
    own = f": {rows} of the batch and {missing} added" if missing else ""
    were = "was" if got - rows == 1 else "were"
    why = ", its own alone" if got == rows else f": {got - rows} {were} added"
    if got == rows and missing and batch.parts == batch.devices:
        hint = "Which arrays get the missing rows, and which are returned?"
        place = _making(record, key) if key else definition(record, "shard_batch")
        made = statements.call(record, "shard_batch", "device_put")
    else:
        hint = NOT_MISSING if missing else NONE_MISSING
        hint = hint if batch.parts == batch.devices else LENGTH
        place, made = _adding(record), _padding(record)
        others = (batch.devices // batch.parts, batch.devices)
        by_another = got in [rows + -rows % length for length in others]
        known = (missing and by_another) or _adds_the_last_part(record)
        if got == 2 * rows < batch.full and not known:
            hint, place, made = TOO_SHORT, _padding(record), []
        if got < rows:
            why, hint = f", without {rows - got} of its own", ALL_KEPT
    failure = _failure(
        record,
        f"`{key}` has {plural(batch.full, 'row')}{own}" if key else f"{batch.full} rows{own}",
        f"{plural(got, 'row')}{why}, and {plural(batch.parts, 'part')} cannot be equal",
        name,
        place,
    )
    return replace(failure, hint=hint, made=made)


def _adds_the_last_part(record: Record) -> bool:
    """Whether a batch of more rows than parts got as many more as its last part has."""
    facts = seen(record).facts
    found = ((facts.get(uneven_of(name), [0]), batch) for name, batch in _batches(record))
    return any(
        batch.rows > batch.parts and shape[0] == batch.rows + batch.rows % batch.parts
        for shape, batch in found
    )


def _other_columns(record: Record, name: str, key: str) -> Failure:
    """The failure of an array that has other columns than it was given, or another's."""
    columns = _leaf(record, name, key).shape[1]
    other = "targets" if key == "inputs" else "inputs"
    as_other = columns == _in(wanted(record), name, other).shape[1]
    place = statements.result(record, "shard_batch")
    return Failure(
        f"`{key}` keeps its {plural(_in(wanted(record), name, key).shape[1], 'column')}",
        f"it has {columns}, for {name}{f', as many as `{other}` has' if as_other else ''}",
        place if as_other else statements.call(record, "shard_batch", "pad"),
        FORM
        if as_other
        else "np.pad takes a pair for each axis: how many to add before, and after.",
    )


def _how_to_split(leaf: Leaf, batch: Batch) -> str:
    """The hint for an array that is not split as it should be, or "" for the check's first one."""
    if leaf.kind != "jax" or len(leaf.devices) != batch.devices:
        return "What does your last line return: one jax.Array, and on which devices?"
    return ALONG_DATA if _parts(leaf) > 1 else ""


def _what_it_is(key: str) -> str:
    return "one number for each row" if key == "mask" else "several numbers for each row"


def _lies(leaf: Leaf, devices: int) -> str:
    """How an array lies on the devices, in words."""
    if leaf.kind != "jax":
        return where(leaf)
    if len(leaf.devices) != devices:
        return f"it lies on {where(leaf)} alone"
    match _parts(leaf):
        case 0:
            return shards(leaf)
        case 1:
            return "every device holds all rows of it"
        case parts:
            return f"it is split into {parts} parts, by {leaf.spec}"


def _by_data(leaf: Leaf, parts: int) -> bool:
    """Whether the spec, where there is one, names "data": another axis may be of that length."""
    return leaf.spec is None or parts == 1 or "'data'" in leaf.spec


def _parts(leaf: Leaf) -> int:
    """Into how many parts the rows are split; 0 where another dimension is split, too."""
    if not leaf.shape or not leaf.shard_shape or not leaf.shard_shape[0]:
        return 0
    whole = leaf.shape[1:] == leaf.shard_shape[1:]
    return leaf.shape[0] // leaf.shard_shape[0] if whole else 0


NONE_MISSING = "-rows % parts is the number of missing rows, and 0 where none is missing."
ALL_KEPT = "A batch that cannot be split evenly gets more rows. None of its own is dropped."


@EXERCISE.check(
    ground="observed",
    after=("batch_is_split",),
    hints=(
        "An axis of a mesh is not always as long as the list jax.devices().",
        NONE_MISSING,
    ),
)
def as_few_rows_as_it_takes(record: Record) -> Result:
    """A batch keeps all its rows, and gets no more added rows than it needs."""
    for name, batch in _batches(record):
        rows, added = batch.rows, batch.full - batch.rows
        for key in ARRAYS:
            leaf = _leaf(record, name, key)
            if leaf.shape[:1] != (batch.full,):
                of = f"{rows} of the batch and {added} added" if added else "those of the batch"
                expected = f"`{key}` has {plural(batch.full, 'row')}: {of}"
                got = leaf.shape[0] if leaf.shape else 0
                lost = f", without {rows - got} of its own" if got < rows else ""
                why = lost or _too_many(got, batch)
                place = _adding(record)
                failure = _failure(record, expected, f"{plural(got, 'row')}{why}", name, place)
                hint = LENGTH if batch.parts < batch.devices else ""
                hint = ALL_KEPT if lost else hint if added else NONE_MISSING
                return replace(failure, hint=hint)
    return None


def _too_many(got: int, batch: Batch) -> str:
    """How a batch came to have so many rows, where that is known."""
    for length in (batch.devices, batch.devices // batch.parts):
        if got == batch.rows + -batch.rows % length:
            return (
                f", which can be split into {plural(length, 'part')}: the mesh has {batch.devices} "
                f'devices, and its axis "data" a length of {batch.parts}'
            )
    if got == batch.full + batch.parts:
        return f", {batch.parts} too many: one more for each part"
    return ""


@EXERCISE.check(
    ground="observed",
    after=("as_few_rows_as_it_takes",),
    hints=("The batch's own rows come first, unchanged; the mask tells them from the added ones.",),
)
def mask_marks_the_own_rows(record: Record) -> Result:
    """The own rows come first, unchanged, as in the caller's arrays; the mask marks only them."""
    for name, batch in _batches(record):
        for key in ARRAYS:
            want = _reference(record, name, key)
            if found := _wrong_rows(key, _leaf(record, name, key), want, batch.rows):
                if key == "mask" and _for_blank_rows(record, name):
                    found = found[0], f"{found[1]}: inputs and targets of that row are 0"
                place = _making(record, key)
                hint = REMEMBERED if name == AGAIN else FORM if "is an array" in found[0] else ""
                if key == "mask" and (repeated := _padded_by_a_mode(record)):
                    place, hint = repeated, OF_A_MODE
                failure = _failure(record, *found, name, place)
                return replace(failure, hint=TIMES_ZERO if "takes out" in found[0] else hint)
        if changed := seen(record).facts[changed_of(name)]:
            expected = "the arrays that `shard_batch` is given are as they were after the call"
            observed = f"`{changed[0]}` has another shape, or other numbers"
            place = calls_of(record, ("resize", "append", "fill")) or definition(
                record, "shard_batch"
            )
            return replace(_failure(record, expected, observed, name, place), hint=THE_CALLERS)
    return None


REMEMBERED = (
    "A batch of the same shape came before, and was right. What does your code keep from one call "
    "to the next?"
)
OF_A_MODE = (
    "With such a mode, np.pad repeats numbers of the array that it gets. Which number does it add "
    "to the mask?"
)
THE_CALLERS = "Inputs and targets are the caller's. Which line writes into them, or resizes them?"
TIMES_ZERO = "What is the error of such a row, and what is 0 times that?"


def _padded_by_a_mode(record: Record) -> list[Culprit]:
    """The only call of np.pad, if it repeats what it gets, and the mask goes through it; or []."""
    file = File(record.source)
    nodes = [*ast.walk(file.tree)]
    pads = [n for n in nodes if isinstance(n, ast.Call) and ast.unparse(n.func).endswith("pad")]
    if len(pads) != 1:
        return []
    loops = (node for node in nodes if isinstance(node, ast.comprehension | ast.For))
    padded = [*pads[0].args, *(loop.iter for loop in loops)]
    names = {n.id for one in padded for n in ast.walk(one) if isinstance(n, ast.Name)}
    words = {n.value for n in ast.walk(pads[0]) if isinstance(n, ast.Constant)}
    return [file.place(pads[0])] if "mask" in names and words & REPEATING else []


REPEATING = {"edge", "wrap", "reflect", "symmetric"}
"""The modes of np.pad that add numbers of the array itself."""


def _wrong_rows(key: str, leaf: Leaf, want: Any, rows: int) -> tuple[str, str] | None:
    """(expected, observed) where an array differs from the reference's `want`.

    Of inputs and targets, only the batch's own `rows` are compared; of the mask, all. Added
    rows may hold any numbers that a mask of 0 takes out.
    """
    got = load(leaf.data) if leaf.data else None
    if got is None or leaf.dtype != str(want.dtype) or got.shape != want.shape:
        expected = f"`{key}` is an array {want.dtype}{list(want.shape)}"
        return expected, f"{leaf.dtype}{list(leaf.shape)}"
    judged = len(want) if key == "mask" else rows
    other = (got != want) & ((got == got) | (want == want))  # NaN stays NaN
    wrong = other.reshape(len(want), -1)[:judged].any(axis=1).nonzero()[0]
    if wrong.size:
        row = int(wrong[0])
        expected, observed = _rows(want[row], got[row])
        reason = _inverted(want, got) if key == "mask" else _in_front(want, got, rows)
        return f"row {row} of `{key}` is {expected}", observed + reason
    if spoilt := _spoilt(got[rows:]):
        return f"the added rows of `{key}` hold numbers that a mask of 0 takes out", spoilt
    return None


def _spoilt(added: Any) -> str:
    """What added rows hold that makes the mean NaN although their mask is 0, or ""."""
    found = added[~(abs(added) < TAKEN_OUT)]
    if not found.size:
        return ""
    value = float(found[0])
    square = ", whose square is inf" if math.isfinite(value) else ""
    factor = "NaN" if math.isnan(value) else "inf"
    return f"{value:.6g}{square}: 0 times {factor} is NaN, and so is the mean"


def _for_blank_rows(record: Record, name: str) -> bool:
    """Whether the mask is wrong for those rows alone that hold nothing but zeros."""
    data = _leaf(record, name, "mask").data
    inputs, mask = (_reference(record, name, key) for key in ("inputs", "mask"))
    got = load(data) if data else None
    if got is None or got.shape != mask.shape:
        return False
    wrong = (got != mask) & (mask == 1)
    return bool(wrong.any() and not inputs[wrong].any())


def _rows(want: Any, got: Any) -> tuple[str, str]:
    """Two rows that differ, in six digits, or in as many as tell them apart."""
    if not want.ndim:
        return figures(want.item(), got.item())
    pairs = zip(want.ravel().tolist(), got.ravel().tolist(), strict=True)
    texts = [(f"{a:.6g}",) * 2 if a == b else figures(a, b) for a, b in pairs]
    expected, observed = zip(*texts, strict=True)
    return f"[{', '.join(expected)}]", f"[{', '.join(observed)}]"


def _in_front(want: Any, got: Any, rows: int) -> str:
    """That the added rows stand in front, if that is all that is wrong; else ""."""
    added = len(want) - rows
    in_front = added and (got[added:] == want[:rows]).all()
    return f": the array begins with {plural(added, 'added row')}" if in_front else ""


def _inverted(want: Any, got: Any) -> str:
    """That a mask has 0 and 1 exchanged, if it has; else ""."""
    exchanged = (got == 1 - want).all()
    return ": it is 0 for each row of the batch, and 1 for an added one" if exchanged else ""


def _reference(record: Record, name: str, key: str) -> Any:
    """What the reference made of the same batch."""
    return next(
        load(x.data) for x in wanted(record).values[name] if x.path == f"['{key}']" and x.data
    )


@EXERCISE.check(
    ground="observed",
    after=("as_few_rows_as_it_takes",),
    hints=(
        "jax.numpy puts its arrays on one device. What does jax.device_put do with one of those?",
        "Add the rows with NumPy, and let a single jax.device_put copy all rows from the host to "
        "their devices.",
    ),
    anchor="read-a-sharding",
)
def never_whole_on_a_device(record: Record) -> Result:
    """The rows go straight from the host to their devices, each array once."""
    return _on_the_way(record) or _copied_more(record)


def _on_the_way(record: Record) -> Failure | None:
    """The failure where rows move between devices, or come back from them."""
    found = [e for name in SPLIT for e in events(seen(record), "d2d", phase=name)]
    if found:
        observed = "all rows went to one device first, and from there to the others"
        return Failure("no copy from device to device", observed, culprits(record, found))
    read = [e for name in SPLIT for e in to_host(seen(record), phase=name)]
    if read:
        reads = plural(sum(event.count for event in read), "read")
        expected = "no array is read back from a device"
        return Failure(expected, f"{reads} by the host", culprits(record, read))
    expected = "the rows go from the host to their devices"
    return through_a_program(record, expected, *SPLIT)


def _copied_more(record: Record) -> Result:
    """The failure where the host copies more, or less, than each device's own parts."""
    for name, batch in _batches(record):
        if whole := _whole(record, name, batch):
            expected = "each device gets its own parts, and no others"
            observed = f"all rows went to each device, or to one of them, for {name}"
            return Failure(expected, observed, culprits(record, whole))
        mine, theirs = (list(events(side(record), "h2d", phase=name)) for side in (seen, wanted))
        total, fewest = (sum(event.count for event in copies) for copies in (mine, theirs))
        nbytes, needed = (_copied(record, name, batch, copies) for copies in (mine, theirs))
        if nbytes > needed:
            expected = (
                f"{needed:,} bytes are copied from the host, for {name}: to each device its own"
            )
            observed = f"{nbytes:,} bytes are copied"
            return Failure(expected, observed, culprits(record, mine), ONCE_EACH)
        lost = _not_copied(record, name, batch, mine) or _held_by_a_program(record, name, batch)
        if lost:
            expected = f"copies of all rows from the host, for {name}"
            made = list(events(seen(record), "compile", phase=name))
            return Failure(expected, lost, culprits(record, made), IN_A_PROGRAM)
        if total > fewest:
            expected = f"{plural(fewest, 'copy')} from the host: each device gets its own parts"
            observed = f"{plural(total, 'copy')}, for {name}"
            each = Counter[int | None]()
            for event in mine:
                each[event.line] += event.count
            more = [event for event in mine if each[event.line] == total - fewest]
            return Failure(expected, observed, culprits(record, more or mine), ONCE_EACH)
    return probe_gap(seen(record), "transfers", "reads")


ONCE_EACH = "Each device needs one part of each array. Which line puts something there once more?"
IN_A_PROGRAM = (
    "A NumPy array that a jitted function reads, without being given it, becomes a constant of its "
    "program: the program is compiled for these rows, and every device holds all of them."
)


def _not_copied(record: Record, name: str, batch: Batch, copies: Sequence[Event]) -> str:
    """That rows came to their devices without a copy, in a program; else ""."""
    if any(event.nbytes is None for event in copies):
        return ""
    shapes = [_leaf(record, name, key).shape for key in ("inputs", "targets")]
    own = sum(4 * min(rows, batch.rows) * columns for rows, columns in shapes)
    own *= batch.devices // batch.parts
    copied = _copied(record, name, batch, copies)
    return f"{copied:,} of {own:,} bytes were copied, and a program made the others" * (
        copied < own
    )


def _held_by_a_program(record: Record, name: str, batch: Batch) -> str:
    """That programs hold numbers of the rows, or more constants than one part has rows; else ""."""
    largest = max(prod(leaf.shape) * 4 for leaf in wanted(record).values[name]) // batch.parts
    if told := int(seen(record).facts[told_of(name)]):
        return f"programs hold {plural(told, 'number')} of the rows on every device"
    held = int(seen(record).facts[constants_of(name)])
    return f"programs hold {held:,} bytes of numbers on every device" * (held > largest)


def _copied(record: Record, name: str, batch: Batch, copies: Sequence[Event]) -> int:
    """The bytes that copies bring to all devices together.

    A log may have the size of the array for each copy of a part, or that of the part.
    """
    theirs = sum(event.nbytes or 0 for event in events(wanted(record), "h2d", phase=name))
    columns = sum(leaf.shape[1] for leaf in wanted(record).values[name] if len(leaf.shape) == 2)
    parts = 1 if theirs < 4 * batch.rows * columns else batch.parts
    in_parts = ("", PARTS)
    sizes = (e.count * (e.nbytes or 0) / (parts if e.detail in in_parts else 1) for e in copies)
    return round(sum(sizes))


def _whole(record: Record, name: str, batch: Batch) -> list[Event]:
    """The copies of all rows to each device, or to one, though a device needs a part of them."""
    largest = max(prod(leaf.shape) * 4 for leaf in wanted(record).values[name]) // batch.parts
    copies = events(seen(record), "h2d", phase=name) if batch.parts > 1 else ()
    whole = (event for event in copies if event.detail not in ("", PARTS))
    return [e for e in whole if e.detail == EVERYWHERE or (e.nbytes or 0) > largest]


DIVISOR = (
    "The batch's own rows are as many as the sum of the mask. How many values does each add to the "
    "sum of the errors?"
)
OF_ADDED = (
    "An added row may hold any numbers, and has an error like any other. Does that error belong in "
    "the mean?"
)
OF_PARTS = (
    "Each of the batch's own rows counts as much as another. Parts have different numbers of them, "
    "so their means do not count alike."
)
SQUARED = (
    "The loss is a mean of (prediction - target) ** 2 over all values of the batch's own rows: an "
    "error is squared before it is added up, and nothing is done to the mean."
)
LOSS_OF = "loss of "
AS_INDEX = (
    "`errors[mask]` takes the rows whose numbers stand in the mask. An error counts, or not, if it "
    "is multiplied by its number of the mask."
)
HINTS = {
    "index": AS_INDEX,
    "stay": OF_ADDED,
    "square": SQUARED,
    "parts": OF_PARTS,
    "the errors": OF_ADDED,
}
"""The hint for a loss that a known mistake explains, by a word of the explanation; the first fits.
Where none does, it is the divisor."""


@EXERCISE.check(
    ground="observed",
    hints=(
        "Only the batch's own rows count, all of them alike. What is added up, and by what is it "
        "divided?",
        OF_ADDED,
        DIVISOR,
    ),
    anchor="a-mean-that-leaves-rows-out",
)
def loss_is_of_the_own_rows(record: Record) -> Result:
    """`mean_loss` is the mean over the rows that the mask marks, whatever the others hold."""
    place = statements.result(record, "mean_loss")
    for name in BATCHES:
        if (got := _got(record, name)) is None:
            leaf = _single(seen(record).values[LOSS_OF + name])
            size = f", shape {leaf.shape}" if leaf.shape else ""
            got_type = f"{typed(leaf.type)}{size}"
            return Failure("`mean_loss` returns a number", got_type, place, FORM)
        want = _loss(record, name)
        if not _near(got, want):
            expected, observed = figures(want, got)
            slip = f": {text}" if (text := _slip(record, name)) else ""
            hint = next((hint for word, hint in HINTS.items() if word in slip), DIVISOR)
            hint = hint if slip else ""
            if "takes out the predictions" in slip:
                place = statements.times(record, "mean_loss", "mask") or place
            return Failure(f"the loss of {name} is {expected}", observed + slip, place, hint)
    return _other_under_jit(record) or _of_other_rows(record) or _of_a_missing_number(record)


def _got(record: Record, name: str) -> float | None:
    """The loss of the batch `name`; None if it is no number."""
    leaf = _single(seen(record).values[LOSS_OF + name])
    number = load(leaf.data) if leaf.kind != "other" and leaf.data else None
    if number is None or number.shape or number.dtype.kind not in "iuf":
        return None
    return float(number.item())


def _slip(record: Record, name: str) -> str:
    """The known mistake that explains the loss of a batch; "" if none does.

    Of several, it is the one that explains the losses of most batches.
    """
    kinds = Counter(_kind(text) for batch in BATCHES for text in _fitting(record, batch))
    return max(_fitting(record, name), key=lambda text: kinds[_kind(text)], default="")


def _fitting(record: Record, name: str) -> list[str]:
    """The known mistakes that give the loss of a batch."""
    got, slips = _got(record, name), wanted(record).facts[f"slips of {name}"]
    return [] if got is None else [text for text, loss in slips.items() if _near(got, loss)]


def _kind(slip: str) -> str:
    """What a mistake is called in all batches: its text without numbers."""
    return re.sub(r"\d+", "", slip)


def _other_under_jit(record: Record) -> Failure | None:
    """The failure where a loss that is right on arrays is another one when it is traced."""
    for name, value in UNDER_JIT.items():
        leaf, want = _single(seen(record).values.get(value, ())), _loss(record, name)
        number = load(leaf.data) if leaf.data else None
        if number is None or number.shape or _near(float(number.item()), want):
            continue
        expected, observed = figures(want, float(number.item()))
        place = definition(record, "mean_loss")
        return Failure(f"under jax.jit, the loss of {name} is {expected}", observed, place, TRACED)
    return None


def _of_other_rows(record: Record) -> Failure | None:
    """The failure where a batch of the same shape has its loss with other own rows."""
    leaf, right = (_single(side(record).values[MARKED]) for side in (seen, wanted))
    number = load(leaf.data) if leaf.data else None
    got = float(number.item()) if number is not None and not number.shape else math.nan
    want = float(load(right.data or b"").item())
    if _near(got, want):
        return None
    expected, observed = figures(want, got)
    place = statements.result(record, "mean_loss")
    expected = f"the loss of a batch of that shape, with other own rows, is {expected}"
    return Failure(expected, observed, place, REMEMBERED)


def _of_a_missing_number(record: Record) -> Failure | None:
    """The failure where an own row that holds a NaN, or an infinite number, does not count."""
    for (key, lost), name in MISSING.items():
        leaf = _single(seen(record).values[name])
        number = load(leaf.data) if leaf.data else None
        got = float(number.item()) if number is not None and not number.shape else 0.0
        if math.isnan(got) or (math.isinf(lost) and math.isinf(got)):
            continue
        what, one = ("NaN", "a NaN") if math.isnan(lost) else ("infinite", "an infinite number")
        expected = f"the loss of a batch is {what} if a number of one of its own rows is {what}"
        observed = f"with {one} in `{key}`, it is {number}: that row does not count"
        return Failure(expected, observed, statements.result(record, "mean_loss"), EACH_COUNTS)
    return None


EACH_COUNTS = (
    "Only the mask says which rows count. A loss without the rows that went wrong hides what went "
    "wrong. Which line leaves them out?"
)


TRACED = (
    "Outside of jit, the same loss is right. What does your code do otherwise when it is traced?"
)


def _near(got: float, want: float) -> bool:
    return abs(got - want) <= 1e-4 * abs(want)


def _loss(record: Record, name: str) -> float:
    """The reference's loss of the batch `name`."""
    (leaf,) = wanted(record).values[LOSS_OF + name]
    return float(load(leaf.data or b"").item())
