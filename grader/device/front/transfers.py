"""A client's copies between its host and the device, with the buffers of either side.

A host buffer arrives, or leaves, beside the requests (`arriving`). A shard may be a
host buffer whole, or a part of one.
"""

import math
import socket
from collections.abc import Sequence
from typing import Any

from grader.device.front.arrays import DEVICE, Array, Buffer, Placement, Shardings, checked_shape
from grader.device.front.arriving import Arriving, Sent
from grader.device.front.bridge import Bridge
from grader.device.front.handles import Handles
from grader.device.front.holding import Holding, failed
from grader.device.messages import dtypes, wire
from grader.device.messages.dtypes import TOKEN, size
from grader.device.messages.errors import INTERNAL, INVALID, Failed

_ON_THE_WAY = 1 << 20
"""Bytes of a read that the system may hold between the executor and the client."""


class Transfers:
    """The copies of one client from its host and to it."""

    def __init__(
        self, shardings: Shardings, holding: Holding, arrays: Handles, arriving: Arriving,
        bridge: Bridge | None,
    ) -> None:  # fmt: skip
        self._shardings = shardings
        self._holding = holding
        self._desk = holding.desk
        self._arrays = arrays
        self._arriving = arriving
        self._bridge = bridge

    def on_make_array_from_host_buffer(self, op: int, asked: Any) -> None:
        dtype = dtypes.named(asked.dtype)
        shape = checked_shape(asked.shape.dims, size(dtype))
        placement = self._shardings.read(asked.sharding, shape)
        handle = asked.array_handle or self._arrays.new_handle()
        strides = _strides(asked, shape)
        parts = [(asked.host_buffer_handle, shape, strides, range(len(placement.devices)))]
        self._make(handle, dtype, shape, placement, parts)
        self._arriving.remove(asked.host_buffer_handle)

        def fill(response: Any) -> None:
            response.make_array_from_host_buffer_response.array_handle = handle

        self._arrays.reply(op, fill)

    def on_make_arrays_from_host_buffer_shards(self, op: int, asked: Any) -> None:
        handles = list(asked.array_handles) or [self._arrays.new_handle() for _ in asked.specs]
        if len(handles) != len(asked.specs):
            raise Failed(INVALID, f"{len(handles)} handles for {len(asked.specs)} arrays")
        used: set[int] = set()
        for handle, spec in zip(handles, asked.specs, strict=True):
            dtype = dtypes.named(spec.array_spec.dtype)
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

        self._arrays.reply(op, fill)

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
        self._arrays.keep(handle, self._holding.array(dtype, shape, placement, buffers))
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
                self._holding.copied("h2d", buffer, asked, start, None if error else end)
            self._holding.fill([buffer], error)

        data = () if sent.data is None else (sent.data,)
        self._desk.machine.ask(order, heard, *data, file=sent.file)

    def on_make_error_arrays(self, op: int, asked: Any) -> None:
        error = Failed(asked.error.code or INTERNAL, asked.error.message)
        for handle in asked.array_handles:
            self._arrays.fail(handle, error)
        handles = list(asked.array_handles)

        def fill(response: Any) -> None:
            response.make_error_arrays_response.array_handles.extend(handles)

        self._arrays.reply(op, fill)

    def on_copy_to_host_buffer(self, op: int, asked: Any) -> None:
        array = self._arrays.get(asked.array_handle)
        if len(array.buffers) != 1:
            raise Failed(INVALID, "only an array on one device can be copied to the host")
        buffer = array.buffers[0]
        strides = _strides(asked, buffer.shape)
        count, offset = _extent(buffer.shape, strides, max(size(buffer.dtype), 1))
        self._arriving.check(count)
        handle, began = asked.host_buffer_handle, self._desk.now()
        order = self._get(buffer, strides, offset, count)

        def heard(answer: Any, payload: bytearray) -> None:
            error = failed(answer)
            self._read(buffer, answer, began)
            if error is None:
                try:
                    self._arriving.add(handle, Sent(payload, None, len(payload)))
                except Failed as refused:
                    error = refused
            self._arrays.reply(
                op, lambda response: response.copy_to_host_buffer_response.SetInParent(), error
            )

        self._desk.machine.ask(order, heard)

    def _get(self, buffer: Buffer, strides: list[int] | None, offset: int, count: int) -> wire.Get:
        on_device = buffer.memory == DEVICE
        return wire.Get(
            0, buffer.number, strides, offset, count,
            [("out", buffer.device)] if on_device else [],
            self._desk.options.host_link.seconds(buffer.bytes) if on_device else 0.0,
        )  # fmt: skip

    def _read(self, buffer: Buffer, answer: Any, asked: float) -> None:
        """Write of a read, whether it failed or not."""
        if buffer.memory == DEVICE:
            start, end = self._desk.times(answer, asked)
            self._holding.copied("d2h", buffer, asked, start, None if failed(answer) else end)

    def send(self, array: Array) -> int:
        """Send an array's only shard straight to the client, past XLA's protocol.

        Returns the ticket of the parcel, or 0 where the client must ask by the protocol. It also
        must if this fails, and the book has no word of that.
        """
        bridge, buffer = self._bridge, array.buffers[0]
        if bridge is None or bridge.closed or buffer.error or not size(buffer.dtype):
            return 0
        count, ticket, began = buffer.bytes, self._desk.machine.number(), self._desk.now()
        try:
            self._arriving.check(count)
            mine, other = socket.socketpair()
        except (Failed, OSError):
            return 0

        def heard(answer: Any, payload: bytearray) -> None:
            whole = failed(answer) is None
            self._arriving.pass_by(-count)
            if whole:
                self._read(buffer, answer, began)
            bridge.tell(wire.Delivered(ticket, whole))

        with mine:
            mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ON_THE_WAY)
            self._desk.machine.ask(self._get(buffer, None, 0, count), heard, file=mine.fileno())
        self._arriving.pass_by(count)
        bridge.tell(wire.Parcel(ticket, count), end=other)
        return ticket


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
        return math.prod(shape) * itemsize, 0
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
