"""Draws what a submission may take for granted: that no number is exactly 0.

Biases begin with zeros, and so do an optimizer's averages.
"""

from typing import Any

import numpy as np

ZEROS = 0.1
"""The share of the numbers that are 0."""


def some_zeros(rng: Any, array: Any) -> Any:
    """A NumPy array like `array`, in which some numbers are exactly 0, one at least."""
    zero = rng.random(array.shape) < ZEROS
    zero.flat[int(rng.integers(array.size))] = True
    return np.where(zero, array.dtype.type(0), array)
