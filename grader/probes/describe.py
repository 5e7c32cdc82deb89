"""Describes the leaves of a pytree as data, trusting none of a learner's methods.

The trees come from a drive. A tree is taken apart once, with `flatten`: that calls the methods
of a learner's own nodes and keys, so it belongs to what is watched. Then only exact types are
looked into. Anything else, such as an object with its own `__array__` or `__eq__`, is named by
its type and left alone, also where it is the key of a dict.
"""

import sys
from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

from grader.judging.arrays import dump
from grader.probes import private
from grader.probes.marks import ask
from grader.probes.observe import Misused
from grader.probes.plain import SCALARS
from grader.records.record import Leaf

_PYTHON = (bool, int, float, complex, str, type(None))
_KEYS = (bool, int, float, str, bytes, type(None))
_SEQUENCES, _MAPPINGS = (list, tuple), (dict, OrderedDict, defaultdict)
_SHARDINGS = (jax.sharding.NamedSharding, jax.sharding.SingleDeviceSharding)
MAX_DATA = 1 << 24
MAX_TREE = 4000
"""Longer structures are cut in messages; what is compared is `Flat.forms`."""
DEEPEST = 100
"""So many lists, tuples and dicts may lie one in the other."""
HAS_LEAVES = "lists, tuples and dicts are a tree, with arrays or numbers as its leaves"


class Flat(NamedTuple):
    """A tree that was taken apart: nothing of it is called any more."""

    leaves: list[tuple[str, Any]]
    """The path and the value of each leaf."""
    text: str
    """The structure in JAX's words, for messages."""
    forms: list[str]
    """What each node is, in the order in which JAX visits them."""


def flatten(tree: Any) -> Flat:
    """Take a tree apart, once; None counts as a leaf. May run a learner's code.

    Raises:
      Misused: it contains itself, or is deeper than JAX can follow.
    """
    _look_for_its_end(tree)
    found, structure = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: x is None)
    leaves = [("".join(map(_key, path)), leaf) for path, leaf in found]
    return Flat(leaves, str(structure)[:MAX_TREE], list(_forms(structure)))


def _look_for_its_end(tree: Any) -> None:
    """Nothing, if JAX comes to the leaves of a tree.

    Where it does not, it leaves its thread without a stack: nothing can be told any more.

    Raises:
      Misused: a list, tuple or dict contains itself, or lies in `DEEPEST` others.
    """
    left: list[tuple[Any, list[Any]]] = [(tree, [])]
    while left:
        node, around = left.pop()
        kind = type(node)
        if kind is list:
            inner = [*node]
        elif issubclass(kind, tuple):
            inner = [*tuple.__iter__(node)]  # whatever a subclass says of itself
        elif kind in _MAPPINGS:
            inner = [*dict.values(node)]
        else:
            continue
        if any(node is one for one in around):
            raise Misused(HAS_LEAVES, f"a {kind.__name__} in it contains itself")
        if len(around) == DEEPEST:
            raise Misused(
                HAS_LEAVES, f"more than {DEEPEST} lists, tuples or dicts lie one in the other"
            )
        around = [*around, node]
        left += [(one, around) for one in inner]


def describe(tree: Any, *, data: bool = True) -> tuple[list[Leaf], str]:
    """`flatten` and `leaves_of` at once, for trees that no learner's code made.

    Returns the leaves and the structure as text.
    """
    flat = flatten(tree)
    return leaves_of(flat, data=data), flat.text


def same_numbers(tree: Any, other: Any) -> bool:
    """Whether two trees of arrays hold the same ones, or equal ones in the same order.

    Arrays that were deleted are passed over.
    """
    mine, theirs = (jax.tree.leaves(one) for one in (tree, other))
    pairs = [(x, y) for x, y in zip(mine, theirs, strict=False) if x is not y]
    gone = (isinstance(one, jax.Array) and one.is_deleted() for pair in pairs for one in pair)
    return len(mine) == len(theirs) and (
        any(gone) or all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)
    )


def in_other_order(tree: Any) -> list[str]:
    """The paths of the arrays whose dimensions lie in memory in another order than usual.

    A program expects the usual order, and copies them at each call.
    """
    arrays = [(path, x) for path, x in flatten(tree).leaves if isinstance(x, jax.Array)]
    return [path for path, array in arrays if _in_other_order(array)]


def weakly_typed(tree: Any) -> list[str]:
    """The paths of the arrays that JAX holds for a number of Python's.

    A program that gets another array there, of the same dtype, is compiled anew.
    """
    return [path for path, x in flatten(tree).leaves if isinstance(x, jax.Array) and x.weak_type]


def _in_other_order(array: Any) -> bool:
    """Whether a concrete array lies so."""
    if array.ndim < 2:  # next door, a layout is a question to another process
        return False
    traced = isinstance(array, jax.core.Tracer)
    layout = None if traced or not _is_known(array.sharding) else array.format.layout
    return layout is not None and layout.major_to_minor != tuple(range(array.ndim))


def leaves_of(flat: Flat, *, data: bool = True) -> list[Leaf]:
    """Describe every leaf. Arrays beyond 16 MiB keep no values."""
    array_type = private.array_type()
    _await([leaf for _, leaf in flat.leaves if type(leaf) is array_type], data)
    return [_leaf(path, leaf, array_type, data) for path, leaf in flat.leaves]


def _await(arrays: list[Any], data: bool) -> None:
    """Wait for arrays, and with `data` begin to read them: all at once, since on a device next
    door each is a question to another process."""
    alive = [array for array in arrays if _is_known(array.sharding) and not array.is_deleted()]
    for array in alive:
        if data and array.nbytes <= MAX_DATA:
            array.copy_to_host_async()
    jax.block_until_ready(alive)


def _key(key: Any) -> str:
    """One step of a path, as `jax.tree_util.keystr` writes it if nothing in it is a learner's."""
    if type(key) is SequenceKey and type(key.idx) is int:
        return f"[{key.idx}]"
    if type(key) is DictKey and type(key.key) in _KEYS:
        return f"[{key.key!r}]"
    if type(key) is GetAttrKey and type(key.name) is str:
        return f".{key.name}"
    if type(key) is FlattenedIndexKey and type(key.key) is int:
        return f"[<flat index {key.key}>]"
    inner = getattr(key, "key", key) if type(key) is DictKey else key
    return f"[a key of type {type(inner).__name__}]"


def _forms(structure: Any) -> Any:
    """What each node of a structure is: a sequence, a mapping, a class, or a leaf."""
    left = [structure]
    while left:
        node = left.pop()
        data = node.node_data()
        yield "*" if data is None else _form(data[0])
        left += reversed(node.children())


def _form(kind: type) -> str:
    """A kind of node in words; lists and tuples are alike, and so are all kinds of dicts."""
    if kind in _SEQUENCES:
        return "sequence"
    if kind in _MAPPINGS:
        return "mapping"
    module = sys.modules.get(kind.__module__)
    known = getattr(module, kind.__qualname__, None) is kind
    return f"{kind.__module__}.{kind.__qualname__}" if known else f"a class `{kind.__qualname__}`"


def _leaf(path: str, leaf: Any, array_type: type, data: bool) -> Leaf:
    kind = type(leaf)
    if kind is array_type:
        return _jax_leaf(path, leaf, data)
    if kind is np.ndarray or kind in SCALARS:
        plain = np.asarray(leaf)
        return _host_leaf(path, "numpy", kind.__name__, plain, data)
    if kind in _PYTHON:
        plain = np.asarray(str(leaf) if leaf is None else leaf)
        return _host_leaf(path, "python", kind.__name__, plain, data)
    return Leaf(path, "other", kind.__qualname__)


def _host_leaf(path: str, kind: Any, name: str, plain: np.ndarray[Any, Any], data: bool) -> Leaf:
    keep = data and plain.nbytes <= MAX_DATA and plain.dtype.kind != "O"
    return Leaf(path, kind, name, plain.shape, str(plain.dtype), data=dump(plain) if keep else None)


def _is_known(sharding: Any) -> bool:
    """Whether a sharding is JAX's, and no learner's class."""
    return type(sharding) in _SHARDINGS or type(sharding).__module__.startswith("jax")


def _jax_leaf(path: str, array: Any, data: bool) -> Leaf:
    sharding = array.sharding
    if not _is_known(sharding):
        return Leaf(path, "other", f"array with a {type(sharding).__qualname__}")
    devices = sorted(sharding.device_set, key=lambda device: device.id)
    deleted = bool(array.is_deleted())
    return Leaf(
        path,
        "jax",
        "jax.Array",
        array.shape,
        str(array.dtype),
        platform=devices[0].platform,
        devices=tuple(device.id for device in devices),
        committed=bool(array.committed),
        memory_kind=sharding.memory_kind,
        spec=str(sharding.spec) if isinstance(sharding, jax.sharding.NamedSharding) else None,
        shard_shape=sharding.shard_shape(array.shape),
        replicated=bool(sharding.is_fully_replicated),
        parts=_parts(sharding, array.shape) if len(devices) > 1 else {},
        unlike=_unlike(array) if data and not deleted and len(devices) > 1 else None,
        deleted=deleted,
        buffer=_address(array) if len(devices) == 1 and not deleted else None,
        data=_values(array) if data and not deleted else None,
    )


def address(array: Any) -> int | None:
    """What tells an array's buffer from others: its address, next door a number.

    For an array on one device that is not deleted. None where neither can be had.
    """
    array.block_until_ready()
    return _address(array)


def _address(array: Any) -> int | None:
    """The address of an array that is there: else it is waited for, and Python's lock is kept,
    which a callback may need to go on.
    """
    try:
        return int(array.unsafe_buffer_pointer())
    except jax.errors.JaxRuntimeError:
        return ask("buffer", array)


def _parts(sharding: Any, shape: tuple[int, ...]) -> dict[int, tuple[tuple[int, int], ...]]:
    """The part of the array that each device holds, by its id."""
    parts = sharding.devices_indices_map(shape).items()
    return {
        device.id: tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))
        for device, index in parts
    }


def _values(array: Any) -> bytes | None:
    return None if array.nbytes > MAX_DATA else dump(_host(array))


def _unlike(array: Any) -> tuple[int, float] | None:
    """The device whose copy of a part differs most from another's, and by how much, if any does."""
    shards = sorted(array.addressable_shards, key=lambda shard: shard.device.id)
    if array.nbytes > MAX_DATA or sum(shard.data.size for shard in shards) == array.size:
        return None
    first: dict[str, Any] = {}
    found = []
    for shard in shards:
        values = _host(shard.data)
        known = first.setdefault(str(shard.index), values)
        if difference := _difference(known, values):
            found.append((shard.device.id, difference))
    return max(found, key=lambda one: one[1], default=None)


def _difference(known: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> float:
    """The largest difference of two arrays, 0.0 if they are equal."""
    if known is values or np.array_equal(known, values):
        return 0.0
    wide = np.result_type(known, np.float64)  # no difference of bools, and none that wraps around
    known, values = known.astype(wide), values.astype(wide)
    unequal = ~np.isclose(known, values, rtol=0, atol=0, equal_nan=True)
    with np.errstate(invalid="ignore", over="ignore"):  # of two infinities, say
        apart = np.nan_to_num(np.abs(known - values)[unequal], nan=sys.float_info.max)
    return float(apart.max(initial=0.0))


def _host(array: Any) -> np.ndarray[Any, Any]:
    """The values on the host; bfloat16 and the like widen to float32."""
    plain = np.asarray(array)
    return plain if plain.dtype.kind in "biufc" else plain.astype(np.float32)
