"""One worker process, seen from outside: frames in and out, caps, deadlines, its end.

Runs in the grader's own process. A `Worker` is a context manager: leaving it kills the
process and everything it started. How the process came to be is in `grader.running.launch`.
"""

import os
import select
import signal
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import BinaryIO, Protocol, Self

import msgspec

from grader.records.record import Outcome
from grader.running.messages import BROKE, MAX_FRAME, Ended, frame, frame_length

MAX_OUTPUT = 1 << 24
PIPE = 1 << 20
"""More bytes than a pipe holds: a process that prints on and on is not read to its end."""
TAIL = 4000
MAX_STACK = 1 << 18
STACK_SECONDS = 3.0
"""How long after its deadline a process may take to print where it is."""
LOOK_SECONDS = 0.2
"""How often a wait looks whether it was cancelled."""
NO_ROOM = ", and told nothing more; often, a list or dict contains itself, or lies deep in others"
_OFTEN = {6: "; a library gave up, often for lack of memory", 9: "; often a lack of memory"}


class Failed(Exception):
    """A worker gave no answer; carries how it ended."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


class Control(Protocol):
    """The lifeline of one worker."""

    fences: list[str]

    def ended(self) -> Ended | None:
        """Wait a moment for the end and say how it came; None if it does not come."""
        ...

    def lost(self) -> str:
        """Which part of the grader has died, so that no end will be reported; "" if none."""
        ...

    def cancel(self) -> None:
        """Kill without waiting."""
        ...

    def close(self) -> None:
        """Kill and wait."""
        ...


class Worker(AbstractContextManager["Worker"]):
    """One worker process, seen from outside."""

    def __init__(
        self, inbox: int, result: int, output: int, stack: BinaryIO, control: Control
    ) -> None:
        self.told = 0
        """How many of the next messages it has had already, from another command."""
        self._inbox, self._result, self._output = inbox, result, output
        self._stack, self._control = stack, control
        self._pending = bytearray()
        self._printed = bytearray()
        self._count = 0
        self._started = time.monotonic()
        self._cancelled = False
        self._open = {result, output}

    def ask(self, message: msgspec.Struct, seconds: float) -> bytes:
        """Send a message and return the body of the answer.

        Raises:
          Failed: no answer within `seconds`, too much output, or the process ended.
        """
        self.tell(message)
        return self.answer(seconds)

    def tell(self, message: msgspec.Struct) -> None:
        """Send a message without waiting; a dead worker is noticed by `answer`."""
        if self.told:
            self.told -= 1
            return
        view = memoryview(frame(message))
        try:
            while view:
                view = view[os.write(self._inbox, view) :]
        except BrokenPipeError:
            return

    def answer(self, seconds: float) -> bytes:
        """Return the body of the next frame.

        Raises:
          Failed: as `ask`.
        """
        deadline = time.monotonic() + seconds
        while (body := self._take()) is None:
            left = deadline - time.monotonic()
            if self._cancelled:
                raise Failed(self._outcome("killed", "stopped by the grader"))
            ended = None if self._result in self._open else self._ended()
            if left <= 0 or (ended and self._was_late(ended)):
                self._await_stack()
                raise Failed(self._outcome("timeout", f"still running after {seconds:.0f} s"))
            if ended:
                raise Failed(ended)
            self._pump(min(left, LOOK_SECONDS))
        return body

    def _take(self) -> bytes | None:
        if len(self._pending) < 8:
            return None
        length = frame_length(bytes(self._pending[:8]))
        if length > MAX_FRAME:
            raise Failed(self._outcome("garbled", f"an answer of {length:,} bytes"))
        if len(self._pending) < 8 + length:
            return None
        body = bytes(self._pending[8 : 8 + length])
        del self._pending[: 8 + length]
        return body

    def _pump(self, seconds: float) -> None:
        for fd in select.select(list(self._open), [], [], seconds)[0]:
            chunk = os.read(fd, 1 << 18)
            if not chunk:
                self._open.discard(fd)
            elif fd == self._result:
                self._pending += chunk
            else:
                self._hear(chunk)

    def _hear(self, chunk: bytes) -> None:
        self._count += len(chunk)
        self._printed = (self._printed + chunk)[-TAIL:]
        if self._count > MAX_OUTPUT:
            raise Failed(self._outcome("flooded", f"more than {MAX_OUTPUT >> 20} MiB of output"))

    def forget_output(self) -> None:
        """Drop what was printed so far: it did not come from the learner's code."""
        self.output()
        self._printed.clear()
        self._count = 0

    def output(self) -> str:
        """The tail of what was printed so far."""
        left = PIPE
        while (
            left > 0 and self._output in self._open and select.select([self._output], [], [], 0)[0]
        ):
            chunk = os.read(self._output, min(left, 1 << 18))
            if not chunk:
                self._open.discard(self._output)
            left -= len(chunk)
            self._printed = (self._printed + chunk)[-TAIL:]
        return self._printed.decode("utf-8", "replace")

    def _await_stack(self) -> None:
        """Give the stack a little more time: a fork bomb, say, may starve what prints it."""
        deadline = time.monotonic() + STACK_SECONDS
        while not (self.stack() or self._cancelled or time.monotonic() > deadline):
            time.sleep(0.02)

    def _was_late(self, ended: Outcome) -> bool:
        """Whether it crashed as it printed its stack because its time was over.

        faulthandler looks at a thread that runs meanwhile, and may stumble over what it finds.
        """
        return ended.kind == "killed" and self.stack().startswith("Timeout (")

    def stack(self) -> str:
        """Where the process was when it crashed, or shortly before its deadline."""
        self._stack.seek(0)
        return self._stack.read(MAX_STACK).decode("utf-8", "replace")

    def _ended(self) -> Outcome:
        ended = self._control.ended()
        if ended is None and (lost := self._control.lost()):
            return self._outcome("broken", lost)
        if ended is None:
            return self._outcome("garbled", "it closed its side of the line to the grader")
        if ended.signal:
            what = signal.strsignal(ended.signal) or "unknown"
            often = _OFTEN.get(ended.signal, "")
            return self._outcome("killed", f"killed by signal {ended.signal} ({what}{often})")
        text = f"the process ended with code {ended.code} before the run was over"
        if ended.code == BROKE and (stack := self.stack().splitlines()):
            text = f"the grader's own part of the process broke ({stack[-1]})"
        elif ended.code == BROKE:
            text += NO_ROOM
        return self._outcome("exited", text)

    def _outcome(self, kind: str, message: str) -> Outcome:
        seconds = time.monotonic() - self._started
        return msgspec.convert(
            {"kind": kind, "message": message, "output": self.output(), "seconds": seconds}, Outcome
        )

    @property
    def fences(self) -> list[str]:
        """What fenced the process; known once it has been closed."""
        return self._control.fences

    def has_ended(self) -> bool:
        """Whether no process is there to answer any more."""
        poll = select.poll()
        poll.register(self._result, 0)  # the end of the other side is always told
        return bool(poll.poll(0))

    def cancel(self) -> None:
        """Kill the process without waiting; safe while another thread waits for it."""
        self._cancelled = True
        self._control.cancel()

    def close(self) -> None:
        """Kill the process and all it started; wait until they are gone."""
        if self._inbox >= 0:
            os.close(self._inbox)
            self._control.close()
            os.close(self._result)
            os.close(self._output)
            self._stack.close()
            self._inbox = -1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self
