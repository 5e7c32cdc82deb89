"""What one client holds on the device: its buffers, booked, counted and freed.

It stands between the client's requests (`grader.device.front.session`), the accounts
(`grader.device.front.ledger`), the executor (`grader.device.front.machine`) and the book. All of it
happens under the front's lock.
"""

import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from grader.device.front import ledger
from grader.device.front.arrays import DEVICE, Array, Buffer, Placement
from grader.device.front.ledger import Account, Held, Ledger
from grader.device.front.machine import Machine
from grader.device.front.writing import Writer
from grader.device.messages import wire
from grader.device.messages.dtypes import size
from grader.device.messages.errors import EXHAUSTED, INVALID, Failed
from grader.device.options import Options
from grader.records.book import Entry

_MUCH, _SMALL = 1 << 20, 1 << 12
"""Bytes of freed buffers that the executor may still hold, and what each counts at least."""


class Desk:
    """What all clients share: the executor, the accounts, the book, the clock."""

    def __init__(
        self, options: Options, machine: Machine, accounts: Ledger, writer: Writer, birth: float
    ) -> None:
        self.options = options
        self.machine = machine
        self.ledger = accounts
        self.writer = writer
        self.pinned = 0
        """Bytes of pinned host memory in use, of all clients."""
        self._most_pinned = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
        self.birth = birth
        """`time.monotonic()` when the device was born."""

    def pin(self, count: int) -> None:
        """Take pinned host memory.

        Raises:
          Failed: this machine has no more to give.
        """
        if self.pinned + count > self._most_pinned:
            raise Failed(
                EXHAUSTED,
                f"Out of pinned host memory while trying to allocate {count} bytes: "
                f"{self.pinned} of {self._most_pinned} bytes are in use.",
            )
        self.pinned += count

    def now(self) -> float:
        """Seconds since the device's birth."""
        return time.monotonic() - self.birth

    def times(self, done: Any, asked: float) -> tuple[float, float | None]:
        """When something began and ended, as the executor says, within what can be true."""
        now = self.now()
        if not isinstance(done, wire.Done | wire.Compiled) or done.end <= 0.0:
            return asked, None
        start = min(max(done.start - self.birth, asked), now)
        return start, min(max(done.end - self.birth, start), now)


class Holding:
    """The buffers of one client."""

    def __init__(self, desk: Desk, client: int, account: Account) -> None:
        self.desk = desk
        self.client = client
        self.account = account
        self._live: dict[int, Buffer] = {}
        self._dropped: list[int] = []
        self._unsaid = 0
        """Bytes of dropped buffers of which the executor has not been told, or not at once."""

    def entry(self, event: Any, start: float, **more: Any) -> None:
        """Write an entry of this client's."""
        self.desk.writer.write(Entry(event, start, client=self.client, **more))

    def copied(
        self, event: str, buffer: Buffer, asked: float, start: float, end: float | None, **more: Any
    ) -> None:
        """Write of a copy, or of one that failed: then `end` is None."""
        details = {"memory": buffer.memory, "device": buffer.device, **more}
        self.entry(
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

    # --- memory

    def check(self, wanted: dict[int, int], what: str, program: str = "") -> None:
        """See that so many bytes fit on each device.

        Raises:
          Failed: they do not; the book has it.
        """
        try:
            self.desk.ledger.check(self.account, wanted, what)
        except ledger.Full as error:
            now = self.desk.now()
            self.entry(
                "oom",
                now,
                end=now,
                bytes=error.wanted,
                device=error.device,
                in_use=error.in_use,
                program=program,
                detail=str(error),
            )
            raise Failed(EXHAUSTED, str(error)) from error

    def make(
        self, dtype: str, shape: Sequence[int], device: int, memory: str, place: int | None = None
    ) -> Buffer:
        """A new buffer that nothing fills yet; its memory was seen to fit (`check`).

        `place` is that of the buffer whose memory it takes over, if there is one.
        """
        count = math.prod(shape) * size(dtype)
        number = self.desk.machine.number()
        if memory != DEVICE:
            self.desk.pin(count)
        place = number if place is None else place
        buffer = Buffer(number, device, memory, dtype, tuple(shape), count, place)
        self._live[number] = buffer
        in_use = 0
        if memory == DEVICE:
            held = Held(count, buffer.words())
            in_use = self.desk.ledger.take(self.account, device, number, held)
        self._memory_entry("alloc", buffer, in_use)
        return buffer

    def make_all(
        self, dtype: str, placement: Placement, places: Sequence[int] | None = None
    ) -> list[Buffer]:
        """A new buffer for each shard, which were seen to fit; `places` as `make`."""
        news = [None] * len(placement.devices)
        return [
            self.make(dtype, shape, device, placement.memory, place)
            for device, shape, place in zip(
                placement.devices, placement.shapes, places or news, strict=True
            )
        ]

    def wanted(self, dtype: str, placement: Placement) -> dict[int, int]:
        """Bytes that the shards take of each device's memory."""
        if placement.memory != DEVICE:
            return {}
        each = size(dtype)
        return {
            device: math.prod(shape) * each
            for device, shape in zip(placement.devices, placement.shapes, strict=True)
        }

    def free(self, buffer: Buffer) -> None:
        """Give a buffer's memory back. The executor hears of it with `flush`, after the orders
        that still use it."""
        if self._live.pop(buffer.number, None) is None:
            return
        buffer.deleted = True
        in_use = 0
        if buffer.memory == DEVICE:
            in_use = self.desk.ledger.give_back(self.account, buffer.device, buffer.number)
        else:
            self.desk.pinned -= buffer.bytes
        self._memory_entry("free", buffer, in_use)
        self._dropped.append(buffer.number)
        self._unsaid += max(buffer.bytes, _SMALL)

    def flush(self, at_once: bool = False) -> None:
        """Let the executor forget what was freed: with the next order, unless it is much."""
        if self._dropped:
            much = at_once or self._unsaid >= _MUCH
            self.desk.machine.forget(wire.Drop(self._dropped), at_once=much)
            self._dropped = []
            if much:
                self._unsaid = 0

    def _memory_entry(self, event: str, buffer: Buffer, in_use: int) -> None:
        now = self.desk.now()
        self.entry(
            event,
            now,
            end=now,
            bytes=buffer.bytes,
            device=buffer.device,
            shape=list(buffer.shape),
            dtype=buffer.dtype,
            memory=buffer.memory,
            array=buffer.number,
            in_use=in_use,
        )

    # --- arrays

    def array(
        self, dtype: str, shape: Sequence[int], placement: Placement, buffers: list[Buffer]
    ) -> Array:
        """An array that holds these buffers."""
        for buffer in buffers:
            buffer.holders += 1
        return Array(dtype, tuple(shape), placement, buffers)

    def forget(self, array: Array) -> None:
        """An array is gone; so are the buffers that no other array holds."""
        if not array.released:
            array.released = True
            for buffer in array.buffers:
                buffer.holders -= 1
                if buffer.holders == 0:
                    self.free(buffer)

    def delete(self, array: Array) -> None:
        """Delete an array's buffers, whoever holds them: it was deleted or donated."""
        for buffer in array.buffers:
            self.free(buffer)
        self.forget(array)

    def close(self) -> None:
        """Give everything back."""
        for buffer in list(self._live.values()):
            if not (buffer.filled or buffer.error):
                self.fail([buffer], Failed(INVALID, "the client has gone"))
            self.free(buffer)
        self.flush(at_once=True)

    # --- what fills buffers

    def fill(self, buffers: Sequence[Buffer], error: Failed | None) -> None:
        """These buffers have what they were made for, or never will."""
        for buffer in buffers:
            if not (buffer.filled or buffer.error):
                buffer.filled, buffer.error = error is None, error
                ready, buffer.ready = buffer.ready, []
                for call in ready:
                    call()

    def fail(self, buffers: Sequence[Buffer], error: Failed) -> None:
        """Nothing will ever fill these buffers; the executor waits for them no longer."""
        numbers = [buffer.number for buffer in buffers]
        self.desk.machine.tell(wire.Fail(numbers, error.code, error.message))
        self.fill(buffers, error)

    @staticmethod
    def when(buffers: Sequence[Buffer], call: Callable[[Failed | None], None]) -> None:
        """Call back once all buffers are filled, with the first error there was."""
        left = [buffer for buffer in buffers if not (buffer.filled or buffer.error)]
        count = len(left)

        def one_less() -> None:
            nonlocal count
            count -= 1
            if count <= 0:
                call(next((each.error for each in buffers if each.error), None))

        if not left:
            one_less()
        for buffer in left:
            buffer.ready.append(one_less)


def failed(answer: Any) -> Failed | None:
    """The error that an answer of the executor's says, if it says one."""
    if isinstance(answer, wire.Done) and answer.code:
        return Failed(answer.code, answer.message)
    return None
