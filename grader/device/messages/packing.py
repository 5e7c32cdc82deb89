"""Arrays as they travel in a payload, one after the other. NumPy alone: no JAX."""

from collections.abc import Buffer, Sequence
from typing import Any

import numpy as np

from grader.device.messages import wire
from grader.device.messages.dtypes import TOKEN, numpy_type


def pack(arrays: Sequence[Any]) -> tuple[list[wire.ArrayOf], list[Any]]:
    """NumPy arrays as they travel: what they are, and their bytes.

    An array of objects is a callback's token, and has no bytes.
    """
    about: list[wire.ArrayOf] = []
    data: list[Any] = []
    for array in arrays:
        if array.dtype == object:
            about.append(wire.ArrayOf(TOKEN, [], 0))
            continue
        about.append(wire.ArrayOf(str(array.dtype), list(array.shape), array.nbytes))
        data.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return about, data


def unpack(about: Sequence[wire.ArrayOf], payload: Buffer) -> list[Any]:
    """The arrays that `pack` packed, of any shape and dtype; None for a token.

    Raises:
      TypeError, ValueError: the payload does not hold what it is said to hold.
    """
    arrays: list[Any] = []
    at = 0
    for each in about:
        if each.dtype == TOKEN:
            arrays.append(None)
            continue
        arrays.append(np.ndarray(each.shape, numpy_type(each.dtype), payload, at))
        at += arrays[-1].nbytes
    return arrays
