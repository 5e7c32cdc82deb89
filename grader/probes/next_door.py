"""Connects a program's JAX to a device next door; runs in the program's own process.

JAX's client of such a device is complete but for eight things, which are added here: jax 0.11
does not register the backend, host callbacks are refused, `memory_stats` has no numbers,
`is_ready` knows only what was waited for or asked before, arrays with odd strides cannot be sent,
no array can go to the host's own `cpu` devices or come from them, what a lowered program costs is
not estimated, and large arrays come back slowly. The names that JAX does not promise are looked
up and never assumed: without one of them the backend does not start, and says why. The
other end of the side channel is `grader.device.front.bridge`.
"""

import ctypes
import itertools
import math
import os
import queue
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
from jax._src import compiler, literals, xla_bridge
from jax._src.interpreters import pxla
from jaxlib import _ifrt_proxy, _jax, xla_client
from jaxlib.mlir import ir

from grader.device.messages import wire
from grader.device.messages.packing import pack, unpack
from grader.probes.marks import ask
from grader.probes.private import Gone

FOLDER = "GRADER_DEVICE"
"""The environment variable that names the device's folder."""
CALLBACKS = "mhlo.grader_callbacks"
"""The attribute by which a program names its callbacks; see `grader.device.executor.programs`."""
_BACKEND = "proxy"
_KEY = "grader"
_DIRECTORY = "IFRT_PROXY_GRPC_LARGE_TRANSFER_OPTIMIZATION_DIRECTORY"
_THRESHOLD = "IFRT_PROXY_GRPC_LARGE_TRANSFER_OPTIMIZATION_THRESHOLD_BYTES"
_LARGE = 1 << 20
"""Bytes from which on a buffer goes through a file in memory, and comes through a socket of its
own."""
_READS = ("_single_device_array_to_np_array_did_copy", "_to_np_array_did_copy")
"""The methods behind all reads; only newer versions of JAX have the second."""
_PR_SET_TIMERSLACK, _PR_GET_TIMERSLACK = 29, 30
_SLACK = 10_000_000
"""Nanoseconds by which the client's timer may be late: it looks 20,000 times a second whether
it has something to send at leisure, and takes a sixth of a core for that."""


def initialize() -> None:
    """Let JAX start this backend when it is asked for `proxy`. JAX calls it, once."""
    xla_bridge.register_backend_factory(
        _BACKEND, partial(_client, Path(os.environ[FOLDER])), priority=-1
    )


def _client(folder: Path) -> Any:
    """JAX's client of the device whose sockets lie in `folder`.

    Raises:
      Gone: this version of JAX lacks a name that is needed.
      RuntimeError: the device does not answer.
      ValueError: the environment says of memory what JAX's plugin for GPUs refuses.
    """
    _check()
    try:
        channel = Channel(folder / "bridge")
    except OSError as error:
        raise RuntimeError(f"the device next door is not there: {error}") from error
    options = _ifrt_proxy.ClientConnectionOptions()
    options.initialization_data = {_KEY: channel.welcome.bridge.encode()}
    options.connection_timeout_in_seconds = 60
    _set(channel.welcome.folder)
    with _slack():
        client = _ifrt_proxy.get_client(f"grpc://unix:{folder}/socket", options)
    _patch(client, channel)
    return client


def _set(folder: str) -> None:
    """Say to the client what it reads from the environment: now, and with each large buffer."""
    os.environ["IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS"] = "true"
    if folder and os.access(folder, os.W_OK | os.X_OK):
        os.environ |= {_DIRECTORY: folder, _THRESHOLD: str(_LARGE)}


@contextmanager
def _slack() -> Iterator[None]:
    """Threads that are started meanwhile may sleep longer than they ask for. Linux only."""
    if sys.platform != "linux":
        yield
        return
    control = ctypes.CDLL(None).prctl
    before = control(_PR_GET_TIMERSLACK, 0, 0, 0, 0)
    control(_PR_SET_TIMERSLACK, ctypes.c_ulong(_SLACK), 0, 0, 0)
    try:
        yield
    finally:
        control(_PR_SET_TIMERSLACK, ctypes.c_ulong(before), 0, 0, 0)


def _check() -> None:
    """See that every name is there.

    Raises:
      Gone: one is not.
    """
    names = (
        (compiler, "backend_compile_and_load"),
        (pxla, "shard_arg_handlers"),
        (xla_client, "batched_device_put"),
        (xla_client, "generate_pjrt_gpu_plugin_options"),
        (xla_client, "batched_copy_array_to_devices_with_sharding"),
        (pxla, "batched_device_put"),
        (_jax.Device, "memory_stats"),
        (_jax.ArrayImpl, "is_ready"),
        (_jax.ArrayImpl, _READS[0]),
        (_jax, "hlo_module_cost_analysis"),
        (_ifrt_proxy, "get_client"),
    )
    for owner, name in names:
        if not hasattr(owner, name):
            raise Gone(f"{owner.__name__}.{name}")
    if np.ndarray not in pxla.shard_arg_handlers:
        raise Gone("shard_arg_handlers of numpy.ndarray")


def _patch(client: Any, channel: "Channel") -> None:
    """Add what the client lacks. Other clients are left as they are."""
    compiler.backend_compile_and_load = _compiling(
        client, channel, compiler.backend_compile_and_load
    )
    _jax.ArrayImpl.is_ready = _polling(client, _jax.ArrayImpl.is_ready)
    _jax.Device.memory_stats = _stats(client, channel, _jax.Device.memory_stats)
    _jax.hlo_module_cost_analysis = _costing(client, _jax.hlo_module_cost_analysis)
    xla_client.batched_device_put = _putting(client, xla_client.batched_device_put)
    xla_client.batched_copy_array_to_devices_with_sharding = _copying(
        client, xla_client.batched_copy_array_to_devices_with_sharding
    )
    _patch_reads(Parcels(client, channel))
    for kind in (np.ndarray, literals.TypedNdArray):
        pxla.shard_arg_handlers[kind] = _sharding(pxla.shard_arg_handlers[kind])


def _compiling(client: Any, channel: "Channel", original: Any) -> Any:
    """Compiling that keeps host callbacks here, and names them to the device."""

    def compile_and_load(
        backend: Any, module: Any, executable_devices: Any, options: Any, host_callbacks: Any
    ) -> Any:
        if backend is client and host_callbacks:
            table = channel.keep(host_callbacks)
            with module.context:
                text = ir.StringAttr.get(f"{table}:{len(host_callbacks)}")
                module.operation.attributes[CALLBACKS] = text
            host_callbacks = []
        return original(backend, module, executable_devices, options, host_callbacks)

    return compile_and_load


def _polling(client: Any, original: Any) -> Any:
    """Whether an array is there: the client's own answer is no until it has once asked."""

    def is_ready(array: Any) -> bool:
        if original(array):
            return True
        if next(iter(array.devices())).client is not client:
            return False
        return all(ask("filled", shard.data) == 1 for shard in array.addressable_shards)

    return is_ready


def _stats(client: Any, channel: "Channel", original: Any) -> Any:
    def memory_stats(device: Any) -> Any:
        if device.client is not client:
            return original(device)
        # The client collects what it has to send. What it must answer at once, it sends behind
        # all that; no answer for these extents is kept yet.
        client.get_default_layout(np.dtype(np.int8), (next(extents),), device)
        return channel.stats(device.id)

    extents = itertools.count(1 << 40)
    return memory_stats


def _costing(client: Any, original: Any) -> Any:
    """Estimates of a program that is not compiled yet; the host's own client makes them."""

    def hlo_module_cost_analysis(backend: Any, module: Any) -> Any:
        host = xla_bridge.get_backend("cpu") if backend is client else backend
        return original(host, module)

    return hlo_module_cost_analysis


def _plain(array: Any) -> Any:
    """An array whose strides can be sent: the same one, or a copy in C order."""
    if not isinstance(array, np.ndarray | literals.TypedNdArray) or not array.size:
        return array
    given = np.asarray(array)
    odd = any(step <= 0 < count - 1 for step, count in zip(given.strides, given.shape, strict=True))
    return np.ascontiguousarray(given) if odd else array


def _putting(client: Any, original: Any) -> Any:
    def batched_device_put(
        aval: Any, sharding: Any, xs: Any, devices: Any, *more: Any, **named: Any
    ) -> Any:
        pairs = zip(xs, devices, strict=True)
        parts = [_values(x) if _crosses(client, x, [d]) else _plain(x) for x, d in pairs]
        return original(aval, sharding, parts, devices, *more, **named)

    return batched_device_put


def _crosses(client: Any, array: Any, devices: Sequence[Any]) -> bool:
    """Whether a copy to `devices` leads from this device to the host's own, or back."""
    if not isinstance(array, jax.Array):
        return False
    one: Any = next(iter(array.sharding.device_set))
    here = one.client is client
    return any((device.client is client) != here for device in devices)


def _copying(client: Any, original: Any) -> Any:
    """Copies of arrays; those between two clients go through NumPy, which neither refuses."""

    def batched_copy_array_to_devices_with_sharding(
        arrays: Sequence[Any], devices: Sequence[Any], shardings: Sequence[Any], how: Sequence[Any]
    ) -> list[Any]:
        wanted = list(zip(arrays, devices, shardings, how, strict=True))
        crossing = [_crosses(client, array, places) for array, places, _, _ in wanted]
        within = [each for each, crosses in zip(wanted, crossing, strict=True) if not crosses]
        found = iter(original(*map(list, zip(*within, strict=True))) if within else ())
        return [
            _through_host(*each[:3]) if crosses else next(found)
            for each, crosses in zip(wanted, crossing, strict=True)
        ]

    return batched_copy_array_to_devices_with_sharding


def _through_host(array: Any, devices: Sequence[Any], sharding: Any) -> Any:
    shards = [_values(shard.data) for shard in array.addressable_shards]
    if len(shards) != len(devices):
        parts = sharding.addressable_devices_indices_map(array.shape)
        values = np.asarray(array)
        shards = [values[parts[device]] for device in devices]
    return pxla.batched_device_put(array.aval, sharding, shards, devices)


def _values(array: Any) -> np.ndarray[Any, Any]:
    """The values of an array. On one device, they come by the method behind all reads: this is
    a copy from device to device, and no read of the program's."""
    if len(array.sharding.device_set) > 1:
        return np.asarray(array)
    values: np.ndarray[Any, Any] = array._single_device_array_to_np_array_did_copy()[0]
    return values


def _patch_reads(parcels: "Parcels") -> None:
    """Let large arrays come by parcels."""
    array = _jax.ArrayImpl
    for name in _READS:
        if hasattr(array, name):
            setattr(array, name, _reading(parcels, getattr(array, name)))
    starts = (
        (array, "_copy_single_device_array_to_host_async"),
        (_jax, "batched_copy_to_host_async"),
    )
    for owner, name in starts:
        if hasattr(owner, name):
            setattr(owner, name, _starting(parcels, getattr(owner, name)))


def _reading(parcels: "Parcels", original: Any) -> Any:
    def read(array: Any) -> tuple[np.ndarray[Any, Any], bool]:
        found = parcels.take(array)
        return original(array) if found is None else (found, True)

    return read


def _starting(parcels: "Parcels", original: Any) -> Any:
    def start(given: Any) -> None:
        arrays = given if isinstance(given, list) else [given]
        left = [array for array in arrays if not parcels.start(array)]
        if left:
            original(left if isinstance(given, list) else given)

    return start


class Parcels:
    """Reads of large arrays, of which each shard comes through a socket of its own."""

    def __init__(self, client: Any, channel: "Channel") -> None:
        self._client, self._channel = client, channel
        self._started: dict[int, tuple[weakref.ref[Any], _Shards | None]] = {}
        """By the array's `id`; None for one whose copy XLA's own client has started."""

    def start(self, array: Any) -> bool:
        """Start an array's copy, once; returns whether it comes by parcels."""
        if not self._large(array):
            return False
        if (known := self._known(array)) is not None:
            return known[1] is not None
        shards = self._ask(array)
        gone = partial(self._forget, id(array))
        self._started[id(array)] = weakref.ref(array, gone), shards
        return shards is not None

    def take(self, array: Any) -> np.ndarray[Any, Any] | None:
        """The values of an array, or None if they must be read by XLA's protocol."""
        if not self._large(array):
            return None
        known = self._known(array)
        shards = self._ask(array) if known is None else known[1]
        self._forget(id(array))
        parts = [(index, future.result()) for index, future in shards or ()]
        if not parts or any(part is None for _, part in parts):
            return None
        if len(parts) == 1:
            values: np.ndarray[Any, Any] = parts[0][1].view(array.dtype).reshape(array.shape)
        else:
            values = np.empty(array.shape, array.dtype)
            for index, part in parts:
                values[index] = part.view(array.dtype).reshape(values[index].shape)
        values.flags.writeable = False
        return values

    def _known(self, array: Any) -> "tuple[weakref.ref[Any], _Shards | None] | None":
        known = self._started.get(id(array))
        return known if known is not None and known[0]() is array else None

    def _forget(self, number: int, _: Any = None) -> None:
        self._started.pop(number, None)

    def _ask(self, array: Any) -> "_Shards | None":
        """Ask for each part of an array once, wherever else it lies; None if one is refused."""
        found: _Shards = []
        for shard in array.addressable_shards:
            if shard.replica_id == 0:
                ticket = ask("fetch", shard.data)
                if ticket is None:
                    return None
                found.append((shard.index, self._channel.receive(ticket)))
        return found

    def _large(self, array: Any) -> bool:
        """Whether each part of an array is large, and lies on this device."""
        if array.nbytes < _LARGE:
            return False
        sharding = array.sharding
        if next(iter(sharding.device_set)).client is not self._client:
            return False
        dtype = np.dtype(array.dtype)
        shard: int = math.prod(sharding.shard_shape(array.shape)) * dtype.itemsize
        return shard >= _LARGE and (dtype.kind in "biufc" or dtype == jax.numpy.bfloat16)


_Shards = list[tuple[Any, Future[Any]]]
"""What part of an array each is, and its bytes, or None if they do not come."""


def _sharding(original: Any) -> Any:
    def shard(xs: Sequence[Any], *more: Any, **named: Any) -> Any:
        return original([_plain(x) for x in xs], *more, **named)

    return shard


class Channel:
    """The side channel, from the program's end."""

    def __init__(self, path: Path) -> None:
        greeting = _greeting()
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        end.connect(str(path))
        self._line = wire.Line(end)
        self._decoder = msgspec.msgpack.Decoder(wire.Told)
        self._line.send(greeting)
        self.welcome = self._welcomed()
        self._tables: dict[int, list[Callable[..., Any]]] = {}
        self._numbers = itertools.count(1)
        self._answers: queue.SimpleQueue[wire.Stats | None] = queue.SimpleQueue()
        self._asking = threading.Lock()
        self._pool = ThreadPoolExecutor(8, "callback")
        self._parcels, self._delivered = Awaited(), Awaited()
        threading.Thread(target=self._listen, name="next door", daemon=True).start()

    def _welcomed(self) -> wire.Welcome:
        try:
            told, _, _ = self._line.receive(self._decoder)
        except (EOFError, wire.Broken) as error:
            raise OSError("it hung up") from error
        if not isinstance(told, wire.Welcome):
            raise OSError("it did not greet")
        return told

    def keep(self, callbacks: Sequence[Callable[..., Any]]) -> int:
        """Keep a program's callbacks; returns the number of their table."""
        number = next(self._numbers)
        self._tables[number] = list(callbacks)
        return number

    def stats(self, device: int) -> dict[str, int] | None:
        """`memory_stats` of one device, in bytes; None if the device is gone."""
        with self._asking:
            try:
                self._line.send(wire.AskStats())
            except OSError:
                return None
            answer = self._answers.get()
        if answer is None or device >= len(answer.devices):
            return None
        return answer.devices[device]

    def receive(self, ticket: int) -> Future[Any]:
        """The bytes of a read that was asked for; None if they do not come."""
        found: Future[Any] = Future()

        def receive() -> None:
            try:
                data = _received(self._parcels.wait(ticket))
                found.set_result(data if self._delivered.wait(ticket) else None)
            except BaseException as error:  # noqa: BLE001 (whoever waits must hear of it)
                found.set_exception(error)

        threading.Thread(target=receive, name="parcel", daemon=True).start()
        return found

    def _listen(self) -> None:
        try:
            while True:
                told, payload, file = self._line.receive(self._decoder)
                if isinstance(told, wire.Call):
                    self._pool.submit(self._call, told, payload)
                elif isinstance(told, wire.Stats):
                    self._answers.put(told)
                elif isinstance(told, wire.Parcel) and file is not None:
                    self._parcels.put(told.ticket, (socket.socket(fileno=file), told.bytes))
                elif isinstance(told, wire.Delivered):
                    self._delivered.put(told.ticket, told.whole)
        except (EOFError, OSError, wire.Broken):
            self._answers.put(None)
            self._parcels.close()
            self._delivered.close()

    def _call(self, call: wire.Call, payload: bytearray) -> None:
        try:
            function = self._tables[call.table][call.index]
            results = function(*unpack(call.arrays, payload))
            about, data = pack([np.asarray(result) for result in results])
            self._line.send(wire.Returned(call.call, about), *data)
        except OSError:
            return  # the device is gone, and with it whatever waits
        except BaseException as error:  # noqa: BLE001 (a learner's callback may raise anything)
            said = wire.Returned(call.call, error=f"{type(error).__name__}: {error}")
            self._line.send(said)


class Awaited:
    """What came, by tickets, until somebody takes it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._found: dict[int, Any] = {}
        self._closed = False

    def put(self, ticket: int, what: Any) -> None:
        """It has come."""
        with self._changed:
            self._found[ticket] = what
            self._changed.notify_all()

    def wait(self, ticket: int) -> Any:
        """Wait for it; None if nothing comes any more."""
        with self._changed:
            self._changed.wait_for(lambda: ticket in self._found or self._closed)
            return self._found.pop(ticket, None)

    def close(self) -> None:
        """Nothing comes any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _received(parcel: tuple[socket.socket, int] | None) -> np.ndarray[Any, Any] | None:
    """All bytes of a parcel, or None if it is cut off."""
    if parcel is None:
        return None
    end, size = parcel
    data = np.empty(size, np.uint8)
    view, have = memoryview(data), 0
    with end:
        while have < size:
            got = end.recv_into(view[have:])
            if not got:
                return None
            have += got
    return data


def _greeting() -> wire.Greeting:
    """What this program's environment says about memory, as JAX's plugin for GPUs reads it.

    Raises:
      ValueError: the plugin would refuse it.
    """
    said: dict[str, Any] = {**xla_client.generate_pjrt_gpu_plugin_options()}
    return wire.Greeting(os.getpid(), said.get("preallocate"), said.get("memory_fraction"))
