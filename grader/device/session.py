"""One client's session: answers its requests, in the language of XLA's IFRT proxy.

Requests about arrays are answered here; those about programs in `grader.device.running`, what
every session shares is in `grader.device.holding`. A request is hostile input: whatever it
asks, the answer is a response or an error, and never the end of the front. Requests of one
client are handled one after the other, under the front's lock.
"""

import queue
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from grader.device import marks, wire
from grader.device.arrays import (
    DEVICE,
    PINNED,
    Array,
    Buffer,
    Placement,
    Shardings,
    checked_shape,
    inside,
    overlap,
    single,
)
from grader.device.arriving import Arriving, Sent
from grader.device.dtypes import NAMES, TOKEN, size
from grader.device.errors import INTERNAL, INVALID, NOT_FOUND, UNIMPLEMENTED, Failed
from grader.device.holding import Holding, failed
from grader.device.protocol import Messages
from grader.device.running import Programs

_MOST_WAITING = 10_000
"""Responses that a client has not read, beyond which its requests wait."""
_ALWAYS_COPY, _REUSE, _DONATE = 1, 2, 3
_RESULTS = (
    "array_handle",
    "array_handles",
    "result_handle",
    "result_handles",
    "result_array_handle",
)
"""Fields by which a request names the arrays that it makes."""
_MAKES = frozenset({"make_array_from_host_buffer", "make_arrays_from_host_buffer_shards",
                    "make_error_arrays"})  # fmt: skip
PINNED_ID = 1 << 16
"""What is added to a device's number for the number of its pinned memory."""

Fill = Callable[[Any], None]


class Session:
    """The requests of one client."""

    def __init__(
        self, messages: Messages, shardings: Shardings, holding: Holding, arriving: Arriving,
        number: int, lock: threading.RLock,
    ) -> None:  # fmt: skip
        self._request = messages.find("proxy.IfrtRequest")
        self._response = messages.find("proxy.IfrtResponse")
        self._shardings = shardings
        self._holding = holding
        self._desk = holding.desk
        self._arriving = arriving
        self._lock = lock
        self.number = number
        """The number by which its client names the session: no other client can guess it."""
        self.arrays: dict[int, Array | Failed] = {}
        self.programs = Programs(messages, shardings, holding, self)
        self._contexts: dict[int, int] = {}
        self._out: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._sequence = 0
        self._handles = 1 << 62
        self._closed = False

    # --- the way of a request

    def handle(self, raw: bytes) -> None:
        """Answer one request.

        Raises:
          Failed: it is no message at all, and the session must end.
        """
        try:
            request = self._request.FromString(raw)
        except DecodeError as error:
            raise Failed(INVALID, f"no request: {error}") from error
        self._hold_back()
        op = request.request_metadata.op_id
        name = request.WhichOneof("request")
        if name is None:
            self.reply(op, error=Failed(UNIMPLEMENTED, "an empty or unknown request"))
            return
        asked = getattr(request, name)
        kind = name.removesuffix("_request")
        answer = getattr(self, f"_on_{kind}", None) or getattr(self.programs, f"on_{kind}", None)
        with self._lock:
            if context := request.request_metadata.user_context_id:
                self._contexts[op] = context
            try:
                if answer is None:
                    raise Failed(UNIMPLEMENTED, f"{kind} is not available on this device")
                if self._desk.machine.lost is not None and kind != "destruct_array":
                    raise self._desk.machine.lost
                answer(op, asked)
            except Failed as error:
                self._poison(kind, asked, error)
                self.reply(op, error=error)
            except Exception as error:  # noqa: BLE001 (a request may be anything)
                traceback.print_exc()
                wrapped = Failed(INTERNAL, f"{type(error).__name__}: {error}")
                self._poison(kind, asked, wrapped)
                self.reply(op, error=wrapped)
            finally:
                self._holding.flush()

    def entry(self, event: Any, start: float, **more: Any) -> None:
        """Write an entry of this client's into the book."""
        self._holding.entry(event, start, **more)

    def _hold_back(self) -> None:
        """Let a client that reads nothing send nothing either."""
        pause = threading.Event()
        while self._out.qsize() > _MOST_WAITING and not self._closed:
            pause.wait(0.01)

    def _poison(self, kind: str, asked: Any, error: Failed) -> None:
        """The arrays that a failed request would have made are errors from now on."""
        for name in _RESULTS:
            if name not in asked.DESCRIPTOR.fields_by_name:
                continue
            if name in ("array_handle", "array_handles") and kind not in _MAKES:
                continue
            value = getattr(asked, name)
            for handle in [value] if isinstance(value, int) else value:
                if handle and handle not in self.arrays:
                    self.arrays[handle] = error
        if kind == "loaded_executable_execute":
            self.programs.poison(asked.result_status_handle, error)

    def reply(self, op: int, fill: Fill | None = None, error: Failed | None = None) -> None:
        """Answer a request: with a response that `fill` fills in, or with an error."""
        response = self._response()
        metadata = response.response_metadata
        metadata.op_id = op
        with self._lock:
            if context := self._contexts.pop(op, 0):
                metadata.destroyed_user_context_ids.append(context)
            if error is not None:
                metadata.status.code, metadata.status.message = error.code, error.message
            elif fill is not None:
                fill(response)
            metadata.seq_num = self._sequence
            self._sequence += 1
            if not self._closed:
                self._out.put(response.SerializeToString())

    def responses(self) -> Iterator[bytes]:
        """All responses, as they come, until the session is closed."""
        while (response := self._out.get()) is not None:
            yield response

    def close(self) -> None:
        """Forget the client and all that it has."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._out.put(None)
            self._arriving.close()
            self.programs.close()
            self.arrays.clear()
            self._holding.close()
            self._desk.ledger.close(self._holding.account)

    # --- arrays by their handles

    def get(self, handle: int) -> Array:
        """An array.

        Raises:
          Failed: there is none, it is deleted, or making it failed.
        """
        found = self.arrays.get(handle)
        if found is None:
            raise Failed(NOT_FOUND, f"there is no array {handle}")
        if isinstance(found, Failed):
            raise found
        if found.deleted:
            raise Failed(INVALID, "Array has been deleted or donated.")
        return found

    def keep(self, handle: int, array: Array) -> None:
        """An array has a handle from now on; what had it before is forgotten."""
        before = self.arrays.get(handle)
        self.arrays[handle] = array
        if isinstance(before, Array):
            self._holding.forget(before)

    def new_handle(self) -> int:
        """A handle of the server's own."""
        self._handles += 1
        return self._handles

    # --- control

    def _on_init(self, op: int, asked: Any) -> None:
        options = self._desk.options

        def fill(response: Any) -> None:
            init = response.init_response
            init.session_id = self.number
            init.platform_name = "cpu"  # others lose solvers, donation or callbacks
            init.platform_version = "a device next door"
            init.platform_id = int.from_bytes(b"nextdoor", "big") >> 1
            init.runtime_type = "next door"
            for number in range(options.devices):
                self._describe(init, number, options.kind)
            init.client_attributes.attributes["serialize_with_sdy"].bool_value = True

        self.reply(op, fill)

    @staticmethod
    def _describe(init: Any, number: int, kind: str) -> None:
        device = init.all_devices.add()
        device.id = device.local_device_id = device.local_hardware_id = number
        device.platform_name = "cpu"
        device.device_kind = kind
        device.default_memory_id = number
        device.memory_ids.extend([number, number + PINNED_ID])
        device.debug_string = device.to_string = f"NextDoor(id={number})"
        init.primary_device_ids.append(number)
        init.addressable_device_ids.append(number)
        for identity, memory, kind_id in ((number, DEVICE, 0), (number + PINNED_ID, PINNED, 1)):
            space = init.memories.add()
            space.id, space.memory_space_kind, space.kind_id = identity, memory, kind_id
            space.device_ids.append(number)
            space.debug_string = space.to_string = f"{memory} of NextDoor(id={number})"

    def _on_check_future(self, op: int, asked: Any) -> None:
        self.reply(op, lambda response: response.check_future_response.SetInParent())

    def _on_get_default_device_assignment(self, op: int, asked: Any) -> None:
        replicas, partitions = asked.num_replicas, asked.num_partitions
        if not 0 < replicas * partitions <= self._desk.options.devices:
            raise Failed(INVALID, f"{replicas} x {partitions} devices, where there are fewer")

        def fill(response: Any) -> None:
            found = response.get_default_device_assignment_response.device_assignment
            found.replica_count, found.computation_count = replicas, partitions
            for partition in range(partitions):
                numbers = [replica * partitions + partition for replica in range(replicas)]
                found.computation_devices.add().replica_device_ids.extend(numbers)

        self.reply(op, fill)

    def _on_get_default_layout(self, op: int, asked: Any) -> None:
        if (mark := marks.decode(asked.dims)) is not None:
            now = self._desk.now()
            self._holding.entry("mark", now, end=now, mark=mark)
        order = ",".join(map(str, reversed(range(len(asked.dims)))))
        layout = f"{{{order}}}"
        if (question := marks.asked(asked.dims)) is not None:
            layout = marks.answering(self._answer(*question))

        def fill(response: Any) -> None:
            response.get_default_layout_response.serialized_pjrt_layout = layout.encode()

        self.reply(op, fill)

    def _answer(self, what: marks.Question, handle: int) -> int:
        """See `marks.Question`. An array that failed is there: there is nothing to wait for."""
        found = self.arrays.get(handle)
        if what == "filled":
            buffers = found.buffers if isinstance(found, Array) else []
            return int(all(buffer.filled or buffer.error for buffer in buffers))
        if not isinstance(found, Array) or found.deleted or len(found.buffers) != 1:
            return 0
        return found.buffers[0].number

    def _on_check_value_ready(self, op: int, asked: Any) -> None:
        arrays = [self.get(handle) for handle in asked.value_handles]
        buffers = [buffer for array in arrays for buffer in array.buffers]
        start = self._desk.now()

        def ready(error: Failed | None) -> None:
            end, count = self._desk.now(), len(arrays)
            self._holding.entry("wait", start, end=end, count=count)
            self.reply(
                op, lambda response: response.check_value_ready_response.SetInParent(), error
            )

        self._holding.when(buffers, ready)

    # --- from the host to the device

    def _on_make_array_from_host_buffer(self, op: int, asked: Any) -> None:
        dtype = _dtype(asked.dtype)
        shape = checked_shape(asked.shape.dims, size(dtype))
        placement = self._shardings.read(asked.sharding, shape)
        handle = asked.array_handle or self.new_handle()
        strides = _strides(asked, shape)
        parts = [(asked.host_buffer_handle, shape, strides, range(len(placement.devices)))]
        self._make(handle, dtype, shape, placement, parts)
        self._arriving.remove(asked.host_buffer_handle)

        def fill(response: Any) -> None:
            response.make_array_from_host_buffer_response.array_handle = handle

        self.reply(op, fill)

    def _on_make_arrays_from_host_buffer_shards(self, op: int, asked: Any) -> None:
        handles = list(asked.array_handles) or [self.new_handle() for _ in asked.specs]
        if len(handles) != len(asked.specs):
            raise Failed(INVALID, f"{len(handles)} handles for {len(asked.specs)} arrays")
        used: set[int] = set()
        for handle, spec in zip(handles, asked.specs, strict=True):
            dtype = _dtype(spec.array_spec.dtype)
            shape = checked_shape(spec.array_spec.shape.dims, size(dtype))
            placement = self._shardings.read(spec.array_spec.sharding, shape)
            parts = []
            for places, host in zip(spec.addressable_shard_indices, spec.host_buffers, strict=True):
                part = checked_shape(host.shape.dims, size(dtype))
                parts.append(
                    (host.host_buffer_handle, part, _strides(host, part), list(places.indices))
                )
                used.add(host.host_buffer_handle)
            self._make(handle, dtype, shape, placement, parts)
        for host_handle in used:
            self._arriving.remove(host_handle)

        def fill(response: Any) -> None:
            response.make_arrays_from_host_buffer_shards_response.array_handles.extend(handles)

        self.reply(op, fill)

    def _make(
        self,
        handle: int,
        dtype: str,
        shape: tuple[int, ...],
        placement: Placement,
        parts: Sequence[tuple[int, tuple[int, ...], list[int] | None, Sequence[int]]],
    ) -> None:
        """Make an array of host buffers: for each its handle, shape, strides, and the shards
        that are made of it. A shard may be the buffer whole, or the part of it that is its own."""
        places = sorted(place for part in parts for place in part[3])
        if places != list(range(len(placement.devices))):
            raise Failed(INVALID, "host buffers that do not make up the array's shards")
        found = [self._sent(part[0], dtype) for part in parts]
        puts = [
            (place, sent, *_laid_out(dtype, part, strides, shape, placement, place, sent.size))
            for sent, (_, part, strides, mine) in zip(found, parts, strict=True)
            for place in mine
        ]
        words = f"{dtype}[{','.join(map(str, shape))}]"
        self._holding.check(self._holding.wanted(dtype, placement), f"an array {words}")
        buffers = self._holding.make_all(dtype, placement)
        self.keep(handle, self._holding.array(dtype, shape, placement, buffers))
        for place, sent, part, strides, offset in puts:
            self._put(buffers[place], sent, part, strides, offset)

    def _sent(self, handle: int, dtype: str) -> Sent:
        return Sent(bytearray(), None, 0) if dtype == TOKEN else self._arriving.look(handle)

    def _put(
        self,
        buffer: Buffer,
        sent: Sent,
        shape: tuple[int, ...],
        strides: list[int] | None,
        offset: int,
    ) -> None:
        """Send one shard to the executor. It has the buffer's shape, or is to be filled up."""
        on_device = buffer.memory == DEVICE
        link = self._desk.options.host_link
        asked = self._desk.now()
        order = wire.Put(
            0, buffer.number, buffer.device, buffer.memory, buffer.dtype, list(shape), strides,
            offset, list(buffer.shape), [("in", buffer.device)] if on_device else [],
            link.seconds(buffer.bytes) if on_device else 0.0,
        )  # fmt: skip

        def heard(answer: Any, payload: bytearray) -> None:
            error = failed(answer)
            start, end = self._desk.times(answer, asked)
            if on_device and buffer.dtype != TOKEN:
                self._copy_entry("h2d", buffer, asked, start, None if error else end)
            self._holding.fill([buffer], error)

        data = () if sent.data is None else (sent.data,)
        self._desk.machine.ask(order, heard, *data, file=sent.file)

    def _copy_entry(
        self, event: str, buffer: Buffer, asked: float, start: float, end: float | None, **more: Any
    ) -> None:
        details = {"memory": buffer.memory, "device": buffer.device, **more}
        self._holding.entry(
            event,
            start,
            end=end,
            asked=asked,
            bytes=buffer.bytes,
            shape=list(buffer.shape),
            dtype=buffer.dtype,
            array=buffer.number,
            **details,
        )

    def _on_make_error_arrays(self, op: int, asked: Any) -> None:
        error = Failed(asked.error.code or INTERNAL, asked.error.message)
        for handle in asked.array_handles:
            self.arrays[handle] = error
        handles = list(asked.array_handles)

        def fill(response: Any) -> None:
            response.make_error_arrays_response.array_handles.extend(handles)

        self.reply(op, fill)

    # --- from the device to the host

    def _on_copy_to_host_buffer(self, op: int, asked: Any) -> None:
        array = self.get(asked.array_handle)
        if len(array.buffers) != 1:
            raise Failed(INVALID, "only an array on one device can be copied to the host")
        buffer = array.buffers[0]
        strides = _strides(asked, buffer.shape)
        count, offset = _extent(buffer.shape, strides, max(size(buffer.dtype), 1))
        self._arriving.check(count)
        on_device = buffer.memory == DEVICE
        handle, began = asked.host_buffer_handle, self._desk.now()
        order = wire.Get(
            0, buffer.number, strides, offset, count,
            [("out", buffer.device)] if on_device else [],
            self._desk.options.host_link.seconds(buffer.bytes) if on_device else 0.0,
        )  # fmt: skip

        def heard(answer: Any, payload: bytearray) -> None:
            error = failed(answer)
            start, end = self._desk.times(answer, began)
            if on_device:
                self._copy_entry("d2h", buffer, began, start, None if error else end)
            if error is None:
                try:
                    self._arriving.add(handle, Sent(payload, None, len(payload)))
                except Failed as refused:
                    error = refused
            self.reply(
                op, lambda response: response.copy_to_host_buffer_response.SetInParent(), error
            )

        self._desk.machine.ask(order, heard)

    # --- between devices

    def _on_copy_arrays(self, op: int, asked: Any) -> None:
        given = self._handles_of(asked.array_handles, asked.result_handles)
        memory = str(asked.memory_kind) if asked.HasField("memory_kind") else None
        if memory not in (None, "", DEVICE, PINNED):
            raise Failed(INVALID, f"there is no memory kind {memory}")
        for handle, array in given:
            before = array.placement
            devices = self._shardings.check(asked.device_ids or before.devices)
            if len(devices) != len(before.devices):
                raise Failed(INVALID, f"{len(before.devices)} shards for {len(devices)} devices")
            after = Placement(
                devices, before.shapes, before.ranges, memory or before.memory, before.tiling
            )
            self._copy(handle, array, after, asked.copy_semantics)
        self._reply_arrays(op, "copy_arrays", asked.result_handles)

    def _handles_of(self, given: Sequence[int], made: Sequence[int]) -> list[tuple[int, Array]]:
        if len(given) != len(made):
            raise Failed(INVALID, f"{len(made)} handles for {len(given)} arrays")
        return [(new, self.get(old)) for old, new in zip(given, made, strict=True)]

    def _reply_arrays(self, op: int, kind: str, handles: Sequence[int]) -> None:
        found = list(handles)

        def fill(response: Any) -> None:
            answer = getattr(response, f"{kind}_response")
            answer.SetInParent()
            answer.array_handles.extend(found)

        self.reply(op, fill)

    def _copy(self, handle: int, array: Array, after: Placement, semantics: int) -> None:
        """Copy each shard to another device or another kind of memory, where it must."""
        before = array.placement
        stays = [
            semantics != _ALWAYS_COPY and old == new and before.memory == after.memory
            for old, new in zip(before.devices, after.devices, strict=True)
        ]
        wanted = self._holding.wanted(array.dtype, after)
        for device, there in zip(after.devices, stays, strict=True):
            if there:
                wanted.pop(device, None)
        self._holding.check(wanted, f"a copy of {_words(array)}")
        buffers = [
            old if there else self._holding.make(array.dtype, old.shape, device, after.memory)
            for old, there, device in zip(array.buffers, stays, after.devices, strict=True)
        ]
        made = self._holding.array(array.dtype, array.shape, after, buffers)
        for old, new, there in zip(array.buffers, buffers, stays, strict=True):
            if not there:
                self._build(new, [wire.Piece(old.number, [], [])], old)
        if semantics == _DONATE:
            self._consume(array)
        self.keep(handle, made)

    def _consume(self, array: Array) -> None:
        """An array was donated: it is gone, but for the buffers that another array holds."""
        self._holding.forget(array)

    def _build(
        self, buffer: Buffer, pieces: list[wire.Piece], source: Buffer, part: int = -1, *,
        silent: bool = False,
    ) -> None:  # fmt: skip
        """Fill a buffer from others; `source` is the one, or one of those, that it comes from.

        `part` is how many bytes come from `source`'s device, all of them if negative. The book
        has no word of it if it is `silent`: a GPU would do nothing.
        """
        count = buffer.bytes if part < 0 else part
        event, engines, seconds = self._way(source, buffer, count)
        asked = self._desk.now()
        order = wire.Build(
            0, buffer.number, buffer.device, buffer.memory, buffer.dtype, list(buffer.shape),
            pieces, engines, seconds,
        )  # fmt: skip

        def heard(answer: Any, payload: bytearray) -> None:
            error = failed(answer)
            start, end = self._desk.times(answer, asked)
            if event and not silent:
                details: dict[str, Any] = {"to": buffer.device} if event == "d2d" else {}
                if source.memory != buffer.memory:
                    details |= {"to_memory": buffer.memory}
                self._copy_entry(
                    event, buffer, asked, start, None if error else end,
                    **{"device": source.device, "memory": source.memory, **details},
                )  # fmt: skip
            self._holding.fill([buffer], error)

        self._desk.machine.ask(order, heard)

    def _way(self, source: Buffer, target: Buffer, count: int) -> tuple[str, list[Any], float]:
        """What a copy is, the engines that do it, and how long they take at least."""
        options = self._desk.options
        match source.memory, target.memory:
            case "device", "device" if source.device != target.device:
                engines = [("out", source.device), ("in", target.device)]
                return "d2d", engines, options.device_link.seconds(count)
            case "device", "device":
                return "copy", [("compute", source.device)], 0.0
            case "device", _:
                return "d2h", [("out", source.device)], options.host_link.seconds(count)
            case _, "device":
                return "h2d", [("in", target.device)], options.host_link.seconds(count)
            case _:
                return "", [], 0.0

    def _on_reshard_arrays(self, op: int, asked: Any) -> None:
        given = self._handles_of(asked.array_handles, asked.result_handles)
        if len(asked.array_specs) != len(given):
            raise Failed(
                INVALID, f"{len(asked.array_specs)} specifications for {len(given)} arrays"
            )
        for (handle, array), spec in zip(given, asked.array_specs, strict=True):
            after = self._shardings.read(spec.sharding, array.shape)
            self._reshard(handle, array, after, asked.copy_semantics)
        self._reply_arrays(op, "reshard_arrays", asked.result_handles)

    def _reshard(self, handle: int, array: Array, after: Placement, semantics: int) -> None:
        """Lay an array out anew: each new shard is put together from the parts that it needs."""
        self._holding.check(
            self._holding.wanted(array.dtype, after), f"{_words(array)}, laid out anew"
        )
        plans = [self._pieces(array, after, place) for place in range(len(after.devices))]
        buffers = self._holding.make_all(array.dtype, after)
        made = self._holding.array(array.dtype, array.shape, after, buffers)
        itemsize = size(array.dtype)
        for buffer, plan in zip(buffers, plans, strict=True):
            pieces = [piece for _, piece in plan]
            far = [found for found in plan if found[0].device != buffer.device]
            source = (far or plan)[0][0] if plan else buffer
            moved = sum(_volume(piece.target) * itemsize for _, piece in far)
            self._build(buffer, pieces, source, moved if source.memory == buffer.memory else -1)
        if semantics == _DONATE:
            self._consume(array)
        self.keep(handle, made)

    def _pieces(
        self, array: Array, after: Placement, place: int
    ) -> list[tuple[Buffer, wire.Piece]]:
        """The parts of old shards that make up a new one: from its own device where it can be."""
        before, target = array.placement, after.ranges[place]
        order = sorted(
            range(len(before.devices)),
            key=lambda old: before.devices[old] != after.devices[place],
        )
        found: list[tuple[Buffer, wire.Piece]] = []
        covered: set[Any] = set()
        for old in order:
            common = overlap(before.ranges[old], target)
            if common is not None and before.ranges[old] not in covered:
                covered.add(before.ranges[old])
                source, to = inside(common, before.ranges[old]), inside(common, target)
                buffer = array.buffers[old]
                found.append((buffer, wire.Piece(buffer.number, source, to)))
        return found

    def _on_bitcast_arrays(self, op: int, asked: Any) -> None:
        given = self._handles_of(asked.array_handles, asked.result_handles)
        if len(asked.array_specs) != len(given):
            raise Failed(
                INVALID, f"{len(asked.array_specs)} specifications for {len(given)} arrays"
            )
        for (handle, array), spec in zip(given, asked.array_specs, strict=True):
            dtype = _dtype(spec.dtype)
            shape = checked_shape(spec.shape.dims, size(dtype))
            after = self._shardings.read(spec.sharding, shape)
            self._bitcast(handle, array, dtype, shape, after, asked.copy_semantics)
        self._reply_arrays(op, "bitcast_arrays", asked.result_handles)

    def _bitcast(
        self, handle: int, array: Array, dtype: str, shape: tuple[int, ...], after: Placement,
        semantics: int,
    ) -> None:  # fmt: skip
        """Read the same bytes as another dtype or shape."""
        if after.devices != array.placement.devices:
            raise Failed(INVALID, "a bitcast stays on its devices")
        sizes = [_volume([(0, n) for n in each]) * size(dtype) for each in after.shapes]
        if sizes != [buffer.bytes for buffer in array.buffers]:
            raise Failed(
                INVALID, f"{_words(array)} does not have the bytes of {dtype}{list(shape)}"
            )
        olds = list(array.buffers)
        if semantics == _DONATE:
            self._consume(array)
        self._holding.check(self._holding.wanted(dtype, after), f"a bitcast of {_words(array)}")
        buffers = self._holding.make_all(dtype, after)
        for old, new in zip(olds, buffers, strict=True):
            self._build(new, [wire.Piece(old.number, [], [])], old, silent=True)
        self.keep(handle, self._holding.array(dtype, shape, after, buffers))

    def _on_remap_arrays(self, op: int, asked: Any) -> None:
        arrays = [self.get(handle) for handle in asked.array_handles]
        specs, handles = asked.plan.output_specs, list(asked.result_handles)
        if len(handles) != len(specs):
            raise Failed(INVALID, f"{len(handles)} handles for {len(specs)} arrays")
        outputs = []
        for spec in specs:
            dtype = _dtype(spec.dtype)
            shape = checked_shape(spec.shape.dims, size(dtype))
            outputs.append((dtype, shape, self._shardings.read(spec.sharding, shape)))
        shards = _planned(asked.plan, arrays, [placement for _, _, placement in outputs])
        made = [
            self._remapped(output, found) for output, found in zip(outputs, shards, strict=True)
        ]
        if asked.copy_semantics == _DONATE:
            for array in arrays:
                self._consume(array)
        for handle, new in zip(handles, made, strict=True):
            self.keep(handle, new)
        self._reply_arrays(op, "remap_arrays", handles)

    def _remapped(
        self, output: tuple[str, tuple[int, ...], Placement], found: dict[int, Buffer]
    ) -> Array:
        dtype, shape, placement = output
        buffers = [found.get(place) for place in range(len(placement.devices))]
        fits = [
            buffer is not None and buffer.device == device and buffer.dtype == dtype
            and buffer.shape == part
            for buffer, device, part in zip(
                buffers, placement.devices, placement.shapes, strict=True
            )
        ]  # fmt: skip
        if not all(fits):
            raise Failed(INVALID, "a plan whose shards do not make up its arrays")
        return self._holding.array(dtype, shape, placement, [each for each in buffers if each])

    # --- parts and wholes

    def _on_assemble_array_from_single_device_arrays(self, op: int, asked: Any) -> None:
        parts = [self.get(handle) for handle in asked.single_device_array_handles]
        buffers = [buffer for part in parts for buffer in part.buffers]
        dtype = buffers[0].dtype if buffers else _dtype(asked.dtype)
        shape = checked_shape(asked.shape.dims, size(dtype))
        placement = self._shardings.read(asked.sharding, shape)
        places = [(buffer.device, buffer.memory) for buffer in buffers]
        if places != [(device, placement.memory) for device in placement.devices]:
            raise Failed(INVALID, "shards that do not lie where the array's sharding says")
        shapes = tuple(buffer.shape for buffer in buffers)
        actual = Placement(
            placement.devices, shapes, placement.ranges, placement.memory, placement.tiling
        )
        made = self._holding.array(dtype, shape, actual, buffers)
        if asked.copy_semantics == _DONATE:
            for part in parts:
                self._consume(part)
        handle = asked.result_handle or self.new_handle()
        self.keep(handle, made)

        def fill(response: Any) -> None:
            response.assemble_array_from_single_device_arrays_response.array_handle = handle

        self.reply(op, fill)

    def _on_disassemble_into_single_device_arrays(self, op: int, asked: Any) -> None:
        array = self.get(asked.array_handle)
        handles = list(asked.result_handles) or [self.new_handle() for _ in array.buffers]
        if len(handles) != len(array.buffers):
            raise Failed(INVALID, f"{len(handles)} handles for {len(array.buffers)} shards")
        made = [self._shard(array, place) for place in range(len(handles))]
        if asked.copy_semantics == _DONATE:
            self._consume(array)
        for handle, shard in zip(handles, made, strict=True):
            self.keep(handle, shard)
        self._reply_arrays(op, "disassemble_into_single_device_arrays", handles)

    def _shard(self, array: Array, place: int) -> Array:
        buffer = array.buffers[place]
        placement = single(buffer.device, buffer.shape, buffer.memory)
        return self._holding.array(array.dtype, buffer.shape, placement, [buffer])

    def _on_fully_replicated_shard(self, op: int, asked: Any) -> None:
        array = self.get(asked.array_handle)
        shard = self._shard(array, 0)
        if asked.copy_semantics == _DONATE:
            self._consume(array)
        handle = asked.result_handle or self.new_handle()
        self.keep(handle, shard)

        def fill(response: Any) -> None:
            response.fully_replicated_shard_response.array_handle = handle

        self.reply(op, fill)

    # --- the end of an array

    def _on_is_array_deleted(self, op: int, asked: Any) -> None:
        found = self.arrays.get(asked.array_handle)
        deleted = found is None or (isinstance(found, Array) and found.deleted)

        def fill(response: Any) -> None:
            response.is_array_deleted_response.deleted = deleted

        self.reply(op, fill)

    def _on_delete_array(self, op: int, asked: Any) -> None:
        for handle in asked.array_handle:
            found = self.arrays.get(handle)
            if isinstance(found, Array):
                self._holding.delete(found)
        future = self.new_handle()

        def fill(response: Any) -> None:
            response.delete_array_response.deletion_future_handle = future

        self.reply(op, fill)

    def _on_destruct_array(self, op: int, asked: Any) -> None:
        for handle in asked.array_handle:
            found = self.arrays.pop(handle, None)
            if isinstance(found, Array):
                self._holding.forget(found)
        self.reply(op, lambda response: response.destruct_array_response.SetInParent())


def _dtype(given: Any) -> str:
    name = NAMES.get(given.kind)
    if name is None:
        raise Failed(UNIMPLEMENTED, f"arrays of the type {given.kind} are not available")
    return name


def _words(array: Array) -> str:
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


def _volume(ranges: Sequence[tuple[int, int]]) -> int:
    count = 1
    for start, end in ranges:
        count *= end - start
    return count


def _strides(given: Any, shape: tuple[int, ...]) -> list[int] | None:
    """The strides that a request gives, in bytes."""
    if not given.HasField("byte_strides"):
        return None
    strides = list(given.byte_strides.strides)
    if len(strides) != len(shape):
        raise Failed(INVALID, f"strides {strides[:32]} for the shape {list(shape)}")
    return strides


def _extent(shape: tuple[int, ...], strides: list[int] | None, itemsize: int) -> tuple[int, int]:
    """How many bytes an array takes in this layout, and where its first element lies."""
    if strides is None or 0 in shape:
        return _volume([(0, each) for each in shape]) * itemsize, 0
    steps = [step * (count - 1) for step, count in zip(strides, shape, strict=True)]
    before = -sum(step for step in steps if step < 0)
    return before + sum(step for step in steps if step > 0) + itemsize, before


def _laid_out(
    dtype: str,
    part: tuple[int, ...],
    strides: list[int] | None,
    shape: tuple[int, ...],
    placement: Placement,
    place: int,
    have: int,
) -> tuple[tuple[int, ...], list[int] | None, int]:
    """How a shard lies in a host buffer of the shape `part`: its shape, strides and offset.

    Raises:
      Failed: the buffer is too short, or has another shape.
    """
    itemsize = size(dtype)
    if itemsize == 0:
        return part, None, 0
    count, offset = _extent(part, strides, itemsize)
    if count > have:
        raise Failed(INVALID, f"a host buffer of {have} bytes, where {count} are needed")
    mine = tuple(end - start for start, end in placement.ranges[place])
    if part in (placement.shapes[place], mine):
        return part, strides, offset
    if part != shape:
        raise Failed(INVALID, f"a host buffer of the shape {list(part)} for a shard {list(mine)}")
    steps = strides if strides is not None else _dense(part, itemsize)
    begin = sum(a * step for (a, _), step in zip(placement.ranges[place], steps, strict=True))
    return mine, steps, offset + begin


def _dense(shape: tuple[int, ...], itemsize: int) -> list[int]:
    """The strides of C order, in bytes."""
    steps: list[int] = []
    step = itemsize
    for count in reversed(shape):
        steps.insert(0, step)
        step *= max(count, 1)
    return steps


def _planned(
    plan: Any, arrays: Sequence[Array], placements: Sequence[Placement]
) -> list[dict[int, Buffer]]:
    """For each result of a plan, its shards by their place.

    Raises:
      Failed: the plan names arrays or shards that are not there.
    """
    shards: list[dict[int, Buffer]] = [{} for _ in placements]

    def there(array: int, output: int) -> None:
        if not (0 <= array < len(arrays) and 0 <= output < len(placements)):
            raise Failed(INVALID, "a plan for arrays that are not there")

    for mapping in plan.mappings:
        there(mapping.in_array, mapping.out_array)
        buffers = arrays[mapping.in_array].buffers
        for source, target in _mapped(mapping, len(buffers)):
            shards[mapping.out_array][target] = buffers[source]
    for output, array, device in _moved(plan):
        there(array, output)
        places = placements[output].devices
        for buffer in arrays[array].buffers:
            if buffer.device == device and device in places:
                shards[output][places.index(device)] = buffer
    return shards


def _moved(plan: Any) -> Iterator[tuple[int, int, int]]:
    """Result, argument and device of each shard of a plan that names devices, not intervals."""
    for output in plan.input_devices_for_output:
        for given in output.input_devices:
            for device in given.device_list.device_ids:
                yield output.out_array, given.in_array, device


def _mapped(mapping: Any, count: int) -> Iterator[tuple[int, int]]:
    """Which shard becomes which, by one mapping of a plan.

    Raises:
      Failed: it names shards that are not there.
    """
    fields = ("from_start", "from_end", "from_step", "to_start", "to_end", "to_step")
    columns = [list(getattr(mapping, name)) for name in fields]
    if len({len(column) for column in columns}) != 1:
        raise Failed(INVALID, "a plan with torn intervals")
    for row in zip(*columns, strict=True):
        if row[2] < 1 or row[5] < 1:
            raise Failed(INVALID, "a plan that steps backwards")
        sources, targets = range(*row[:3]), range(*row[3:])
        if len(sources) != len(targets) or (sources and not 0 <= sources[0] <= sources[-1] < count):
            raise Failed(INVALID, "a plan for shards that are not there")
        yield from zip(sources, targets, strict=True)
