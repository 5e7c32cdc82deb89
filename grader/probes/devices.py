"""Starts JAX's backend in a worker, with the devices a job asked for."""

import ctypes
import importlib.util
import math
import pkgutil
import platform as python_platform
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from types import ModuleType

import jax

from grader.device.options import KIND
from grader.records.record import Machine

NEXT_DOOR = "next-door"
_STACK = 8 << 20
"""Bytes of the stack of a thread of Python's."""
_PLATFORMS = {"gpu": "cuda,cpu", NEXT_DOOR: "proxy,cpu"}


def start(platform: str, devices: int, compiled: str = "", *, adds: bool = False) -> Machine:
    """Start `devices` simulated CPU devices for "cpu", or the machine's GPUs for "gpu".

    "next-door" connects to the device that the environment names (`grader.probes.next_door`).
    "target" only compiles: it starts one CPU device, and leaves the GPU's plugin in place.
    A GPU multiplies float32 in full precision: by default it rounds to TF32, and then two right
    programs differ in the fourth digit.
    `compiled` is a folder of compiled programs that JAX reads, and `adds` to; "" for none.

    Raises:
      RuntimeError: a plugin failed, in its own words, or there is no GPU.
      Gone: this version of JAX has no name that the device next door needs.
    """
    jax.config.update(
        "jax_num_cpu_devices", max(devices, 1) if platform in ("cpu", NEXT_DOOR) else 1
    )
    jax.config.update("jax_platforms", _PLATFORMS.get(platform, "cpu"))
    if platform == NEXT_DOOR:
        _small_stacks()
        importlib.import_module("grader.probes.next_door").initialize()
        compiled = ""  # its programs cannot be kept in files
    if platform == "gpu":
        jax.config.update("jax_default_matmul_precision", "highest")
    if compiled:
        jax.config.update("jax_compilation_cache_dir", compiled)
        least = 0.0 if adds else math.inf  # seconds of a compile whose program is kept
        jax.config.update("jax_persistent_cache_min_compile_time_secs", least)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    with _without_plugins() if platform in ("cpu", NEXT_DOOR) else nullcontext():
        found = jax.devices("gpu" if platform == "gpu" else None)
    return Machine(
        platform=found[0].platform,
        device_kind=found[0].device_kind,
        devices=len(found),
        simulated=platform == "cpu" and len(found) > 1,
        jax=jax.__version__,
        python=python_platform.python_version(),
    )


def _small_stacks() -> None:
    """Let threads that others than Python start take 2 MiB each, and not 8, of a worker's memory.

    The client of a device next door starts a thread for each answer that nobody has dealt with.
    """
    threading.stack_size(threading.stack_size() or _STACK)
    libc, attributes = ctypes.CDLL(None), ctypes.create_string_buffer(256)
    with suppress(AttributeError):  # another C library
        libc.pthread_attr_init(attributes)
        libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(_STACK // 4))
        libc.pthread_setattr_default_np(attributes)


def is_next_door() -> bool:
    """Whether arrays lie on a device next door: host and device are then two processes."""
    return bool(jax.devices()[0].device_kind == KIND)


@contextmanager
def _without_plugins() -> Iterator[None]:
    """While entered, JAX finds a plugin that does nothing in the place of each installed one.

    JAX loads every plugin it finds, even when only the CPU is asked for. A GPU's plugin is
    large, and may raise.
    """
    found = importlib.util.find_spec("jax_plugins")
    places = (found and found.submodule_search_locations) or []
    names = [name for _, name, _ in pkgutil.iter_modules(places, "jax_plugins.")]
    stubs = {name: _Nothing(name) for name in names if name not in sys.modules}
    sys.modules.update(stubs)
    try:
        yield
    finally:
        for name in stubs:
            del sys.modules[name]


class _Nothing(ModuleType):
    """A plugin that registers nothing."""

    def initialize(self) -> None:
        """Called by JAX when it loads a plugin."""
