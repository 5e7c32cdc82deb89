"""Draws what a submission may take for granted: that no number is exactly 0, and no error large.

Biases begin with zeros, and so do an optimizer's averages. A row may be blank. A model that has
diverged holds numbers that are none.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

ODD = (np.nan, np.inf, -np.inf, -0.0, 1e-30)
"""Floats that a careless copy loses."""
ZEROS = 0.1
"""The share of the numbers that are 0."""


def some_zeros(rng: Any, array: Any) -> Any:
    """A NumPy array like `array`, in which some numbers are exactly 0, one at least."""
    zero = rng.random(array.shape) < ZEROS
    zero.flat[int(rng.integers(array.size))] = True
    return np.where(zero, array.dtype.type(0), array)


def some_odd(rng: Any, *arrays: Any) -> None:
    """Write ODD into NumPy arrays of floats, and the ends of their range into those of integers.

    The places are drawn. At most half of an array is written, so a single number stays.
    """
    for array in arrays:
        odd: tuple[float, ...] = ODD
        if jnp.issubdtype(array.dtype, np.integer):
            odd = (np.iinfo(array.dtype).min, np.iinfo(array.dtype).max)
        if array.dtype != bool:
            places = rng.permutation(array.size)[: min(len(odd), array.size // 2)]
            array.flat[places] = rng.permutation(odd)[: len(places)]


def some_blank_rows(rng: Any, *arrays: Any) -> None:
    """Write 0 into some rows of NumPy arrays, one row at least, the same rows of each."""
    blank = rng.random(arrays[0].shape[:-1]) < ZEROS
    blank.flat[int(rng.integers(blank.size))] = True
    for array in arrays:
        array[blank] = 0


def with_targets(batch: Any, far: float) -> Any:
    """The batch, (inputs, targets) on devices, with targets that are at most `far` away from 0.

    They are placed as they were. What is no such batch stays as it is.
    """
    leaves, form = jax.tree.leaves(batch), jax.tree.structure(batch)
    if not (leaves and isinstance(leaves[-1], jax.Array)):
        return batch
    targets = np.asarray(leaves[-1])
    drawn = np.float32(far / max(float(abs(targets).max(initial=0)), 1e-9)) * targets
    there = leaves[-1].sharding if leaves[-1].committed else None
    return jax.tree.unflatten(form, [*leaves[:-1], jax.device_put(drawn, there)])
