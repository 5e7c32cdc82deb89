"""Checks of ex20_from_callback: the array and how it lies, what was read, and what was copied."""

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import msgspec

from grader.checks.ex20_from_callback import EXERCISE
from grader.checks.ex20_from_callback.facts import HIDES, LIKE, STILL_HELD, Block, Case
from grader.judging.arrays import FORM, load
from grader.judging.checking import Failure, Result
from grader.judging.differences import ANOTHER_ORDER
from grader.judging.evidence import (
    calls_of,
    culprit,
    culprits,
    definition,
    events,
    hidden_error,
    probe_gap,
    seen,
    through_a_program,
    wanted,
)
from grader.judging.results import differing_leaf, zeros_of_other_sign
from grader.judging.words import EVERYWHERE, PARTS, plural
from grader.records.record import Leaf, Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File

ROOM = 1 << 19
"""Bytes on the host for what is neither a block nor the file: Python's own objects, such as a table
that grows, which was seen to take half of it. It is less than a second block."""


def _cases(record: Record) -> Iterator[tuple[str, Case, Case]]:
    """(name, the submission's case, the reference's): only the latter's blocks are believed.

    The drive gives the call, its value and its fact one name.
    """
    for name in wanted(record).values:
        mine, theirs = seen(record).facts[name], wanted(record).facts[name]
        yield name, msgspec.convert(mine, Case), msgspec.convert(theirs, Case)


def _blocks(leaf: Leaf) -> str:
    """An array and its blocks, in words."""
    devices = plural(len(leaf.devices), "device")
    return f"an array of shape {leaf.shape}, in blocks of {leaf.shard_shape} on {devices}"


def _came(leaves: Sequence[Leaf], want: Leaf) -> str:
    """What `load` returned, where it is not what was asked for."""
    if len(leaves) != 1 or leaves[0].kind != "jax":
        one = f"a {leaves[0].type}"
        return one if len(leaves) == 1 else f"{plural(len(leaves), 'value')}, not one array"
    same = _blocks(leaves[0]) == _blocks(want)
    return _blocks(leaves[0]) + (", but each on another device" if same else "")


@EXERCISE.check(
    ground="observed",
    hints=("Give JAX `sharding` itself, not its mesh or its spec.",),
    anchor="read-a-sharding",
)
def lies_as_asked(record: Record) -> Result:
    """`load` returns one array that lies as the sharding says."""
    for name, mine, _ in _cases(record):
        leaves, want = seen(record).values[name], wanted(record).values[name][0]
        shapes = [leaf.shape for leaf in leaves if leaf.kind == "jax"]
        if not (mine.as_asked and shapes == [want.shape]):
            expected = f"{_blocks(want)}, in {name}"
            hint = FORM if shapes != [want.shape] else ""
            return Failure(expected, _came(leaves, want), statements.result(record, "load"), hint)
    return None


PAIRED = (
    "The blocks are those of the file, and lie on each other's devices. How does your code know "
    "which device a block belongs to? A mesh may list devices in any order."
)


@EXERCISE.check(
    ground="observed",
    after=("lies_as_asked",),
    hints=("Each block has its own rows and columns. The callback gets them as its index.",),
)
def every_value_in_its_place(record: Record) -> Result:
    """The array holds the file's values, each in its place."""
    for name, mine, theirs in _cases(record):
        failure = differing_leaf(record, name, rtol=0, atol=0)
        if failure := failure or zeros_of_other_sign(record, name):
            found = replace(failure, expected=failure.expected.replace(f"`{name}`", "the array"))
            return _of_a_value(record, found, name, _unread(mine, theirs))
    if seen(record).facts[HIDES]:
        observed = "`load` returned, though no block of its file could be read"
        found = hidden_error(record, "load", "a read", observed)
        return replace(found, culprits=_catching(record) or found.culprits, hint=NOT_READ)
    return None


def _catching(record: Record) -> list[Culprit]:
    """Where `load` catches an error."""
    file = File(record.source)
    top = file.doing("load")
    nodes = ast.walk(top) if top else ()
    return [file.place(node) for node in nodes if isinstance(node, ast.ExceptHandler)]


NOT_READ = (
    "Made-up values look like those of the file. Which line catches the error, and what does the "
    "caller learn of it?"
)


def _of_a_value(record: Record, failure: Failure, name: str, unread: Block | None) -> Failure:
    """The failure with whose values are there, and with what made them."""
    found = _of_other_devices(seen(record).values[name][0], wanted(record).values[name][0])
    device, others = found[0] if found else (0, [])
    whose = f"device {device} holds the block of device {others[0]}" if others else ""
    observed = f"{failure.observed}, in {name}{whose and f'; {whose}'}"
    place: Sequence[Culprit] = ()
    hint = failure.hint
    if "dtype" in failure.expected:
        place = statements.matching(record, "load", _CAST)
        if made := statements.matching(record, "load", _NO_DTYPE):
            place, hint = made, OF_ITS_OWN
    elif whose and unread:
        observed, hint = f"{observed}; nobody has read block {unread}", TOLD_APART
    elif whose and (ANOTHER_ORDER in failure.observed or all(theirs for _, theirs in found)):
        place, hint = calls_of(record, ("sorted", "argsort", "divmod", "sort"))[:1], PAIRED
    elif not any(theirs for _, theirs in found):
        hint = AS_READ
    if LIKE in name:
        hint = REMEMBERED
    place = place or statements.callback(record, "load") or statements.result(record, "load")
    return Failure(failure.expected, observed, place, hint)


AS_READ = (
    "The file has no such block. Which line computes with what was read, or reads other rows and "
    "columns than those of the index? JAX takes a block as it was read."
)
TOLD_APART = (
    "A block that was never read can only be another one. By what does your code tell blocks "
    "apart: by their rows and their columns?"
)


def _unread(mine: Case, theirs: Case) -> Block | None:
    """A block of which no value was read, if there is one."""
    read = [one.block for one in mine.reads]
    unread = (block for block in theirs.blocks if not any(block.within(one) for one in read))
    return next(unread, None)


REMEMBERED = (
    "A file with this shape was loaded before, rightly. What does your code keep from one call to "
    "the next?"
)
OF_ITS_OWN = "NumPy makes float64 unless it is told otherwise. Which dtype has the file?"
_NO_DTYPE = r"(np|numpy)\.(empty|zeros|ones|full)\((?!.*dtype)"
_CAST = r".*(\.astype\([^()]*|\bdtype=[\w.]+)\)$"


def _of_other_devices(leaf: Leaf, want: Leaf) -> list[tuple[int, list[int]]]:
    """The devices that hold another block than they should, each with those to which it belongs."""
    import numpy as np  # here: the command line starts without it

    try:
        mine, right = load(leaf.data or b""), load(want.data or b"")
    except ValueError:
        return []
    if mine.shape != right.shape:
        return []
    blocks = {
        device: tuple(slice(*extent) for extent in part) for device, part in want.parts.items()
    }
    same = partial(np.array_equal, equal_nan=True)
    return [
        (device, [o for o, at in blocks.items() if same(mine[block], right[at])])
        for device, block in blocks.items()
        if not same(mine[block], right[block])
    ]


@EXERCISE.check(
    ground="observed",
    after=("lies_as_asked",),
    hints=(
        "The named line reads more than one device holds. Which part of it does the device need?",
        "Index the file by rows and by columns at once: what NumPy cuts off later has been read "
        "already.",
    ),
)
def reads_one_block_at_a_time(record: Record) -> Result:
    """No read goes beyond the block of one device."""
    for name, mine, theirs in _cases(record):
        for read in mine.reads:
            if not any(read.block.within(block) for block in theirs.blocks):
                big = max(theirs.blocks, key=lambda block: block.size)
                expected = f"each read is within one block, such as {big} of {big.size:,} values"
                observed = f"a read of {read.block}, {read.size:,} values, in {name}"
                place = [culprit(record, read.line)] if read.line else definition(record, "load")
                return Failure(expected, observed, place)
    return None


@EXERCISE.check(
    ground="observed",
    after=("reads_one_block_at_a_time",),
    hints=("Every read counts, even one for a type or a shape: the file has `dtype` and `shape`.",),
)
def reads_no_more_than_it_needs(record: Record) -> Result:
    """The reads add up to no more than the blocks of all devices."""
    for name, mine, theirs in _cases(record):
        most = sum(block.size for block in theirs.blocks)
        total = sum(read.size for read in mine.reads)
        if total > most:
            more = f"{total - most:,} too many, in {plural(len(mine.reads), 'read')}"
            observed = f"{total:,} values, {more}, in {name}"
            lines = [read.line for read in mine.reads if read.line]
            place = [culprit(record, n, lines.count(n)) for n in dict.fromkeys(lines)]
            return Failure(f"at most {most:,} values are read", observed, place)
    return None


KEPT = (
    "Blocks that stay on the host fill its memory, as the file would. Which list, dict or cache "
    "still holds them when `load` has returned?"
)


@EXERCISE.check(
    ground="observed",
    after=("reads_no_more_than_it_needs", "every_value_in_its_place"),
    hints=(
        "Blocks that were read one by one, and then put together, are the whole file again.",
        "Give each block to JAX as it was read. The array on the devices is the whole.",
    ),
)
def never_whole_on_the_host(record: Record) -> Result:
    """The host joins no blocks of the file in one array, and keeps none."""
    for name, mine, theirs in _cases(record):
        if not theirs.counted:
            continue
        one = max(block.size for block in theirs.blocks) * theirs.item
        most = one + ROOM
        if mine.kept > one:
            expected = f"at most one block, {one:,} bytes, is kept on the host after `load`"
            kept = float(f"{mine.kept:.3g}")  # objects of Python's come and go beside them
            observed = f"about {kept:,.0f} bytes of blocks are kept, in {name}"
            return Failure(expected, observed, statements.piled(record, "load"), KEPT)
        if mine.beyond > most:
            expected = f"the host holds what was read, and at most {most:,} bytes besides"
            return _joined(
                record, expected, f"{mine.beyond:,} bytes besides at one time, in {name}"
            )
        if mine.largest > most:
            expected = f"no array on the host is larger than a block of {one:,} bytes"
            return _joined(record, expected, f"one has {mine.largest:,} bytes, in {name}")
    if (held := seen(record).facts[STILL_HELD]) > wanted(record).facts[STILL_HELD]:
        expected = "no block of a file is kept on the host when its array is gone"
        observed = f"{plural(held, 'block')} of all the files are still kept in the end"
        return Failure(expected, observed, statements.piled(record, "load"), KEPT)
    return None


def _joined(record: Record, expected: str, observed: str) -> Failure:
    """The failure where blocks are put together."""
    joined, made = statements.call(record, "load", *_JOINS), statements.result(record, "load")
    return Failure(expected, observed, made if joined == definition(record, "load") else joined)


_JOINS = ("empty", "zeros", "empty_like", "zeros_like", "concatenate", "block", "vstack", "hstack")
"""Functions of NumPy that make one array to hold several blocks."""


@EXERCISE.check(
    ground="observed",
    hints=(
        "A jax.Array is on a device already, and jax.numpy puts its arrays on the default one. JAX "
        "takes NumPy's arrays, too.",
        "Give JAX for each device what the file gives.",
    ),
    anchor="read-a-sharding",
)
def straight_to_its_device(record: Record) -> Result:
    """Each block goes straight from the host to its device; no program moves it."""
    for name, _, theirs in _cases(record):
        found = [event for event in events(seen(record), "d2d") if event.phase == name]
        if found:
            copies = sum(event.count for event in found)
            observed = f"{plural(copies, 'copy')} from device to device, in {name}"
            hint = ""
            if copies == len(theirs.blocks) - len({*theirs.blocks}):
                observed += ": one for each device whose block another one got before it"
                hint = AGAIN
            expected = "blocks go from the host to their devices"
            return Failure(expected, observed, culprits(record, found), hint)
        found = [event for event in events(seen(record), "h2d") if event.phase == name]
        copies = sum(event.count for event in found)
        if copies > len(theirs.blocks):
            expected = f"{plural(len(theirs.blocks), 'copy')}, one for each device, in {name}"
            observed = f"{plural(copies, 'copy')} from the host to devices"
            return Failure(expected, observed, culprits(record, found), TO_EACH)
        to_one = Counter[str]()
        for event in found:
            to_one[event.detail] += event.count
        twice = [e for e in found if e.detail not in SEVERAL and to_one[e.detail] > 1]
        if twice:
            expected = f"1 copy to each device, in {name}"
            observed = f"{to_one[twice[0].detail]} copies to device {twice[0].detail}"
            return Failure(expected, observed, culprits(record, twice), TO_EACH)
        if failure := through_a_program(record, "blocks go from the host to their devices", name):
            return failure
        programs = list(events(seen(record), "compile", phase=name))
        if programs:
            observed = f"it compiled {plural(len(programs), 'program')}, in {name}"
            expected = "no program runs: the blocks are on their devices"
            return Failure(expected, observed, culprits(record, programs), NO_PROGRAM)
    return probe_gap(seen(record), "transfers", "compiles")


AGAIN = (
    "What `device_put` returned is on a device already. From what does this line send the block to "
    "the next device: from that, or from the NumPy array that was read?"
)
TO_EACH = "Each device needs its own block. Which devices do the blocks go to?"
SEVERAL = ("", EVERYWHERE, PARTS)
"""What is said of a copy that goes to several devices, or where that is not known."""
NO_PROGRAM = (
    "A program whose result lies as asked may move every block to get there. What needs to be "
    "computed, once each block is on its own device?"
)
