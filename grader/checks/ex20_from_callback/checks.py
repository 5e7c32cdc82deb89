"""Checks of ex20_from_callback: the array and how it lies, what was read, and what was copied."""

from collections.abc import Iterator, Sequence

import msgspec

from grader.checks.ex20_from_callback import EXERCISE
from grader.checks.ex20_from_callback.facts import Case
from grader.judging.checking import Failure, Result
from grader.judging.evidence import (
    culprit,
    culprits,
    definition,
    differing_leaf,
    events,
    probe_gap,
    seen,
    wanted,
)
from grader.judging.record import Leaf, Record
from grader.judging.words import plural


def _cases(record: Record) -> Iterator[tuple[str, Case, Case]]:
    """(name, the submission's case, the reference's): only the latter's blocks are believed.

    The drive gives the call, its value and its fact one name, such as `rows split`.
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
        return f"a {leaves[0].type}" if len(leaves) == 1 else plural(len(leaves), "value")
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
            expected = f"{_blocks(want)}, with {name}"
            return Failure(expected, _came(leaves, want), definition(record, "load"))
    return None


@EXERCISE.check(
    ground="observed",
    after=("lies_as_asked",),
    hints=("Each block has its own rows and columns. The callback gets them as its index.",),
)
def every_value_in_its_place(record: Record) -> Result:
    """The array holds the file's values, each in its place."""
    for name, _, _ in _cases(record):
        if failure := differing_leaf(record, name, rtol=0, atol=0):
            expected = failure.expected.replace(f"`{name}`", "the array")
            observed = f"{failure.observed}, with {name}"
            return Failure(expected, observed, definition(record, "load"))
    return None


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
                big = max(theirs.blocks, key=lambda block: block.nbytes)
                expected = f"each read is within one block, such as {big} of {big.nbytes:,} bytes"
                observed = f"a read of {read.block}, {read.block.nbytes:,} bytes, with {name}"
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
        most = sum(block.nbytes for block in theirs.blocks)
        total = sum(read.block.nbytes for read in mine.reads)
        if total > most:
            more = f"{total - most:,} too many, in {plural(len(mine.reads), 'read')}"
            observed = f"{total:,} bytes, {more}, with {name}"
            lines = [read.line for read in mine.reads if read.line]
            place = [culprit(record, n, lines.count(n)) for n in dict.fromkeys(lines)]
            return Failure(f"at most {most:,} bytes are read", observed, place)
    return None


@EXERCISE.check(
    ground="observed",
    hints=(
        "jax.numpy puts its arrays on the default device. JAX takes NumPy's arrays, too.",
        "Let the callback return what the file gives.",
    ),
    anchor="read-a-sharding",
)
def straight_to_its_device(record: Record) -> Result:
    """Each block goes straight from the host to its device."""
    loads = set(wanted(record).values)
    found = [event for event in events(seen(record), "d2d") if event.phase in loads]
    if found:
        observed = f"{plural(sum(e.count for e in found), 'copy')} from device to device"
        return Failure(
            "blocks go from the host to their devices", observed, culprits(record, found)
        )
    return probe_gap(seen(record), "transfers")
