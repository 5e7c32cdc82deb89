"""Counts the bytes of the arrays that are alive in this process, in any memory and on any device.

JAX lists every array that a Python object holds. It does not say who holds one: a drive compares
two moments.
"""

import gc
from typing import Any

import jax


def nbytes() -> int:
    """The bytes of all live arrays but scalars."""
    return _sum(jax.live_arrays())


def left_beside(result: Any, before: int) -> int:
    """The bytes of the arrays that a call left alive beside those in the tree `result`.

    `before` is what `nbytes` returned before the call. Cycles of objects that nothing holds any
    more do not count.
    """
    own = {id(leaf): leaf for leaf in jax.tree.leaves(result) if isinstance(leaf, jax.Array)}
    known = before + _sum(own.values())
    if nbytes() > known:
        gc.collect()
    return max(0, nbytes() - known)


def _sum(arrays: Any) -> int:
    return sum(array.nbytes for array in arrays if array.ndim)
