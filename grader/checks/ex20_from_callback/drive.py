"""Drives ex20_from_callback: loads files under many shardings, and notes every read of them.

Drawn for each call: how many devices there are in the mesh, which, and in which order; the names
and sizes of its axes, of which there are two or three, or one if no other splits the file; rows and
columns of a block (from 1); the dtype, of 1 to 4 bytes; and all values. Rows, columns or both are
split, by one axis or by two, in the order of the axes or in the other, with copies or without; once
they are split by three; or none is split, and each device gets the whole. Each kind comes once to
three times, in a drawn order, 15 to 33 calls in all: two are over two and three devices, and the
last is as one of the others, but for the values. So a block cannot be guessed from a device's
number, and no count, size, name or dtype is right for all. One file at least holds floating-point
values. One of these in eight is NaN, some are infinite, and some -0.0; the others are of any
magnitude. Where the file names numbers, there are more calls than each of them that is below
MOST_CALLS, one file is longer, up to MOST_LENGTH, and the large blocks are larger, up to MOST_LARGE
bytes, and longer.

The file holds no values. It makes those that are asked for, and keeps which line read which block.
What it gives lies column by column in some of the calls, and is read-only in some. In the end comes
a file of which every read fails. In two calls, one after the other, of any kind with three blocks
or more, and in one of a kind with two blocks, the places of which are drawn too, a block has 0.75
MiB, and what Python and NumPy hold on the host is compared with what was read: a file that is put
together there shows. Once the array of such a call is deleted, the blocks that are still there were
kept, and so were copies of them, if calls one after the other leave more memory in use. The blocks
of all calls that are still there in the end are counted.
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

from grader.checks.ex20_from_callback.facts import HIDES, LIKE, STILL_HELD, Block, Case, Read
from grader.judging.words import line_on_stack
from grader.probes import alive
from grader.probes.observe import Observe
from grader.stages.drawn import beside, beyond
from grader.stages.failing import Failed, returns

MAX_READS = 20_000
"""How many reads of one file are reported: a record has a limit."""
DTYPES = ("float32", "int32", "uint32", "int16", "uint16", "float16", "int8", "uint8", "bool")
FLOATS = ("float32", "float16")
AXES = ("data", "model", "x", "y", "rows", "columns", "batch", "shard")
LARGE = 3 << 18
"""About how many bytes a block has in the call in which the host's memory is counted."""

MOST_CALLS, MOST_LENGTH, MOST_LARGE = 60, 1 << 16, 3 << 20
"""Up to where calls, rows or columns, and blocks reach the numbers that the file names."""

LACKING = 8
"""Of so many floating-point values one is no number, as a missing one in a file is."""
ENDLESS = 64
"""Of so many floating-point values one is infinite, in one direction or the other, and one -0.0."""

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
    lambda a, b: (),
)
"""How the axes of a mesh split rows and columns. Where one is not named, blocks are copied."""
BY_ONE_AXIS, FEW = 4, (2, 3)
"""So many of them, the first, name one axis. How many devices the mesh has in a call each."""
BY_TWO = KINDS[BY_ONE_AXIS:-1]
"""Those that name two. Of one call, a third axis is named, too."""


class Host:
    """Counts what Python and NumPy hold on the host while a file is loaded, from `begin` on."""

    def __init__(self) -> None:
        self.beyond = self.largest = self._given = self._before = self._left = self._seen = 0
        self._read: list[weakref.ref[Any]] = []

    def begin(self, left: int) -> None:
        """Count from here on. So many bytes the call before has `left`, which was counted, too."""
        tracemalloc.start()
        tracemalloc.reset_peak()
        self._left, self._before = left, tracemalloc.get_traced_memory()[0]

    def look(self) -> None:
        """Note the most that was held since the last read, beyond what had been read by then."""
        if tracemalloc.is_tracing():
            held = tracemalloc.get_traced_memory()[1] - self._before
            self.beyond = max(self.beyond, held - self._given)
            self._look_for_the_largest()

    def _look_for_the_largest(self) -> None:
        """Note the largest piece of memory, where the host holds more than it did so far.

        To ask for all pieces takes a while, so this is done at most once for each half of a block.
        """
        held = tracemalloc.get_traced_memory()[0] - self._before
        if held > self._seen + LARGE // 2:
            self._seen = held
            pieces = (trace.size for trace in tracemalloc.take_snapshot().traces)
            self.largest = max(self.largest, *pieces)

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

    def left(self) -> int:
        """The bytes that were allocated in the calls that are counted, and are held still."""
        jax.block_until_ready(jax.device_put(0))  # JAX lets go of deleted arrays when it is called
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - self._before - NOTED * len(self._read)
        return self._left + held

    def kept(self) -> int:
        """The bytes of the blocks that something still holds, or of what was made of them."""
        self.left()
        return int(max(alive.held(self._read), self.left() - OWN))


class Unreadable(Host):
    """Reads nothing: each read of its file fails."""

    def read(self, make: Callable[[], Any]) -> Any:
        raise Failed


class Asked(NamedTuple):
    """What one call of `load` is about."""

    name: str
    sharding: Any
    extent: tuple[int, int]
    dtype: str
    counted: bool = False
    by_columns: bool = False
    """Whether a block lies column by column in memory, as that of a transposed file does."""
    read_only: bool = False
    """Whether nobody can write into a block, as into one of a mapped file."""


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
        values = _values(tops, lefts, seed, asked.dtype)
        values = np.asarray(values, order="F" if asked.by_columns else "C")
        values.flags.writeable = not asked.read_only
        return values

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
    """Values that no formula of a learner's gives, and that take all the bits of their dtype.

    Some floating-point values are NaN, some infinite, some -0.0, and the others of any magnitude.
    """
    mixed = (rows * 7919 + columns * 104729 + seed).astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(13))) * np.uint64(0x9E3779B97F4A7C15)
    bits = (mixed >> np.uint64(32)).astype(np.uint32)
    if dtype == "bool":
        return np.asarray(bits % 2 == 1)
    if np.dtype(dtype).kind in "iu":
        return np.asarray(bits.astype(dtype))
    exponents = (bits >> np.uint32(8)) % np.uint32(np.finfo(dtype).maxexp)
    numbers = np.ldexp(bits / 2**31 - 1, exponents.astype(int))
    numbers = np.where(bits % LACKING, numbers, np.nan)
    numbers = np.where(bits % ENDLESS == 1, np.copysign(np.inf, numbers), numbers)
    numbers = np.where(bits % ENDLESS == 2, -0.0, numbers)
    return np.asarray(numbers.astype(dtype))


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Load a file of a fresh size under each sharding."""
    hosts, found = list[Host](), list[tuple[str, Any]]()
    left = 0
    for asked in _calls(rng):
        reads: list[Read] = []
        hosts.append(host := Host())
        file = _file(asked, int(rng.integers(1 << 40)), submission.__file__, reads, host)
        kept = 0
        if not asked.counted:
            tracemalloc.stop()
            left = 0
        try:
            with observe.phase(asked.name):
                if asked.counted:
                    host.begin(left)
                array = submission.load(file, asked.sharding)
                host.look()
            same = _lies_as(array, asked.sharding)
            if asked.counted and isinstance(array, jax.Array):
                with observe.unwatched():
                    array = _moved(array)
                    kept, left = host.kept(), host.left()
        except BaseException:
            tracemalloc.stop()
            raise
        found.append((asked.name, array))
        del array
        if not asked.counted:  # the values of what is counted would take memory between the calls
            for name, loaded in found:
                observe.value(name, loaded)
            found, loaded = [], None
        case = Case(
            _blocks(asked),
            np.dtype(asked.dtype).itemsize,
            reads[:MAX_READS],
            same,
            _rounded(host.beyond),
            asked.counted,
            kept,
            _rounded(host.largest),
        )
        observe.fact(asked.name, msgspec.to_builtins(case))
    with observe.unwatched():
        jax.block_until_ready(jax.device_put(0))  # as in `Host.left`
    gc.collect()
    observe.fact(STILL_HELD, sum(len(host.held()) for host in hosts))
    with observe.unwatched():
        broken = _file(asked, 0, None, [], Unreadable())
        observe.fact(HIDES, returns(submission.load, broken, asked.sharding))


def _rounded(nbytes: int) -> int:
    """Bytes, rounded up: each process holds some KiB more, or less."""
    return -(-nbytes >> 16) << 16


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
    drawn: list[tuple[Callable[[str, str], Spec], int]] = [
        *((kind, 0) for kind in KINDS for _ in range(int(rng.integers(1, 4)))),
        *((KINDS[int(rng.choice(BY_ONE_AXIS))], count) for count in FEW),
    ]
    more = beyond(rng, len(drawn), MOST_CALLS) - len(drawn)
    drawn += [(KINDS[int(rng.integers(len(KINDS)))], 0) for _ in range(more)]
    drawn = [drawn[int(index)] for index in rng.permutation(len(drawn))]
    large = int(rng.integers(len(drawn)))
    apart = rng.spawn(1)[0]
    more_apart = beside(rng)
    of_two, of_floats = map(int, more_apart.integers(len(drawn), size=2))
    three = int(apart.choice([n for n, (kind, _) in enumerate(drawn) if kind in BY_TWO]))
    found: list[Asked] = []
    for number, (kind, devices) in enumerate(drawn):
        if number == large:
            found.append(_large(rng, len(found) + 1))
            found.append(_like(found[-1], len(found) + 1))
        if number == of_two:
            found.append(_large(more_apart, len(found) + 1, two=True))
        sharding = _over_few(rng, kind, devices) if devices else _sharding(rng, kind)
        if number == three:
            sharding = _sharding(apart, kind, by_three=True)
        found.append(_asked(rng, sharding, len(found) + 1, first=all(one.counted for one in found)))
        if number == of_floats:
            found[-1] = found[-1]._replace(dtype=str(more_apart.choice(FLOATS)))
    layouts = more_apart.integers(2, size=(len(found), 2)).astype(bool).tolist()
    for number, (by_columns, read_only) in enumerate(layouts):
        if not found[number].counted:
            found[number] = found[number]._replace(by_columns=by_columns, read_only=read_only)
    small = [asked for asked in found if not asked.counted]
    return [*found, _like(small[int(rng.integers(len(small)))], len(found) + 1)]


def _like(asked: Asked, number: int) -> Asked:
    """One more call, which is as an earlier one was, but for the values."""
    return asked._replace(name=f"call {number}, {LIKE} {asked.name}")


def _asked(rng: Any, sharding: Any, number: int, *, first: bool) -> Asked:
    """A small file, whose longer side is the one or the other, whichever is split.

    The `first` one reaches the numbers that the submission names.
    """
    asked = _of_blocks(number, sharding, tuple(rng.integers(1, 7, 2)), str(rng.choice(DTYPES)))
    longer, across = int(rng.integers(1, 5)), bool(rng.integers(2))
    rows, columns = asked.extent
    if first:
        side = columns if across else rows
        longer = beyond(rng, longer, MOST_LENGTH // side, each=side)
    extent = (rows, columns * longer) if across else (rows * longer, columns)
    return asked._replace(extent=extent)


def _over_few(rng: Any, kind: Callable[[str, str], Spec], count: int) -> Any:
    """A sharding of a kind by one axis, over so many devices, or all if there are fewer."""
    axis = str(rng.choice(AXES))
    mesh = jax.sharding.Mesh(rng.permutation(np.array(jax.devices()))[:count], (axis,))
    return jax.NamedSharding(mesh, jax.P(*kind(axis, axis)))


def _sharding(rng: Any, kind: Callable[[str, str], Spec], *, by_three: bool = False) -> Any:
    """A sharding of a kind, over a grid of any devices."""
    everything = np.array(jax.devices())
    sizes = list(_grids(everything.size))
    grid = sizes[int(rng.integers(len(sizes)))]
    devices = rng.permutation(everything)[: grid[0] * grid[1]].reshape(grid)
    *both, third = map(str, rng.choice(AXES, 3, replace=False))
    axes: tuple[str, ...] = tuple(both)
    spec = jax.P(*kind(axes[0], axes[1]))
    named = [axis for axis in axes if axis in spec]  # a part that two axes split is a tuple
    if len(named) == 1 and rng.integers(2):
        devices, axes = devices.ravel(), (named[0],)
    elif by_three or rng.integers(2):
        copies, place = (
            int(rng.integers(1, everything.size // devices.size + 1)),
            int(rng.integers(3)),
        )
        devices = rng.permutation(everything)[: copies * devices.size]
        devices = devices.reshape(*grid[:place], copies, *grid[place:])
        axes = (*axes[:place], third, *axes[place:])
        spec = _naming(rng, spec, third) if by_three else spec
    return jax.NamedSharding(jax.sharding.Mesh(devices, axes), spec)


def _naming(rng: Any, spec: Any, third: str) -> Any:
    """A spec in which one more axis splits the rows or the columns."""
    parts: list[Any] = [*spec, None][:2]
    index = int(rng.integers(2))
    named = parts[index] or ()
    named = [named] if isinstance(named, str) else [*named]
    named.insert(int(rng.integers(len(named) + 1)), third)
    parts[index] = tuple(named) if len(named) > 1 else third
    return jax.P(*parts)


def _grids(devices: int) -> Iterator[tuple[int, int]]:
    """The sizes of the two axes of a mesh, both of 2 or more if there are devices enough."""
    least = 2 if devices >= 4 else 1
    for one in range(least, devices + 1):
        yield from ((one, two) for two in range(least, devices // one + 1))


def _large(rng: Any, number: int, *, two: bool = False) -> Asked:
    """A file of large blocks: three of them or more, or just two, if there are devices enough."""
    fewest = min(2 if two else 3, jax.device_count())
    drawn = (_sharding(rng, KINDS[int(rng.integers(len(KINDS)))]) for _ in itertools.count())
    most = fewest if two else jax.device_count()
    sharding = next(one for one in drawn if fewest <= _pieces(one) <= most)
    rows, dtype = int(rng.integers(200, 900)), str(rng.choice(DTYPES))
    rows, nbytes = beyond(rng, rows, MOST_LENGTH), beyond(rng, LARGE, MOST_LARGE)
    columns = nbytes // (rows * np.dtype(dtype).itemsize) + int(rng.integers(9))
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
