"""ex20_from_callback: a sharded array of a file that notes what is read of it.

The file is `_File`, handed to the learner by `drive()`: it holds no values but makes those
that are asked for, and keeps who read which block. Judged for shardings over rows, columns
and both, on meshes whose devices are in no particular order.
"""

import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import msgspec

from grader.checking import Exercise, Failure, Observe, Result
from grader.evidence import (
    culprit,
    culprits,
    definition,
    differing_leaf,
    events,
    probe_gap,
    seen,
    wanted,
)
from grader.record import Leaf, Record
from grader.words import line_on_stack, plural

ITEM = 4
"""Bytes of a float32, and of an int32."""
MAX_READS = 20_000


class Block(msgspec.Struct, frozen=True, order=True):
    """Rows and columns, each from the first to before the last."""

    top: int
    bottom: int
    left: int
    right: int

    def within(self, other: "Block") -> bool:
        """Whether it reaches nowhere out of the other."""
        rows = other.top <= self.top and self.bottom <= other.bottom
        return rows and other.left <= self.left and self.right <= other.right

    @property
    def nbytes(self) -> int:
        """Bytes of its values."""
        return ITEM * max(self.bottom - self.top, 0) * max(self.right - self.left, 0)

    def __str__(self) -> str:
        return f"[{self.top}:{self.bottom}, {self.left}:{self.right}]"


class Read(msgspec.Struct):
    """One read of the file, and the learner's line that made it."""

    block: Block
    line: int | None = None


class Case(msgspec.Struct):
    """One call of `load`: the block of each device, and what was read."""

    blocks: list[Block]
    reads: list[Read] = []
    asked_for: bool = False
    """Whether what came has the sharding that was asked for."""


def _file(shape: tuple[int, int], kind: str, seed: int, path: str | None, reads: list[Read]) -> Any:
    """A file of values of dtype `kind` that appends every read of it to `reads`."""
    import numpy as np

    def values(block: Block) -> Any:
        rows, columns = np.ogrid[block.top : block.bottom, block.left : block.right]
        return ((rows * 7919 + columns * 104729 + seed) % 1009 / 8).astype(kind)

    class File:
        """Reads what is indexed: two slices, two numbers, an ellipsis; whatever NumPy takes."""

        dtype = np.dtype(kind)
        ndim = 2
        size = shape[0] * shape[1]
        nbytes = ITEM * size

        def __len__(self) -> int:
            return shape[0]

        def __getitem__(self, index: Any) -> Any:
            rows, columns = (np.arange(n) for n in shape)
            grid = np.broadcast_to(rows[:, None], shape)[index]
            across = np.broadcast_to(columns, shape)[index]
            if grid.size == 0:
                return np.zeros(grid.shape, kind)
            block = Block(*map(int, (grid.min(), grid.max() + 1, across.min(), across.max() + 1)))
            reads.append(Read(block, line_on_stack(sys._getframe(1), path)))
            return values(Block(0, shape[0], 0, shape[1]))[index].copy()

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return self[:, :].astype(dtype or kind)

    File.shape = shape  # type: ignore[attr-defined]  # a class body does not see its own name
    return File()


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Load files of fresh sizes under several shardings."""
    import jax
    import numpy as np

    found = jax.devices()
    devices = rng.permutation(np.array(found[: len(found) // 2 * 2 or 1]))
    line = jax.sharding.Mesh(devices, ("data",))
    grid = jax.sharding.Mesh(devices.reshape(-1, min(2, devices.size)), ("data", "model"))
    cases = {
        "rows": (line, jax.P("data")),
        "columns": (line, jax.P(None, "data")),
        "rows and columns": (grid, jax.P("data", "model")),
        "rows, in copies": (grid, jax.P("model")),
    }
    for name, (mesh, spec) in cases.items():
        rows, columns = (int(devices.size * n) for n in rng.integers(1, 4, 2))
        shape = (rows, columns)
        sharding, reads = jax.NamedSharding(mesh, spec), list[Read]()
        kind = "int32" if name == "columns" else "float32"
        file = _file(shape, kind, int(rng.integers(1 << 20)), submission.__file__, reads)
        with observe.phase(name):
            array = submission.load(file, sharding)
        observe.value(name, array)
        same = isinstance(array, jax.Array) and array.sharding.is_equivalent_to(sharding, 2)
        indices = sharding.devices_indices_map(shape).values()
        blocks = [Block(*r.indices(shape[0])[:2], *c.indices(shape[1])[:2]) for r, c in indices]
        observe.fact(name, msgspec.to_builtins(Case(blocks, reads[:MAX_READS], same)))


EXERCISE = Exercise(
    title="An array, read piece by piece",
    lesson="lessons/12-meshes-and-shardings",
    anchor="read-only-your-block",
    edits=("load",),
    drive=drive,
    devices=8,
    fewest_gpus=4,
    hints=(
        "Who knows which rows and columns a device is to hold? Not its number: the sharding.",
        "JAX can call you back for each block, with the two slices to read.",
        "jax.make_array_from_callback(shape, sharding, callback): the callback gets the block's "
        "index, and returns its values.",
    ),
)


def _cases(record: Record) -> Iterator[tuple[str, Case, Case]]:
    """(name, the submission's case, the reference's): only the latter's blocks are believed."""
    for name in wanted(record).values:
        mine, theirs = (seen(record).facts[name], wanted(record).facts[name])
        yield name, msgspec.convert(mine, Case), msgspec.convert(theirs, Case)


def _split(name: str) -> str:
    """`with rows split, in copies`."""
    what, comma, more = name.partition(",")
    return f"with {what} split{comma}{more}"


def _blocks(leaf: Leaf) -> str:
    """An array and its blocks, in words."""
    devices = plural(len(leaf.devices), "device")
    return f"an array {leaf.shape} in blocks of {leaf.shard_shape} on {devices}"


def _came(leaves: Sequence[Leaf], want: Leaf) -> str:
    """What `load` returned, where it is not what was asked for."""
    if len(leaves) != 1 or leaves[0].kind != "jax":
        return f"a {leaves[0].type}" if len(leaves) == 1 else plural(len(leaves), "value")
    same = _blocks(leaves[0]) == _blocks(want)
    return _blocks(leaves[0]) + (", but each on another device" if same else "")


@EXERCISE.check(
    ground="observed",
    hints=("`sharding` itself is what JAX wants to be told: not a mesh, not a spec.",),
    anchor="read-a-sharding",
)
def lies_as_asked(record: Record) -> Result:
    """`load` returns one array that lies as the sharding says."""
    for name, mine, _ in _cases(record):
        leaves, want = seen(record).values[name], wanted(record).values[name][0]
        shapes = [leaf.shape for leaf in leaves if leaf.kind == "jax"]
        if not (mine.asked_for and shapes == [want.shape]):
            expected = f"{_blocks(want)}, {_split(name)}"
            return Failure(expected, _came(leaves, want), definition(record, "load"))
    return None


@EXERCISE.check(
    ground="observed",
    after=("lies_as_asked",),
    hints=("Each block has its own rows and columns: the index that the callback gets.",),
)
def every_value_in_its_place(record: Record) -> Result:
    """The array holds the file's values, each in its place."""
    for name, _, _ in _cases(record):
        if failure := differing_leaf(record, name, rtol=0, atol=0):
            expected = failure.expected.replace(f"`{name}`", "the array")
            observed = f"{failure.observed}, {_split(name)}"
            return Failure(expected, observed, definition(record, "load"))
    return None


@EXERCISE.check(
    ground="observed",
    after=("lies_as_asked",),
    hints=(
        "The line that is named reads more than a device is to hold. What does it need of it?",
        "Give the whole index to the file, rows and columns: what is cut off in NumPy has been "
        "read already.",
    ),
)
def reads_one_block_at_a_time(record: Record) -> Result:
    """No read goes beyond the block of one device."""
    for name, mine, theirs in _cases(record):
        for read in mine.reads:
            if not any(read.block.within(block) for block in theirs.blocks):
                big = max(theirs.blocks, key=lambda block: block.nbytes)
                expected = f"reads within a block, such as {big} of {big.nbytes:,} bytes"
                observed = f"a read of {read.block}, {read.block.nbytes:,} bytes, {_split(name)}"
                place = [culprit(record, read.line)] if read.line else definition(record, "load")
                return Failure(expected, observed, place)
    return None


@EXERCISE.check(
    ground="observed",
    after=("reads_one_block_at_a_time",),
    hints=("Every read costs, also one for a type or a shape: the file has `dtype` and `shape`.",),
)
def reads_no_more_than_it_needs(record: Record) -> Result:
    """A device's block is read once, and no byte besides."""
    for name, mine, theirs in _cases(record):
        most = sum(block.nbytes for block in theirs.blocks)
        total = sum(read.block.nbytes for read in mine.reads)
        if total > most:
            more = f"{total - most:,} too many, in {plural(len(mine.reads), 'read')}"
            observed = f"{total:,} bytes, {more}, {_split(name)}"
            lines = [read.line for read in mine.reads if read.line]
            place = [culprit(record, n, lines.count(n)) for n in dict.fromkeys(lines)]
            return Failure(f"at most {most:,} bytes are read", observed, place)
    return None


@EXERCISE.check(
    ground="observed",
    hints=(
        "jax.numpy makes its arrays on the default device. JAX takes NumPy's as well.",
        "Return from the callback what the file gives.",
    ),
    anchor="read-a-sharding",
)
def straight_to_its_device(record: Record) -> Result:
    """Each block goes straight from the host to its device."""
    found = [e for name, *_ in _cases(record) for e in events(seen(record), "d2d", phase=name)]
    if found:
        observed = f"{plural(sum(e.count for e in found), 'copy')} from device to device"
        return Failure(
            "blocks go from the host to their devices", observed, culprits(record, found)
        )
    return probe_gap(seen(record), "transfers")
