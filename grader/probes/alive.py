"""Counts the bytes of the arrays that are alive in this process, in any memory and on any device.

JAX lists every array that a Python object holds. It does not say who holds one: a drive compares
two moments.
"""

import gc
from typing import Any

import jax
from jax.tree_util import keystr, tree_leaves_with_path


def nbytes() -> int:
    """The bytes of all live arrays but scalars."""
    return _sum(jax.live_arrays())


def left_beside(result: Any, before: int) -> int:
    """The bytes of the arrays that a call left alive beside those in the tree `result`.

    `before` is what `nbytes` returned before the call. Cycles of objects that nothing holds any
    more do not count. With an empty tree, once the caller has let go of the result, what remembers
    it shows.
    """
    own = {id(leaf): leaf for leaf in jax.tree.leaves(result) if isinstance(leaf, jax.Array)}
    known = before + _sum(own.values())
    if nbytes() > known:
        gc.collect()
    return max(0, nbytes() - known)


def _sum(arrays: Any) -> int:
    return sum(array.nbytes for array in arrays if array.ndim)


def in_one_memory(tree: Any) -> list[str]:
    """The paths of the first two arrays of a tree that share their memory; none if none do."""
    there: dict[int, str] = {}
    for path, array in tree_leaves_with_path(tree):
        for address in _addresses(array):
            if (other := there.setdefault(address, keystr(path))) != keystr(path):
                return [other, keystr(path)]
    return []


def _addresses(array: Any) -> list[int]:
    """Where the parts of an array lie, as far as its devices say that."""
    if not isinstance(array, jax.Array) or array.is_deleted():
        return []
    try:
        return [shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards]
    except jax.errors.JaxRuntimeError:
        return []
