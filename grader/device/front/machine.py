"""The front's side of the executor: it sends orders, and hears what became of them.

An answer is heard under the front's lock. When the executor dies, everything that was asked
of it fails with `Lost`, and so does what is asked later.
"""

import itertools
import socket
import threading
import time
import traceback
from collections.abc import Buffer, Callable
from typing import Any

import msgspec

from grader.device.messages import wire
from grader.device.messages.errors import INTERNAL, Failed, Lost

Heard = Callable[[Any, bytearray], None]
"""Called with the answer, or with a `Done` that failed; and the payload."""


class Machine:
    """The executor, as the front sees it."""

    def __init__(self, end: socket.socket, lock: threading.RLock) -> None:
        self._line = wire.Line(end, trusted=True)
        self._lock = lock
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Heard] = {}
        self.lost: Lost | None = None

    def hello(self) -> wire.Hello:
        """The executor's first words; waits for them.

        Raises:
          EOFError: it died before.
        """
        message, _, _ = self._line.receive(msgspec.msgpack.Decoder(wire.Answer))
        if not isinstance(message, wire.Hello):
            raise EOFError
        return message

    def listen(
        self, call: Callable[[wire.Call, bytearray], None], lost: Callable[[], None]
    ) -> None:
        """Hear answers in a thread of its own; `call` hears a program call its host.

        `lost` is called once, when the executor has died.
        """
        threading.Thread(
            target=self._listen, args=(call, lost), name="machine", daemon=True
        ).start()

    def _listen(
        self, call: Callable[[wire.Call, bytearray], None], lost: Callable[[], None]
    ) -> None:
        decoder = msgspec.msgpack.Decoder(wire.Answer)
        try:
            while True:
                answer, payload, _ = self._line.receive(decoder)
                with self._lock:
                    if isinstance(answer, wire.Call):
                        call(answer, payload)
                    elif not isinstance(answer, wire.Hello):
                        heard = self._waiting.pop(answer.op, None)
                        if heard is not None:
                            _hear(heard, answer, payload)
        except (EOFError, OSError, wire.Broken) as error:
            why = "its executor died" if isinstance(error, EOFError | OSError) else str(error)
        with self._lock:
            self._lose(why)
            lost()

    def _lose(self, why: str) -> None:
        self.lost = Lost(why)
        self._line.close()
        waiting, self._waiting = self._waiting, {}
        for op, heard in waiting.items():
            done = wire.Done(op, code=self.lost.code, message=self.lost.message)
            _hear(heard, done, bytearray())

    def drained(self, patience: float) -> bool:
        """Wait until nothing that was asked is under way; returns whether that came to pass."""
        deadline = time.monotonic() + patience
        while self._waiting and time.monotonic() < deadline:
            time.sleep(0.002)
        return not self._waiting

    def number(self) -> int:
        """A number for a buffer or a program that nothing else has."""
        return next(self._numbers)

    def ask(
        self,
        order: wire.Put | wire.Get | wire.Build | wire.Compile | wire.Launch | wire.Text,
        heard: Heard,
        *payload: Buffer,
        file: int | None = None,
    ) -> None:
        """Send an order with an `op`, which is set here; `heard` is called with its answer.

        Raises:
          Lost: the executor has died; nothing was sent, and `heard` is not called.
        """
        if self.lost is not None:
            raise self.lost
        order.op = next(self._numbers)
        self._waiting[order.op] = heard
        self.tell(order, *payload, file=file)

    def tell(self, order: wire.Order, *payload: Buffer, file: int | None = None) -> None:
        """Send an order that has no answer. One that cannot be sent is lost with the executor."""
        try:
            self._line.send(order, *payload, file=file)
        except OSError:
            return  # the listener hears of it

    def forget(self, order: wire.Drop, at_once: bool) -> None:
        """As `tell`; if not `at_once`, together with the next order."""
        if at_once:
            self.tell(order)
        else:
            self._line.later(order)


def _hear(heard: Heard, answer: Any, payload: bytearray) -> None:
    """Pass on an answer. If whoever asked cannot deal with it, the answer is that error."""
    try:
        heard(answer, payload)
    except Exception as error:  # noqa: BLE001 (one client's trouble must not silence the others)
        code, message = INTERNAL, f"{type(error).__name__}: {error}"
        if isinstance(error, Failed):
            code, message = error.code, error.message
        else:
            traceback.print_exc()
        if not (isinstance(answer, wire.Done) and answer.code):
            heard(wire.Done(answer.op, code=code, message=message), bytearray())
