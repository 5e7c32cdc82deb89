"""Starts JAX's backend in a worker, with the devices a job asked for."""

import importlib.util
import pkgutil
import platform as python_platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType

import jax

from grader.record import Machine


def start(platform: str, devices: int) -> Machine:
    """Start `devices` simulated CPU devices, or the machine's GPUs.

    For "target", which compiles only, the CPU beside the GPU's plugin.

    Raises:
      RuntimeError: the plugin's own error, or no GPU.
    """
    jax.config.update("jax_num_cpu_devices", max(devices, 1) if platform == "cpu" else 1)
    jax.config.update("jax_platforms", "cuda,cpu" if platform == "gpu" else "cpu")
    with _without_plugins() if platform == "cpu" else nullcontext():
        found = jax.devices("gpu" if platform == "gpu" else None)
    return Machine(
        platform=found[0].platform,
        device_kind=found[0].device_kind,
        devices=len(found),
        simulated=platform == "cpu" and len(found) > 1,
        jax=jax.__version__,
        python=python_platform.python_version(),
    )


@contextmanager
def _without_plugins() -> Iterator[None]:
    """JAX loads every plugin it finds, also where the CPU alone is asked for.

    A GPU's is large, and may raise. In the place of each, JAX finds one that does nothing.
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
        """What JAX calls."""
