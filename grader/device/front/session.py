"""One client's session: answers its requests, in the language of XLA's IFRT proxy.

A session knows the client's arrays by their handles. Copies from the host and to it are answered
in `transfers`, those between devices in `moving`, programs in `running`; what the client holds is
in `holding`. A request is hostile
input: whatever it asks, the answer is a response or an error, and never the end of the front.
Requests of one client are handled one after the other, under the front's lock.
"""

import queue
import threading
import traceback
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError

from grader.device.front.arrays import DEVICE, Array, Shardings
from grader.device.front.arriving import Arriving
from grader.device.front.bridge import Bridge
from grader.device.front.handles import Fill
from grader.device.front.holding import Holding
from grader.device.front.moving import Moves
from grader.device.front.running import Programs
from grader.device.front.transfers import Transfers
from grader.device.messages import marks
from grader.device.messages.errors import INTERNAL, INVALID, NOT_FOUND, UNIMPLEMENTED, Failed
from grader.device.messages.protocol import Messages
from grader.records.record import PINNED

_MOST_WAITING = 10_000
"""Responses that a client has not read, beyond which its requests wait."""
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


class Session:
    """The requests of one client."""

    def __init__(
        self, messages: Messages, shardings: Shardings, holding: Holding, arriving: Arriving,
        bridge: Bridge | None, number: int, lock: threading.RLock,
    ) -> None:  # fmt: skip
        self._request = messages.find("proxy.IfrtRequest")
        self._response = messages.find("proxy.IfrtResponse")
        self._holding = holding
        self._desk = holding.desk
        self._arriving = arriving
        self._lock = lock
        self.number = number
        """The number by which its client names the session: no other client can guess it."""
        self.arrays: dict[int, Array | Failed] = {}
        self.programs = Programs(messages, shardings, holding, self)
        self._transfers = Transfers(shardings, holding, self, arriving, bridge)
        self._parts = (
            self,
            self._transfers,
            Moves(shardings, holding, self),
            self.programs,
        )
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
        found = (getattr(part, f"on_{kind}", None) for part in self._parts)
        answer = next(filter(None, found), None)
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

    def fail(self, handle: int, error: Failed) -> None:
        """Say why the array of this handle could not be made."""
        self.arrays[handle] = error

    def new_handle(self) -> int:
        """A handle of the server's own."""
        self._handles += 1
        return self._handles

    # --- control

    def on_init(self, op: int, asked: Any) -> None:
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

    def on_check_future(self, op: int, asked: Any) -> None:
        self.reply(op, lambda response: response.check_future_response.SetInParent())

    def on_get_default_device_assignment(self, op: int, asked: Any) -> None:
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

    def on_get_default_layout(self, op: int, asked: Any) -> None:
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
        return self._transfers.send(found) if what == "fetch" else found.buffers[0].place

    def on_check_value_ready(self, op: int, asked: Any) -> None:
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

    # --- the end of an array

    def on_is_array_deleted(self, op: int, asked: Any) -> None:
        found = self.arrays.get(asked.array_handle)
        deleted = found is None or (isinstance(found, Array) and found.deleted)

        def fill(response: Any) -> None:
            response.is_array_deleted_response.deleted = deleted

        self.reply(op, fill)

    def on_delete_array(self, op: int, asked: Any) -> None:
        for handle in asked.array_handle:
            found = self.arrays.get(handle)
            if isinstance(found, Array):
                self._holding.delete(found)
        future = self.new_handle()

        def fill(response: Any) -> None:
            response.delete_array_response.deletion_future_handle = future

        self.reply(op, fill)

    def on_destruct_array(self, op: int, asked: Any) -> None:
        for handle in asked.array_handle:
            found = self.arrays.pop(handle, None)
            if isinstance(found, Array):
                self._holding.forget(found)
        self.reply(op, lambda response: response.destruct_array_response.SetInParent())
