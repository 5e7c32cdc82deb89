"""Looks up the names that probes need and JAX does not promise.

These are the type of a concrete array (`ArrayImpl`), the methods through which its values
reach the host, and the functions by which JAX calls a compiled program. No name is assumed: one
that is missing raises `Gone`, and the probe that needed it reports *could not check*. The names
behind staged machines are in `grader.stages.machines`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import jax
import numpy as np
from jax._src import pjit
from jax._src.interpreters import pxla

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


def no_shortcut() -> ExitStack:
    """Until the stack is closed, every call of a compiled function is made by JAX's Python.

    From the second call on, C++ makes it alone. It copies an array that is free to move to the
    program's device, and the transfer guard, which logged the first such copy, says nothing.

    Raises:
      Gone: JAX decides elsewhere whether C++ may make a call.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(mock.patch.object(pjit, "_get_fastpath_data", _none))
            stack.enter_context(mock.patch.object(pxla.MeshExecutable, "create_cpp_call", _none))
        except AttributeError as error:
            raise Gone(str(error)) from error
        return stack.pop_all()


@contextmanager
def executions(ran_on: Callable[[list[str]], None]) -> Iterator[None]:
    """While entered, `ran_on` gets the devices, such as `cpu:1`, of each program that is run.

    It is not told of calls that take the shortcut: see `no_shortcut`.

    Raises:
      Gone: JAX runs programs by another function.
    """

    def before(program: Any) -> After:
        ran_on([f"{d.platform}:{d.id}" for d in program._local_devices])
        return lambda done: None

    with ExitStack() as stack:
        stack.callback(wrap(pxla.ExecuteReplicated, ["__call__"], before))
        yield


def _none(*_: Any, **__: Any) -> None:
    return None
