"""Drives ex20_from_callback: loads files under many shardings, and notes every read of them.

Drawn for each call: how many devices there are in the mesh, which, and in which order; the names
and sizes of its axes; rows and columns of a block (from 1); the dtype, of 1 to 4 bytes; and all
values. Rows, columns or both are split, by one axis or by two, in the order of the axes or in the
other, with copies or without: each kind comes once to three times, in a drawn order, 11 to 27 calls
in all: the last two are as one of the others and as the large one, but for the values. So a block
cannot be guessed from a device's number, and no count, size, name or dtype is right for all.

The file holds no values. It makes those that are asked for, and keeps which line read which
block. In one more call, of any kind with two blocks or more, the place of which is drawn too, a
block has 0.75 MiB, and what Python and NumPy hold on the host is compared with what was read: a
file that is put together there shows. Once the array of that call is deleted, the blocks that are
still there were kept, and so was what still takes as much memory. The blocks of all calls that are
still there in the end are counted.
"""

import gc
import itertools
import math
import sys
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from grader.checks.ex20_from_callback.facts import LIKE, STILL_HELD, Block, Case, Read
from grader.judging.words import line_on_stack
from grader.probes.observe import Observe

MAX_READS = 20_000
"""How many reads of one file are reported: a record has a limit."""
DTYPES = ("float32", "int32", "int16", "float16", "uint8")
AXES = ("data", "model", "x", "y", "rows", "columns", "batch", "shard")
LARGE = 3 << 18
"""About how many bytes a block has in the call in which the host's memory is counted."""

NOTED = 360
"""About how many bytes it takes to note a read."""

OWN = 1 << 19
"""Bytes that JAX and Python may hold for themselves after a call."""

Spec = tuple[Any, ...]
KINDS: tuple[Callable[[str, str], Spec], ...] = (
    lambda a, b: (a,),
    lambda a, b: (b,),
    lambda a, b: (None, a),
    lambda a, b: (None, b),
    lambda a, b: (a, b),
    lambda a, b: (b, a),
    lambda a, b: ((a, b),),
    lambda a, b: (None, (b, a)),
)
"""How the axes of a mesh split rows and columns. Where one is not named, blocks are copied."""


class Host:
    """Counts what Python and NumPy hold on the host while a file is loaded, from `begin` on."""

    def __init__(self) -> None:
        self.beyond = self._given = self._before = 0
        self._read: list[weakref.ref[Any]] = []

    def begin(self) -> None:
        """Count from here on."""
        tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]

    def look(self) -> None:
        """Note the most that was held since the last read, beyond what had been read by then."""
        if tracemalloc.is_tracing():
            held = tracemalloc.get_traced_memory()[1] - self._before
            self.beyond = max(self.beyond, held - self._given)

    def read(self, make: Callable[[], Any]) -> Any:
        """The array that `make` returns; what else the drive allocates for it does not count."""
        self.look()
        array = make()
        self._read += [weakref.ref(array)] if isinstance(array, np.ndarray) else []
        if tracemalloc.is_tracing():
            self._given += array.nbytes + NOTED
            tracemalloc.reset_peak()
        return array

    def held(self) -> list[Any]:
        """The blocks that something still holds."""
        found = (reference() for reference in self._read)
        return [array for array in found if array is not None]

    def kept(self) -> int:
        """The bytes of the blocks that something still holds, or of what was made of them."""
        gc.collect()
        blocks = sum(array.nbytes for array in self.held())
        held = tracemalloc.get_traced_memory()[0] - self._before - NOTED * len(self._read)
        return int(max(blocks, held - OWN))


class Asked(NamedTuple):
    """What one call of `load` is about."""

    name: str
    sharding: Any
    extent: tuple[int, int]
    dtype: str
    counted: bool = False


def _file(asked: Asked, seed: int, path: str | None, reads: list[Read], host: Host) -> Any:
    """A file that notes its reads in `reads`.

    `path` is the learner's file, whose lines are noted. The seed and the reads are variables of
    this function: no attribute of the object that a learner gets leads to them.
    """
    rows, columns = asked.extent
    down = np.broadcast_to(np.arange(rows)[:, None], asked.extent)
    across = np.broadcast_to(np.arange(columns), asked.extent)

    def read(index: Any, line: int) -> Any:
        tops, lefts = down[index], across[index]
        if tops.size:
            block = Block(
                top=int(tops.min()),
                bottom=int(tops.max()) + 1,
                left=int(lefts.min()),
                right=int(lefts.max()) + 1,
            )
            reads.append(Read(block, tops.size, line))
        return _values(tops, lefts, seed, asked.dtype)

    class File:
        """Reads what is indexed: two slices, two numbers, an ellipsis; whatever NumPy takes."""

        shape = asked.extent
        dtype = np.dtype(asked.dtype)
        ndim = 2
        size = rows * columns
        nbytes = dtype.itemsize * size

        def __len__(self) -> int:
            return rows

        def __getitem__(self, index: Any) -> Any:
            line = line_on_stack(sys._getframe(1), path) or 0
            return host.read(lambda: read(index, line))

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return self[:, :].astype(dtype or asked.dtype)

    return File()


def _values(rows: Any, columns: Any, seed: int, dtype: str) -> Any:
    """Values that no formula of a learner's gives, and that take all the bits of their dtype."""
    mixed = (rows * 7919 + columns * 104729 + seed).astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(13))) * np.uint64(0x9E3779B97F4A7C15)
    bits = (mixed >> np.uint64(32)).astype(np.uint32)
    whole = np.dtype(dtype).kind in "iu"
    return np.asarray(bits.astype(dtype) if whole else (bits / 2**31 - 1).astype(dtype))


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Load a file of a fresh size under each sharding."""
    hosts: list[Host] = []
    for asked in _calls(rng):
        reads: list[Read] = []
        hosts.append(host := Host())
        file = _file(asked, int(rng.integers(1 << 40)), submission.__file__, reads, host)
        kept = 0
        try:
            with observe.phase(asked.name):
                if asked.counted:
                    host.begin()
                array = submission.load(file, asked.sharding)
                host.look()
            same = _lies_as(array, asked.sharding)
            if asked.counted and isinstance(array, jax.Array):
                with observe.unwatched():
                    array = _moved(array)
                    kept = host.kept()
        finally:
            tracemalloc.stop()
        observe.value(asked.name, array)
        del array
        case = Case(
            _blocks(asked),
            np.dtype(asked.dtype).itemsize,
            reads[:MAX_READS],
            same,
            -(-host.beyond >> 16) << 16,  # rounded up: each process holds some KiB more, or less
            asked.counted,
            kept,
        )
        observe.fact(asked.name, msgspec.to_builtins(case))
    gc.collect()
    observe.fact(STILL_HELD, sum(len(host.held()) for host in hosts))


def _lies_as(array: Any, sharding: Any) -> bool:
    return isinstance(array, jax.Array) and array.sharding.is_equivalent_to(sharding, 2)


def _moved(array: Any) -> Any:
    """The array in other memory: devices that are CPUs may use a block where it was read."""
    moved = jax.block_until_ready(_copied(array))
    array.delete()
    return moved


_copied: Callable[[Any], Any] = jax.jit(jnp.copy)


def _calls(rng: Any) -> list[Asked]:
    """Every call, in a drawn order."""
    kinds = [kind for kind in KINDS for _ in range(int(rng.integers(1, 4)))]
    kinds = [kinds[int(index)] for index in rng.permutation(len(kinds))]
    large = int(rng.integers(len(kinds)))
    found: list[Asked] = []
    for number, kind in enumerate(kinds):
        if number == large:
            found.append(_large(rng, len(found) + 1))
        found.append(_asked(rng, kind, len(found) + 1))
    small = [asked for asked in found if not asked.counted]
    again = small[int(rng.integers(len(small)))], *(asked for asked in found if asked.counted)
    return found + [
        asked._replace(name=f"call {number}, {LIKE} {asked.name}", counted=False)
        for number, asked in enumerate(again, len(found) + 1)
    ]


def _asked(rng: Any, kind: Callable[[str, str], Spec], number: int) -> Asked:
    """A small file."""
    blocks = tuple(rng.integers(1, 7, 2))
    return _of_blocks(number, _sharding(rng, kind), blocks, str(rng.choice(DTYPES)))


def _sharding(rng: Any, kind: Callable[[str, str], Spec]) -> Any:
    """A sharding of a kind, over a grid of any devices."""
    everything = np.array(jax.devices())
    sizes = list(_grids(everything.size))
    grid = sizes[int(rng.integers(len(sizes)))]
    devices = rng.permutation(everything)[: grid[0] * grid[1]].reshape(grid)
    one, two = map(str, rng.choice(AXES, 2, replace=False))
    return jax.NamedSharding(jax.sharding.Mesh(devices, (one, two)), jax.P(*kind(one, two)))


def _grids(devices: int) -> Iterator[tuple[int, int]]:
    """The sizes of the two axes of a mesh, both of 2 or more if there are devices enough."""
    least = 2 if devices >= 4 else 1
    for one in range(least, devices + 1):
        yield from ((one, two) for two in range(least, devices // one + 1))


def _large(rng: Any, number: int) -> Asked:
    """A file of large blocks: two of them or more, if there are devices enough."""
    fewest = min(2, jax.device_count())
    drawn = (_sharding(rng, KINDS[int(rng.integers(len(KINDS)))]) for _ in itertools.count())
    sharding = next(one for one in drawn if _pieces(one) >= fewest)
    rows, dtype = int(rng.integers(200, 900)), str(rng.choice(DTYPES))
    columns = LARGE // (rows * np.dtype(dtype).itemsize) + int(rng.integers(9))
    return _of_blocks(number, sharding, (rows, columns), dtype)._replace(counted=True)


def _pieces(sharding: Any) -> int:
    """How many blocks a sharding makes of a file."""
    size = sharding.mesh.size
    return int(size * size // math.prod(sharding.shard_shape((size, size))))


def _of_blocks(number: int, sharding: Any, least: Any, dtype: str) -> Asked:
    """A file whose blocks have at least so many rows and columns.

    Any axis of the mesh, or all devices, could share its rows or its columns, so that a wrong
    sharding raises nothing.
    """
    size = sharding.mesh.size
    unit, pieces = math.lcm(size, jax.device_count()), sharding.shard_shape((size, size))
    rows, columns = (
        unit * math.ceil(size // part * int(each) / unit)
        for part, each in zip(pieces, least, strict=True)
    )
    axes = " x ".join(str(size) for size in sharding.mesh.shape.values())
    return Asked(
        f"call {number}, {sharding.spec} over {axes} devices", sharding, (rows, columns), dtype
    )


def _blocks(asked: Asked) -> list[Block]:
    """The block of each device."""
    rows, columns = asked.extent
    indices = asked.sharding.devices_indices_map(asked.extent).values()
    return [
        Block(*down.indices(rows)[:2], *across.indices(columns)[:2]) for down, across in indices
    ]
