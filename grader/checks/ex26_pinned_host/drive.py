"""Drives ex26_pinned_host: trees to the host and back to the device, and `predict` as two programs.

Drawn for each tree are its nodes and their names, and for each of its arrays the dtype, the number
of dimensions (0 to 5), the size, how many devices it is on, which, in which order, and how it lies
on them: alone on one device, copied to all of a mesh, or split along any dimension, by one axis of
a mesh or by both, be it in one dimension. One array of each tree was put on no device in
particular, and one stands in two places. So neither the name of an array nor its dtype nor its
shape tells where it lies. Each function gets 1 to 3 such trees of 4 to 9 arrays, one of 1 to 3, of
which one is large, one of 10 to 100, and one of more than a hundred, in a drawn order. Some numbers
are next to nothing, and some are NaN, infinite or -0.0. Some dicts, lists and tuples are empty, one
of each tree at least; the keys of some dicts are numbers. Each function gets one tree more, which
has no array. `predict` is exported for a small network and few inputs, and for a larger one with
more; the params of one are split, those of the other are copied to each device, and which is drawn,
too. Some hidden units get large sums. In the larger one, one of the inputs is NaN, and one of the
last params. Where the file names numbers, the largest tree has more arrays, one array more numbers,
the small network more hidden units, and the larger one more inputs than each of them that is below
MOST_...; and some floats are further from 0.

Each function gets trees that the other one never saw: those for `to_device` were staged by the
drive. So each function is judged by itself, and `to_device` cannot use what `to_host` remembered. A
function that changes the tree it was given, or deletes its arrays, is refused. `predict` is
exported, and never runs in this process.
"""

import contextlib
import copy
import math
from itertools import pairwise
from types import ModuleType
from typing import Any

import jax
import numpy as np

from grader.checks.ex26_pinned_host.facts import FUNCTIONS, PROGRAMS, ROUNDS, on_host
from grader.probes import alive
from grader.probes.host_operations import host_operations
from grader.probes.observe import Misused, Observe, left_alone, named, same_tree
from grader.records.record import PINNED
from grader.stages.drawn import beside, beyond, one_of, some_odd

DTYPES = (
    *("float32", "bfloat16", "int32", "float16", "uint8", "int8", "uint32", "bool"),
    *("int16", "uint16"),
)
FEW, TREES, ARRAYS, SOME, MANY = (1, 4), (1, 4), (4, 10), (10, 101), (101, 130)
EMPTY: tuple[Any, ...] = ({}, [], ())
LARGE, TINY = (1 << 11, 1 << 15), 1e-30
"""The numbers on each device of the large array of a small tree, from and below, where twice as
many are as likely as half of them; and what makes one next to nothing."""
MOST_ARRAYS, MOST_WIDTH, MOST_ROWS = 600, 512, 10_000
"""Up to where trees and programs reach the numbers that the file names; the width is that on each
device. An array has no more numbers than the end of LARGE says."""
PLACES = 6
"""How many places the arrays of a large tree share: a program for each would take long."""
FEATURES = 16
"""The columns of its inputs."""
WIDTHS, ROWS = ((2, 12), (6, 40)), ((1, 6), (6, 400))
"""Of `predict`'s hidden layer, on each device, and of its inputs."""
MOST_WHOLE = 5
"""Of more rows, a number is missing."""


def _put(values: Any, devices: Any, *spec: str | None) -> Any:
    """`values` on all `devices`, which are the axis "x" of a mesh in this order."""
    mesh = jax.sharding.Mesh(np.array(devices), ("x",))
    return jax.device_put(values, jax.NamedSharding(mesh, jax.P(*spec)))


def _place(rng: Any, *, free: bool) -> tuple[tuple[int, ...], str, Any]:
    """The shape, the dtype and the sharding of an array; None for one that is `free` to move."""
    dimensions = int(rng.integers(6))
    shape = rng.integers(1, 7 if dimensions < 4 else 4, dimensions)
    dtype = str(rng.choice(DTYPES))
    if free:
        return tuple(map(int, shape)), dtype, None
    devices = rng.permutation(np.array(jax.devices()))[
        : int(rng.integers(1, jax.device_count() + 1))
    ]
    if devices.size == 1:
        return tuple(map(int, shape)), dtype, jax.sharding.SingleDeviceSharding(devices[0])
    factors = [n for n in range(1, devices.size + 1) if devices.size % n == 0]
    grid = devices.reshape(int(rng.choice(factors)), -1)
    spec: list[str | tuple[str, str] | None] = [None] * len(shape)
    if spec and not rng.integers(4):
        index = int(rng.integers(len(shape)))
        spec[index], shape[index] = ("a", "b"), shape[index] * devices.size
        sharding = jax.NamedSharding(jax.sharding.Mesh(grid, ("a", "b")), jax.P(*spec))
        return tuple(map(int, shape)), dtype, sharding
    for axis, size in zip(("a", "b"), grid.shape, strict=True):
        whole = [index for index, name in enumerate(spec) if name is None]
        if whole and rng.integers(3):
            index = int(rng.choice(whole))
            spec[index], shape[index] = axis, shape[index] * size
    sharding = jax.NamedSharding(jax.sharding.Mesh(grid, ("a", "b")), jax.P(*spec))
    return tuple(map(int, shape)), dtype, sharding


def _tree(rng: Any, arrays: int, places: int) -> Any:
    """A tree of so many arrays, which share so many places.

    In a large one, some arrays of one size are alone on a device, and some on another one.
    """
    drawn = [_place(rng, free=not number) for number in range(places)]
    if arrays >= SOME[0]:
        for index, device in enumerate(rng.permutation(jax.devices())[:2], 1):
            drawn[index] = *drawn[1][:2], jax.sharding.SingleDeviceSharding(device)
    leaves = [_array(rng, *drawn[index % places]) for index in range(arrays)]
    if arrays < ARRAYS[0]:
        mesh = jax.sharding.Mesh(rng.permutation(np.array(jax.devices())), ("x",))
        each = int(math.exp(rng.uniform(*map(math.log, LARGE))))
        shape = (jax.device_count() * beyond(rng, each, LARGE[1], each=jax.device_count()),)
        leaves[-1] = _array(rng, shape, "float32", jax.NamedSharding(mesh, jax.P("x")))
    else:
        leaves[-1] = leaves[int(rng.integers(arrays - 1))]
    return _nested(rng, [leaves[int(index)] for index in rng.permutation(arrays)])


def _array(rng: Any, shape: tuple[int, ...], dtype: str, sharding: Any) -> Any:
    """An array of numbers about 9, of which some are next to nothing; some floats are odd."""
    values = (rng.standard_normal(shape) * 9).astype("float32")
    values.flat[:: int(rng.integers(2, 9))] *= TINY
    if "float" in dtype:
        some_odd(rng.spawn(1)[0], values)
    elif dtype.startswith("uint"):
        values = abs(values)
    # NumPy converts them: JAX would compile a program for each dtype.
    with np.errstate(over="ignore"):  # what is far for float32 is infinite in half precision
        return jax.device_put(values.astype(jax.numpy.dtype(dtype)), sharding)


def _nested(rng: Any, leaves: list[Any], *, inner: bool = False) -> Any:
    """The leaves in nested dicts, lists and tuples, of drawn names; an `inner` one may be alone.

    The outermost of them also holds an empty one, and so do some others.
    """
    if len(leaves) == 1 and rng.integers(2) and inner:
        return leaves[0]
    cuts = sorted(
        rng.choice(len(leaves) - 1, min(int(rng.integers(4)), len(leaves) - 1), False) + 1
    )
    ends = [0, *map(int, cuts), len(leaves)]
    parts = [leaves[i:j] for i, j in pairwise(ends)]
    made = [_nested(rng, part, inner=True) if len(parts) > 1 else part for part in parts]
    names: list[Any] = [
        f"{name}{index}"
        for index, name in enumerate(rng.choice(["w", "b", "layer", "mu"], len(made)))
    ]
    apart = rng.spawn(1)[0]
    if not inner or not apart.integers(8):
        made.append(copy.copy(EMPTY[int(apart.integers(3))]))
        names.append("rest")
    if "rest" not in names and not apart.integers(3):
        names = list(range(len(names)))
    kinds = (lambda: dict(zip(names, made, strict=True)), lambda: made, lambda: tuple(made))
    return kinds[int(rng.integers(3))]()


def _without_arrays(rng: Any) -> Any:
    """A tree of empty dicts, lists and tuples alone."""
    return {"layers": copy.copy(EMPTY[int(rng.integers(3))]), "rest": []}


def _network(rng: Any, width: int, rows: int, *, split: bool) -> tuple[Any, Any]:
    """(params, inputs), float32: params of (16, width), (width,) and (width, 4), and inputs
    (rows, 16), which are copied to each device, as the params are unless they are `split`."""
    shapes = {"w1": (FEATURES, width), "b1": (width,), "w2": (width, 4)}
    shapes |= {"inputs": (rows, FEATURES)}
    drawn = {k: (rng.standard_normal(s) / 4).astype("float32") for k, s in shapes.items()}
    drawn["w1"][:, :: int(rng.integers(3, 7))] *= 16
    devices = rng.permutation(np.array(jax.devices()))
    if rows > MOST_WHOLE:  # of one row, a number is missing, and so is one of the last params
        apart = rng.spawn(1)[0]
        for name in ("inputs", "w2"):
            drawn[name].flat[int(apart.integers(drawn[name].size))] = np.nan
    inputs = _put(drawn.pop("inputs"), devices)
    specs = {"w1": (None, "x"), "b1": ("x",), "w2": ("x",)}
    params = {name: _put(v, devices, *(specs[name] if split else ())) for name, v in drawn.items()}
    return params, inputs


def _staged(tree: Any) -> Any:
    """`tree` in pinned host memory, staged by the drive, each array once, wherever it stands."""
    arrays = {id(x): x for x in jax.tree.leaves(tree)}
    staged = {
        key: jax.device_put(x, x.sharding.with_memory_kind(PINNED)) for key, x in arrays.items()
    }
    return jax.tree.map(lambda x: staged[id(x)], tree)


def _result(function: Any, tree: Any, name: str) -> Any:
    """The tree that `function` makes of `tree`.

    Raises `Misused` where it is not a tree like `tree`, or where `tree` itself was changed.
    """
    with left_alone(name, tree):
        result = function(tree)
    same_tree(f"`{name}` returns a tree like its argument", "tree", tree, result)
    return result


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Call each function with a fresh tree in each round, and export `predict`."""
    sizes = [int(n) for n in rng.integers(*ARRAYS, int(rng.integers(*TREES)))]
    few, some, many = (int(rng.integers(*span)) for span in (FEW, SOME, MANY))
    others = [few, one_of(rng, some, range(*SOME)), beyond(rng, many, MOST_ARRAYS)]
    sizes = [int(n) for n in rng.permutation([*sizes, *others])]
    observe.fact(ROUNDS, len(sizes))
    for index, size in enumerate(sizes):
        for name in map(str, rng.permutation(FUNCTIONS)):
            _call(getattr(submission, name), observe, rng, f"{name} {index}", size)
    for name in FUNCTIONS:
        _call_without_arrays(getattr(submission, name), _without_arrays(beside(rng)), name)
    _predict(submission.predict, observe, rng)


def _call(function: Any, observe: Observe, rng: Any, call: str, size: int) -> None:
    """Call `to_host` or `to_device` with a tree of so many arrays, which nothing holds afterwards.

    `call` is the name of the function, and the number of the call.
    """
    name, before = call.partition(" ")[0], alive.nbytes(scalars=True)
    tree = _tree(rng, size, min(size, PLACES) if size >= SOME[0] else size)
    given = _staged(tree) if name == "to_device" else tree
    observe.value(f"original of {call}", tree)
    with observe.phase(name):
        result = _result(function, given, name)
    observe.value(call, result)
    del tree, given, result
    observe.fact(f"left beside {call}", alive.left_beside((), before, scalars=True))


def _call_without_arrays(function: Any, tree: Any, name: str) -> None:
    """Call `to_host` or `to_device` with a tree that holds no array.

    Raises `Misused` where it raises, or returns another tree.
    """
    try:
        _result(function, tree, name)
    except Misused:
        raise
    except Exception as error:
        promise = f"`{name}` returns a tree like its argument, which may hold no array"
        observed = f"for {tree}, it raised {named(error)}"
        raise Misused(promise, observed) from error


def _predict(predict: Any, observe: Observe, rng: Any) -> None:
    if not observe.jitted("predict", predict):
        return
    split = bool(rng.integers(2))
    for number, name in enumerate(PROGRAMS):
        width, rows = (int(rng.integers(*sizes[number])) for sizes in (WIDTHS, ROWS))
        if number:
            rows = beyond(rng, rows, MOST_ROWS, each=FEATURES)
        else:
            width = beyond(rng, width, MOST_WIDTH, each=jax.device_count())
        width *= jax.device_count()
        params, inputs = _network(rng, width, rows, split=split != bool(number))
        staged = _staged(params)
        observe.program(name, predict, staged, inputs)
        # Operands in different memories raise a ValueError. The exported program reports that one.
        with contextlib.suppress(ValueError):
            jaxpr = jax.make_jaxpr(predict)(staged, inputs).jaxpr
            observe.fact(on_host(name), host_operations(jaxpr))
