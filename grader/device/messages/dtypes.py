"""The types of elements: their numbers in XLA's protocol, and NumPy's types for them."""

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from grader.device.messages.errors import UNIMPLEMENTED, Failed

TOKEN = "token"
"""What orders callbacks. It has no bytes."""

NAMES: Mapping[int, str] = {
    1: "bool",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "uint8",
    7: "uint16",
    8: "uint32",
    9: "uint64",
    10: "float16",
    11: "float32",
    12: "float64",
    15: "complex64",
    16: "bfloat16",
    17: TOKEN,
    18: "complex128",
    19: "float8_e5m2",
    20: "float8_e4m3fn",
    21: "int4",
    22: "uint4",
    23: "float8_e4m3b11fnuz",
    24: "float8_e5m2fnuz",
    25: "float8_e4m3fnuz",
    26: "int2",
    27: "uint2",
    28: "float8_e4m3",
    29: "float8_e3m4",
    30: "float4_e2m1fn",
    31: "float8_e8m0fnu",
}
"""`DTypeProto.Kind` -> name. Elements of less than a byte take a byte on the way."""
NUMBERS: Mapping[str, int] = {name: number for number, name in NAMES.items()}


def named(given: Any) -> str:
    """The name of a `DTypeProto`.

    Raises:
      Failed: there are no arrays of this type here.
    """
    name = NAMES.get(given.kind)
    if name is None:
        raise Failed(UNIMPLEMENTED, f"arrays of the type {given.kind} are not available")
    return name


def numpy_type(name: str) -> np.dtype[Any]:
    """NumPy's type of this name; a token's is `bool`, of which it has none."""
    if name == TOKEN:
        return np.dtype(np.bool_)
    return np.dtype(getattr(ml_dtypes, name, name))


def size(name: str) -> int:
    """Bytes of one element."""
    return numpy_type(name).itemsize if name != TOKEN else 0
