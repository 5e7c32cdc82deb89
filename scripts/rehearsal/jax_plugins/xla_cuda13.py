"""A GPU that is not there: a CPU client that JAX takes for its CUDA backend, for rehearsals.

It stands in the place of NVIDIA's plugin. A process with the folder `scripts/rehearsal` on its
PYTHONPATH finds this module as it would find the plugin, and so does every process that it
starts. `CUDA_REHEARSAL_DEVICES` says how many GPUs there are.

Programs see GPUs: their platform, kind, memory and its statistics. JAX keeps the name that
programs see (`Client.platform`) apart from the name that it lowers for (`_raw_platform`). The
second stays "cpu", so what is compiled is what this machine can run. The CPU's own client is
still there beside it. Times, and the sizes that a GPU's allocator would give, mean nothing here.

Every name that JAX does not promise is looked up here, and `Gone` is raised where one is
missing. JAX prints that, and finds no GPU.
"""

import importlib.machinery
import importlib.util
import math
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax.export
import jax.extend.backend
from jax._src import hardware_utils
from jax._src.export import _export
from jax._src.interpreters import mlir
from jaxlib import xla_client

KIND = "rehearsal"
COUNT = "CUDA_REHEARSAL_DEVICES"
COMPILES_ONLY = "JAX_SKIP_CUDA_CONSTRAINTS_CHECK"
MEMORY = 139 << 30
"""Bytes, about what an H200 has. An array takes the CPU's memory all the same."""
FRACTION, REGION = 0.75, 2 << 20
"""What JAX takes of a GPU's memory unless told, and by how many bytes a pool grows."""


class Gone(Exception):
    """A name that this version of JAX no longer has."""


def initialize() -> None:
    """What JAX calls when it finds this plugin.

    Raises:
      Gone: JAX no longer asks for a GPU's device node where it did.
    """
    if os.environ.get(COMPILES_ONLY):  # for a machine that is not there: the real plugin's work
        _real_plugin().initialize()
        return
    _pose(hardware_utils, "has_visible_nvidia_gpu", lambda _: lambda: True)
    start = partial(_client, int(os.environ[COUNT]))
    jax.extend.backend.register_backend_factory("cuda", start, priority=500, fail_quietly=False)


def _real_plugin() -> Any:
    """The plugin in whose place this one stands.

    Raises:
      ModuleNotFoundError: it is not installed.
    """
    package = importlib.import_module(__name__.rpartition(".")[0])
    places = [place for place in package.__path__ if not __file__.startswith(place)]
    spec = importlib.machinery.PathFinder.find_spec(__name__, places)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("NVIDIA's plugin is not installed: make target")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _client(count: int) -> Any:
    """A client of `count` devices that say that they are GPUs.

    Raises:
      Gone: a name that this leans on is no longer there.
    """
    client: Any = xla_client.make_cpu_client(num_devices=count)
    if getattr(client, "_raw_platform", "") != "cpu":
        raise Gone("Client._raw_platform")
    gpus = {device: _Books(client, device, _options()) for device in client.devices()}

    def posing(name: str, answer: Callable[[Any], Any]) -> None:
        _pose(xla_client.Device, name, partial(_property, gpus.__contains__, answer))

    def method(name: str, answer: Callable[[Any], Any]) -> None:
        _pose(xla_client.Device, name, partial(_method, gpus.__contains__, answer))

    _pose(xla_client.Client, "platform", partial(_property, client.__eq__, lambda _: "gpu"))
    posing("platform", lambda _: "gpu")
    posing("device_kind", lambda _: KIND)
    method("__str__", lambda device: f"cuda:{device.id}")
    method("__repr__", lambda device: f"CudaDevice(id={device.id})")
    method("memory_stats", lambda device: gpus[device].statistics())
    _lower_for_the_cpu(client)
    return client


def _options() -> dict[str, Any]:
    """What a CUDA client is told of memory, as JAX reads it from the environment."""
    return dict(xla_client.generate_pjrt_gpu_plugin_options())


def _pose(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace `owner.name` by `make(what it was)`.

    Raises:
      Gone: it is not there, or does not stay replaced.
    """
    if name not in vars(owner):
        raise Gone(f"{owner.__name__}.{name}")
    made = make(vars(owner)[name])
    setattr(owner, name, made)
    if vars(owner)[name] is not made:
        raise Gone(f"{owner.__name__}.{name} cannot be replaced")


def _property(ours: Callable[[Any], bool], answer: Callable[[Any], Any], before: Any) -> property:
    return property(lambda self: answer(self) if ours(self) else before.__get__(self))


def _method(ours: Callable[[Any], bool], answer: Callable[[Any], Any], before: Any) -> Any:
    return lambda self: answer(self) if ours(self) else before(self)


def _lower_for_the_cpu(client: Any) -> None:
    """Where JAX goes from the name that programs see to the one that it lowers for."""

    def backend(before: Any) -> Any:
        def get_backend(self: Any, optional: bool = False) -> Any:
            ours = self.backend is client and tuple(self.platforms) == ("cpu",)
            return client if ours else before(self, optional)

        return get_backend

    _pose(mlir.ModuleContext, "get_backend", backend)
    for module in (_export, jax.export):
        _pose(module, "default_export_platform", lambda _: lambda: "cpu")


class _Books:
    """One GPU's memory as its allocator would count it, from the arrays that live there."""

    def __init__(self, client: Any, device: Any, options: dict[str, Any]) -> None:
        self._client, self._device = client, device
        self._limit = int(MEMORY * options.get("memory_fraction", FRACTION))
        self._pool = self._limit if options.get("preallocate", True) else REGION
        self._peak = self._largest = self._allocations = 0

    def statistics(self) -> dict[str, int]:
        """What `Device.memory_stats()` gives on a GPU, bytes and counts; and a mark of its own.

        A peak is the highest figure of all calls so far: nothing looks between two calls.
        """
        sizes = self._sizes()
        used = sum(sizes)
        self._peak = max(self._peak, used)
        self._largest = max([self._largest, *sizes])
        self._allocations = max(self._allocations, len(sizes))
        self._pool = max(self._pool, math.ceil(used / REGION) * REGION)
        return {
            "num_allocs": self._allocations,
            "bytes_in_use": used,
            "peak_bytes_in_use": self._peak,
            "largest_alloc_size": self._largest,
            "bytes_limit": self._limit,
            "bytes_reserved": 0,
            "peak_bytes_reserved": 0,
            "largest_free_block_bytes": 0,
            "pool_bytes": self._pool,
            "peak_pool_bytes": self._pool,
            KIND: 1,
        }

    def _sizes(self) -> list[int]:
        """Bytes that each live array has on this GPU; arrays that share a buffer count once."""
        sizes: dict[object, int] = {}
        for array in self._client.live_arrays():
            where = array.sharding
            here = self._device in where.device_set and where.memory_kind == "device"
            if here and not array.is_deleted():
                alone = len(where.device_set) == 1
                name = array.unsafe_buffer_pointer() if alone else (id(array),)
                sizes[name] = math.prod(where.shard_shape(array.shape)) * array.dtype.itemsize
        return list(sizes.values())
