"""Describes the leaves of a pytree as data, trusting none of a learner's methods.

Only exact types are looked into. Anything else, such as an object with its own
`__array__` or `__eq__`, is named by its type and left alone.
"""

from typing import Any

import jax
import numpy as np

from grader.arrays import dump
from grader.probes import private
from grader.record import Leaf

_PYTHON = (bool, int, float, complex, str, type(None))
MAX_DATA = 1 << 24


def describe(tree: Any, *, data: bool = True) -> tuple[list[Leaf], str]:
    """Describe every leaf; returns the leaves and the structure as text.

    None counts as a leaf. Arrays beyond 16 MiB keep no values.
    """
    array_type = private.array_type()
    paths, structure = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: x is None)
    leaves = [_leaf(jax.tree_util.keystr(path), leaf, array_type, data) for path, leaf in paths]
    return leaves, str(structure)


def _leaf(path: str, leaf: Any, array_type: type, data: bool) -> Leaf:
    kind = type(leaf)
    if kind is array_type:
        return _jax_leaf(path, leaf, data)
    if kind is np.ndarray or (issubclass(kind, np.generic) and kind.__module__ == "numpy"):
        plain = np.asarray(leaf)
        return _host_leaf(path, "numpy", kind.__name__, plain, data)
    if kind in _PYTHON:
        plain = np.asarray(str(leaf) if leaf is None else leaf)
        return _host_leaf(path, "python", kind.__name__, plain, data)
    return Leaf(path, "other", kind.__qualname__)


def _host_leaf(path: str, kind: Any, name: str, plain: np.ndarray[Any, Any], data: bool) -> Leaf:
    keep = data and plain.nbytes <= MAX_DATA and plain.dtype.kind != "O"
    return Leaf(path, kind, name, plain.shape, str(plain.dtype), data=dump(plain) if keep else None)


def _jax_leaf(path: str, array: Any, data: bool) -> Leaf:
    sharding = array.sharding
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
        deleted=deleted,
        buffer=array.unsafe_buffer_pointer() if len(devices) == 1 and not deleted else None,
        data=_values(array) if data and not deleted else None,
    )


def _values(array: Any) -> bytes | None:
    if array.nbytes > MAX_DATA:
        return None
    plain = np.asarray(array)
    return dump(plain if plain.dtype.kind in "biufc" else plain.astype(np.float32))
