"""Drives ex20_from_callback: loads a file under four shardings, and notes every read of it.

The file holds no values. It makes those that are asked for, and keeps which line read which
block. Sizes and values are drawn for each sharding, and the devices of the meshes are in a
drawn order, so that a block cannot be guessed from a device's number.

The shardings split rows, columns, both, or rows in copies: a block may have part of the rows,
part of the columns, or the same rows as another device's. One of the files is int32, so that no
dtype is right for all.
"""

import sys
from types import ModuleType
from typing import Any

import jax
import msgspec
import numpy as np

from grader.checks.ex20_from_callback.facts import ITEM, Block, Case, Read
from grader.judging.words import line_on_stack
from grader.probes.observe import Observe

MAX_READS = 20_000
"""How many reads of one file are reported: a record has a limit."""


def _file(
    extent: tuple[int, int], kind: str, seed: int, path: str | None, reads: list[Read]
) -> Any:
    """A file of `extent` rows and columns, of dtype `kind`, that notes its reads in `reads`.

    `path` is the learner's file, whose lines are noted. The seed and the reads are variables of
    this function: no attribute of the object that a learner gets leads to them.
    """

    def values() -> Any:
        rows, columns = np.ogrid[: extent[0], : extent[1]]
        return ((rows * 7919 + columns * 104729 + seed) % 1009 / 8).astype(kind)

    def block_of(index: Any) -> Block | None:
        rows, columns = (np.arange(n) for n in extent)
        down = np.broadcast_to(rows[:, None], extent)[index]
        across = np.broadcast_to(columns, extent)[index]
        if down.size == 0:
            return None
        return Block(
            top=int(down.min()),
            bottom=int(down.max()) + 1,
            left=int(across.min()),
            right=int(across.max()) + 1,
        )

    class File:
        """Reads what is indexed: two slices, two numbers, an ellipsis; whatever NumPy takes."""

        shape = extent
        dtype = np.dtype(kind)
        ndim = 2
        size = extent[0] * extent[1]
        nbytes = ITEM * size

        def __len__(self) -> int:
            return extent[0]

        def __getitem__(self, index: Any) -> Any:
            if block := block_of(index):
                reads.append(Read(block, line_on_stack(sys._getframe(1), path)))
            return values()[index].copy()

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return self[:, :].astype(dtype or kind)

    return File()


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Load a file of a fresh size under each sharding."""
    found = jax.devices()
    devices = rng.permutation(np.array(found[: len(found) // 2 * 2 or 1]))
    line = jax.sharding.Mesh(devices, ("data",))
    grid = jax.sharding.Mesh(devices.reshape(-1, min(2, devices.size)), ("data", "model"))
    shardings = {
        "rows split": jax.NamedSharding(line, jax.P("data")),
        "columns split": jax.NamedSharding(line, jax.P(None, "data")),
        "rows and columns split": jax.NamedSharding(grid, jax.P("data", "model")),
        "rows split and copied": jax.NamedSharding(grid, jax.P("model")),
    }
    for name, sharding in shardings.items():
        rows, columns = (int(devices.size * n) for n in rng.integers(1, 4, 2))
        reads: list[Read] = []
        kind = "int32" if name == "columns split" else "float32"
        file = _file((rows, columns), kind, int(rng.integers(1 << 20)), submission.__file__, reads)
        with observe.phase(name):
            array = submission.load(file, sharding)
        observe.value(name, array)
        same = isinstance(array, jax.Array) and array.sharding.is_equivalent_to(sharding, 2)
        case = Case(_blocks(sharding, rows, columns), reads[:MAX_READS], same)
        observe.fact(name, msgspec.to_builtins(case))


def _blocks(sharding: Any, rows: int, columns: int) -> list[Block]:
    """The block of each device."""
    indices = sharding.devices_indices_map((rows, columns)).values()
    return [
        Block(*down.indices(rows)[:2], *across.indices(columns)[:2]) for down, across in indices
    ]
