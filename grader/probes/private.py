"""The one place that leans on names JAX does not promise.

The type of a concrete array (`ArrayImpl`) and the methods through which its values reach
the host. Each name is looked up, never assumed: what is missing raises `Gone`, and the
probe that needed it reports *could not check*.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

READS = ("_value", "__array__", "__buffer__", "__dlpack__", "item", "tolist")
"""Attributes of the array type that bring values to the host, on jax 0.11 and 0.12."""


class Gone(Exception):
    """A name this version of JAX no longer has."""


def array_type() -> type:
    """The type of concrete arrays."""
    found = type(jax.device_put(np.zeros((), np.float32)))
    if not isinstance(found, type) or found is np.ndarray:
        raise Gone(f"device_put returned a {found}")
    return found


def wrap_reads(array: type, before: Callable[[Any], Any]) -> Callable[[], None]:
    """Call `before(array)` when a value is read; `before` returns what to call after.

    Returns the function that restores the type.

    Raises:
      Gone: one of `READS` is not there, or does not stay replaced.
    """
    originals = {}
    for name in READS:
        if name not in array.__dict__:
            raise Gone(f"{array.__name__}.{name}")
        originals[name] = array.__dict__[name]
    for name, original in originals.items():
        wrapper = _wrapped(original, before)
        setattr(array, name, wrapper)
        if array.__dict__[name] is not wrapper:
            raise Gone(f"{array.__name__}.{name} cannot be replaced")

    def restore() -> None:
        for name, original in originals.items():
            setattr(array, name, original)

    return restore


def _wrapped(original: Any, before: Callable[[Any], Any]) -> Any:
    if isinstance(original, property):
        getter = original.fget
        assert getter is not None
        return property(_watched(getter, before))
    return _watched(original, before)


def _watched(function: Any, before: Callable[[Any], Any]) -> Callable[..., Any]:
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        after = before(self)
        try:
            return function(self, *args, **kwargs)
        finally:
            after()

    return watched


def wrap_method(array: type, name: str, before: Callable[[Any], Any]) -> Callable[[], None]:
    """As `wrap_reads`, for one method.

    Raises:
      Gone: there is no such method.
    """
    if name not in array.__dict__:
        raise Gone(f"{array.__name__}.{name}")
    original = array.__dict__[name]
    setattr(array, name, _watched(original, before))
    return lambda: setattr(array, name, original)
