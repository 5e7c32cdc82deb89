"""Looks up the names that probes need and JAX does not promise.

These are the type of a concrete array (`ArrayImpl`), the methods through which its values
reach the host, the functions by which JAX calls a compiled program, the address at which processes
meet, the sessions of the profiler, and what the runtime calls its events in them. No name is
assumed: one that is missing raises `Gone`, and the probe that needed it reports *could not check*.
The names behind staged machines are in `grader.stages.machines`.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import jax
import numpy as np
from jax._src import distributed, pjit
from jax._src.interpreters import pxla
from jax._src.lib import _profiler

from grader.records.book import EntryKind

READS = ("_value", "__array__", "__buffer__", "__dlpack__", "item", "tolist")
"""Attributes of the array type that bring values to the host, on jax 0.11 and 0.12."""
WAITS = ("block_until_ready",)
COPIES = ("copy_to_host_async",)
POLLS = ("is_ready",)
RUNTIME: dict[str, EntryKind] = {
    "CommonPjRtClient::LinearizeIntoImpl": "h2d",
    "CopyToMemorySpace_Direct": "d2d",
    "CompileCpuExecutable": "compile",
    "CommonPjRtBuffer::Await": "wait",
}
"""What the runtime of CPU devices notes for the profiler, once for each shard, on jax 0.12."""
LAUNCH, RENDEZVOUS = "CommonPjRtLoadedExecutable::Execute", "Rendezvous"
"""What it notes as it launches a program, and as one device meets the others for a collective."""
_HOST_EVENTS = 1
"""The level at which it notes them."""


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

    for name in functools.WRAPPER_ASSIGNMENTS:  # else a name tells that somebody watches
        if isinstance(known := getattr(function, name, None), str):
            setattr(call, name, known)
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


def coordinator() -> str | None:
    """The address at which this process met the others, or None where JAX does not say that."""
    found: str | None = getattr(distributed.global_state, "coordinator_address", None)
    return found


class Launched:
    """A compiled program, as JAX launches it."""

    def __init__(self, program: Any) -> None:
        self.program = program
        """What stays the same from launch to launch."""
        self.name = str(program.name)

    def places(self) -> list[str]:
        """The devices of this process on which it runs, such as `cpu:1`."""
        return [f"{device.platform}:{device.id}" for device in self.program._local_devices]

    def text(self) -> str:
        """The optimised program, as HLO. A device next door tells none, and JAX raises."""
        modules = self.program.xla_executable.hlo_modules()
        return "\n".join(module.to_string() for module in modules)


@contextmanager
def executions(run: Callable[[Launched, Sequence[Any]], None]) -> Iterator[None]:
    """While entered, `run` gets the program and the arrays of each launch.

    It is not told of calls that take the shortcut: see `no_shortcut`.

    Raises:
      Gone: JAX runs programs by another function.
    """
    launch = pxla.ExecuteReplicated.__dict__.get("__call__")
    if launch is None:
        raise Gone("ExecuteReplicated.__call__")

    def call(program: Any, *arrays: Any) -> Any:
        run(Launched(program), arrays)
        return launch(program, *arrays)

    with mock.patch.object(pxla.ExecuteReplicated, "__call__", call):
        yield


class Profiler:
    """JAX's profiler of C++ code, below the public functions, which write files.

    In a process, one session can be open. Raises:
      Gone: this version of JAX has no such sessions.
    """

    def __init__(self) -> None:
        for name in ("ProfilerSession", "ProfileOptions", "TraceMe"):
            if not hasattr(_profiler, name):
                raise Gone(f"jaxlib._profiler.{name}")
        self._session = _profiler.ProfilerSession
        if not hasattr(self._session, "stop_and_get_profile_data"):
            raise Gone("ProfilerSession.stop_and_get_profile_data")
        self.span: Callable[[str], Any] = _profiler.TraceMe
        """A context manager that notes its time under a name, where a session is open."""
        self._factory: Any = None

    def start(self, options: Any = None) -> Any:
        """Open a session, of the events of C++ alone or with the `options` of others."""
        if options is None:
            options = _profiler.ProfileOptions()
            options.python_tracer_level = 0
            options.host_tracer_level = _HOST_EVENTS
        options.host_tracer_level = max(options.host_tracer_level, _HOST_EVENTS)
        return self._session(options)

    def stop(self, session: Any) -> Any:
        """End a session; returns its data (`ProfileData`)."""
        return session.stop_and_get_profile_data()

    @staticmethod
    def data_of(serialized: bytes) -> Any:
        """The data of a session that was ended by its `stop`."""
        return jax.profiler.ProfileData.from_serialized_xspace(serialized)

    def replace(self, factory: Callable[[Any], Any]) -> None:
        """From now on, `factory` makes the sessions for which others ask JAX, of their options."""
        self._factory = _profiler.ProfilerSession = factory

    def restore(self) -> str:
        """Let JAX make sessions itself; returns what had been replaced meanwhile, or ""."""
        same = _profiler.ProfilerSession is self._factory and _profiler.TraceMe is self.span
        _profiler.ProfilerSession = self._session
        return "" if same else "JAX's profiler was replaced while the submission ran"


def _none(*_: Any, **__: Any) -> None:
    return None
