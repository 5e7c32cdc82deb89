"""Stages machines that are not there: GPUs or TPUs that JAX lists, plugins that fail.

JAX's own code runs on the stage. Only what it would have asked the machine is replaced:
which plugins are installed, what they give, whether a GPU is visible. So all public functions
agree, even one imported by `from jax import devices`, and errors carry JAX's own texts. Staged
devices answer questions and hold no arrays. Drives use this module; the record is not written
here. What JAX says as it starts on such a machine is in `grader.stages.starting`.
"""

import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from types import ModuleType
from typing import Any, Literal, NoReturn
from unittest import mock

import jax
import jax.extend.backend

from grader.probes.private import Gone as Gone

Fault = Literal["", "plugin raises", "no plugin", "no device"]
"""`plugin raises`: the plugin fails as it starts. `no plugin` and `no device`: there is
none, though JAX_PLATFORMS asks for it."""


@dataclass(frozen=True)
class Made:
    """The make of the devices that a machine has beside the CPU, and what JAX calls them.

    `platforms` is what JAX_PLATFORMS says there: the first one is the default backend.
    """

    name: str
    plugin: str
    platform: str
    kind: str
    platforms: str = ""


NVIDIA = Made("GPU", "cuda", "gpu", "NVIDIA H200")
AMD = Made("AMD GPU", "rocm", "gpu", "AMD Instinct MI300X")
GOOGLE = Made("TPU", "tpu", "tpu", "TPU v5")
CPU_FIRST = replace(NVIDIA, platforms="cpu,cuda")
AMD_AFTER_CPU = replace(AMD, platforms="cpu,rocm")
NO_GPUS = "FAILED_PRECONDITION: No visible GPU devices."
"""What a plugin says that finds none."""


@dataclass(frozen=True)
class Stage:
    """The devices of a machine."""

    gpus: list[Any]
    cpus: list[Any]
    others: Sequence[Any] = ()


def real() -> Stage:
    """The devices of the real machine, of all its backends."""
    found = [d for client in jax.extend.backend.backends().values() for d in client.devices()]
    return Stage(
        [d for d in found if d.platform == "gpu"], [d for d in found if d.platform == "cpu"]
    )


@contextmanager
def machine(
    *, gpus: int = 0, made: Made = NVIDIA, broken: Fault = "", said: str = NO_GPUS
) -> Iterator[Stage]:
    """While entered, JAX finds `gpus` GPUs beside the CPU, or the fault `broken`.

    A plugin that fails as it starts says `said`.

    With `made=GOOGLE` they are TPUs, and there is no GPU. With `CPU_FIRST` they are not the
    default backend. No backend has started when the block begins, as in a fresh process.

    Raises:
      Gone: a name that this needs is no longer there, or JAX does not see the stage.
    """
    bridge = bridge_module()
    cpu = bridge._backends["cpu"]
    client = staged_client(gpus, type(cpu), made)
    registered = {"cpu": registration(bridge, lambda: cpu, 0)}
    if gpus or broken in ("plugin raises", "no device"):
        start = partial(_fails, said) if broken else lambda: client
        registered[made.plugin] = registration(bridge, start, 500)
    forced = made.platforms or made.plugin * (broken in ("no plugin", "no device"))
    visible = made.plugin == "cuda" and (gpus > 0 or broken in ("plugin raises", "no plugin"))
    with replaced(bridge, registered, visible, forced):
        if not broken:
            _prove(client.devices(), made)
        found, none = client.devices(), list[Any]()
        gpus_and_others = (found, none) if made.platform == "gpu" else (none, found)
        yield Stage(gpus_and_others[0], cpu.devices(), gpus_and_others[1])


def fresh(submission: ModuleType) -> ModuleType:
    """The submission, imported again: what it keeps between calls stays on one machine.

    If the import raises, every use of the module raises the same error. A fault of the
    staged machine is then the answer of each of the module's functions.
    """
    path = str(submission.__file__)
    module = _empty(submission.__name__, path)
    try:
        exec(compile("".join(linecache.getlines(path)), path, "exec"), module.__dict__)
    except Exception as error:  # noqa: BLE001 (each of its functions raises it again)
        raising = _empty(submission.__name__, path)
        vars(raising)["__getattr__"] = partial(_raise, error)
        return raising
    return module


def _empty(name: str, path: str) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = path
    return module


def _raise(error: Exception, _name: str) -> NoReturn:
    raise error


def bridge_module() -> Any:
    """The module that holds JAX's backends, in which `jax.devices` is defined.

    Raises:
      Gone: this version of JAX keeps them elsewhere.
    """
    name = getattr(jax.devices, "__globals__", {}).get("__name__", "")
    if name not in sys.modules or "cpu" not in getattr(sys.modules[name], "_backends", ()):
        raise Gone(f"jax.devices is not where the backends are ({name or 'not a function'})")
    return sys.modules[name]


def registration(bridge: Any, start: Callable[[], Any], priority: int) -> Any:
    """What a plugin leaves with JAX: how its client starts, and its priority.

    Raises:
      Gone: JAX takes something else from its plugins now.
    """
    try:
        return bridge.BackendRegistration(start, priority, fail_quietly=False)
    except (AttributeError, TypeError) as error:
        raise Gone(str(error)) from error


def _fails(said: str) -> NoReturn:
    raise jax.errors.JaxRuntimeError(said)


class _Answering(mock.NonCallableMock):
    """Something that is not there, and has answers to what it is asked.

    A MagicMock would do, but takes much longer to make, and a drive makes hundreds. Only what is
    asked for without an answer is one.
    """

    def _get_child_mock(self, /, **wanted: Any) -> Any:
        return mock.MagicMock(**wanted)


def staged_client(count: int, kind: type, made: Made = NVIDIA) -> Any:
    """A client of `count` devices that answers questions only; `kind` is the type it stands for."""
    client: Any = _Answering(spec_set=kind, platform=made.platform)
    devices = [_device(index, made, client) for index in range(count)]
    client.devices = client.local_devices = client._get_all_devices = lambda: list(devices)
    client.device_count = client.local_device_count = lambda: count
    client.process_index = lambda: 0
    return client


def _device(index: int, made: Made, client: Any) -> Any:
    return _device_class(made)(
        spec_set=jax.Device,
        id=index,
        local_hardware_id=index,
        process_index=0,
        platform=made.platform,
        device_kind=made.kind,
        client=client,
    )


@cache
def _device_class(made: Made) -> type[_Answering]:
    class Device(_Answering):
        def __str__(self) -> str:
            return f"{made.plugin}:{self.id}"

        def __repr__(self) -> str:
            return f"{made.plugin.capitalize()}Device(id={self.id})"

    return Device


@contextmanager
def replaced(bridge: Any, registered: Any, visible: bool, forced: str) -> Iterator[None]:
    """While entered, JAX finds these backends (name -> `registration`), and none has started.

    `visible` is whether a GPU's device node is there, `forced` is JAX_PLATFORMS.

    Raises:
      Gone: a name that this leans on is no longer there.
    """
    before = jax.config.jax_platforms
    with ExitStack() as stack:
        try:
            for patch in _patches(bridge, registered, visible):
                stack.enter_context(patch)
            kept = [bridge.get_backend, bridge.local_devices, bridge.process_count]
            stack.callback(_forget, kept)
            stack.callback(jax.config.update, "jax_platforms", before)
            _forget(kept)
        except AttributeError as error:
            raise Gone(str(error)) from error
        jax.config.update("jax_platforms", forced)
        yield


def _patches(bridge: Any, registered: Any, visible: bool) -> list[Any]:
    """Make JAX forget what it learned of the machine; a patch whose name is gone raises."""
    return [
        mock.patch.object(bridge, "_backends", {}),
        mock.patch.object(bridge, "_backend_errors", {}),
        mock.patch.object(bridge, "_default_backend", None),
        mock.patch.object(bridge, "_backend_factories", registered),
        mock.patch.object(bridge.hardware_utils, "has_visible_nvidia_gpu", return_value=visible),
    ]


def _forget(kept: list[Any]) -> None:
    """Clear the caches of functions that keep a machine's answers."""
    for function in kept:
        function.cache_clear()


def _prove(gpus: list[Any], made: Made) -> None:
    """Look at the stage as a learner would."""
    shown = jax.devices()
    default_is_cpu = {device.platform for device in shown} == {"cpu"}
    if not gpus:
        agrees = default_is_cpu
    elif made.platforms.startswith("cpu"):  # the first one is the default backend
        agrees = default_is_cpu and jax.devices(made.platform) == gpus
    else:
        agrees = shown == gpus
    if not agrees:
        raise Gone(f"a stage with {len(gpus)} GPUs shows as {shown}")
