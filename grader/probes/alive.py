"""Counts the bytes of the arrays that are alive in this process, in any memory and on any device.

JAX lists every array that a Python object holds. It does not say who holds one: a drive compares
two moments.
"""

import gc
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
from jax.tree_util import keystr, tree_leaves_with_path


def nbytes(*, scalars: bool = False) -> int:
    """The bytes of all live arrays; scalars count if that is asked for: JAX keeps some itself."""
    return _sum(jax.live_arrays(), scalars)


FEW = 64
"""Bytes of scalars that JAX may keep itself, as constants of what it compiled."""


def left_behind(before: tuple[int, int]) -> int:
    """The bytes of arrays that a call left alive whose result is let go of; a few scalars are none.

    `before` is what `both` returned before the call.
    """
    arrays, every = before
    return left_beside((), arrays) or max(0, left_beside((), every, scalars=True) - FEW)


def both() -> tuple[int, int]:
    """The bytes of all live arrays, without scalars and with them."""
    return nbytes(), nbytes(scalars=True)


def left_beside(result: Any, before: int, *, scalars: bool = False) -> int:
    """The bytes of the arrays that a call left alive beside those in the tree `result`.

    `before` is what `nbytes` returned before the call. Cycles of objects that nothing holds any
    more do not count. With an empty tree, once the caller has let go of the result, what remembers
    it shows.
    """
    own = {id(leaf): leaf for leaf in jax.tree.leaves(result) if isinstance(leaf, jax.Array)}
    known = before + _sum(own.values(), scalars)
    if nbytes(scalars=scalars) > known:
        gc.collect()
    return max(0, nbytes(scalars=scalars) - known)


SOON = (0, 0.1, 0.4)
"""So many seconds may pass until nobody holds an array that was copied."""


def held(references: Iterable[Callable[[], Any]]) -> int:
    """The bytes of the arrays that are alive to which weak references refer, be it NumPy's.

    An array of JAX's on a CPU may use the memory of one of NumPy's, and then holds it. Cycles of
    objects that nothing holds any more do not count.
    """
    known = list(references)
    for seconds in SOON:  # a copy that still reads an array lets go of it a moment later
        if any(reference() is not None for reference in known):
            time.sleep(seconds)
            gc.collect()
    alive = (reference() for reference in known)
    return sum(array.nbytes for array in alive if array is not None)


def _sum(arrays: Any, scalars: bool) -> int:
    return sum(array.nbytes for array in arrays if array.ndim or scalars)


def memory(tree: Any = None) -> dict[int, int]:
    """Where the parts of the arrays of a tree lie, or of all live arrays, and the bytes of each.

    Scalars are left out, as JAX keeps some itself, and so is what its device does not place.
    """
    arrays = jax.live_arrays() if tree is None else jax.tree.leaves(tree)
    placed = ((array, found) for array in arrays if (found := _addresses(array)) and array.ndim)
    return {address: array.nbytes // len(found) for array, found in placed for address in found}


def left_elsewhere(result: Any, before: Mapping[int, int]) -> int:
    """The bytes that are alive in other memory than that of `before` and of the tree `result`.

    Several arrays in one memory count once. Cycles of objects that nothing holds do not count.
    """
    known, now = {*before, *memory(result)}, memory()
    if now.keys() - known:
        gc.collect()
        now = memory()
    return sum(now[address] for address in now.keys() - known)


def in_one_memory(tree: Any) -> list[str]:
    """The paths of the first two arrays of a tree that share their memory; none if none do."""
    there: dict[int, str] = {}
    for path, array in tree_leaves_with_path(tree):
        for address in _addresses(array):
            if (other := there.setdefault(address, keystr(path))) != keystr(path):
                return [other, keystr(path)]
    return []


def _addresses(array: Any) -> list[int]:
    """Where the parts of an array lie, as far as its devices say that.

    A tracer lies nowhere, and neither does an array without numbers.
    """
    traced = isinstance(array, jax.core.Tracer)
    if traced or not isinstance(array, jax.Array) or array.is_deleted() or not array.size:
        return []
    try:
        return [shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards]
    except jax.errors.JaxRuntimeError:
        return []
