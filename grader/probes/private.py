"""Looks up the names that probes need and JAX does not promise.

These are the type of a concrete array (`ArrayImpl`) and the methods through which its values
reach the host. No name is assumed: one that is missing raises `Gone`, and the probe that needed
it reports *could not check*. The names behind staged machines are in `grader.stages.machines`.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import jax
import numpy as np

READS = ("_value", "__array__", "__buffer__", "__dlpack__", "item", "tolist")
"""Attributes of the array type that bring values to the host, on jax 0.11 and 0.12."""
WAITS = ("block_until_ready",)
COPIES = ("copy_to_host_async",)
POLLS = ("is_ready",)


After = Callable[[bool], None]
"""Called after a watched function, with whether it returned instead of raising."""
Before = Callable[[Any], After]
"""Called before a watched function, with its first argument; returns what to call after."""


class Gone(Exception):
    """A name this version of JAX no longer has."""


def array_type() -> type:
    """The type of concrete arrays."""
    found = type(jax.device_put(np.zeros((), np.float32)))
    if not isinstance(found, type) or found is np.ndarray:
        raise Gone(f"device_put returned a {found}")
    return found


def wrap(array: type, names: Sequence[str], before: Before) -> Callable[[], None]:
    """Replace attributes of the array type by ones that call `before(array)` first.

    What `before` returns is called after, with whether the attribute did its work: where
    one raises, NumPy tries another. Returns the function that restores the type.

    Raises:
      Gone: one of `names` is not there, or does not stay replaced; nothing is replaced.
    """
    with ExitStack() as stack:
        for name in names:
            if name not in array.__dict__:
                raise Gone(f"{array.__name__}.{name}")
            original = array.__dict__[name]
            wrapper = _wrapped(original, before)
            stack.callback(setattr, array, name, original)
            setattr(array, name, wrapper)
            if array.__dict__[name] is not wrapper:
                raise Gone(f"{array.__name__}.{name} cannot be replaced")
        return stack.pop_all().close


def _wrapped(original: Any, before: Before) -> Any:
    if isinstance(original, property):
        getter = original.fget
        assert getter is not None
        return property(watched(getter, before))
    return watched(original, before)


def watched(function: Any, before: Before) -> Callable[..., Any]:
    """`function`, with `before` called on its first argument, and what that returns, after."""

    def call(*args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        after = before(given[0] if given else None)
        done = False
        try:
            result = function(*args, **kwargs)
            done = True
        finally:
            after(done)
        return result

    return call
