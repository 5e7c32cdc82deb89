"""The front's side channel: what XLA's client cannot carry, by a socket of its own.

The patch in a program's process (`grader.probes.next_door`) greets, and gets a name for its
session and a folder for large buffers. Then it answers host callbacks and asks for
`memory_stats`. It is a client like any other: nothing that it sends can do more than fail.
"""

import os
import queue
import secrets
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from grader.device.front.holding import Desk
from grader.device.front.ledger import Account
from grader.device.messages import wire
from grader.records.book import Entry

_MOST = 128
"""Programs that may be connected at one time."""


class Bridge:
    """One program's side channel."""

    def __init__(self, line: wire.Line, name: str, folder: Path | None) -> None:
        self.line = line
        self.name = name
        self.folder = folder
        self.greeting = wire.Greeting(0)
        self.account: Account | None = None
        """The account of the program's session, once it has one."""
        self.client = 0
        """The number of that client, once it has one."""
        self.calls: dict[int, tuple[float, float | None, int]] = {}
        """Call -> when it began, when its launch was asked for, and its bytes."""
        self.closed = False
        self._out: queue.SimpleQueue[_Out | None] = queue.SimpleQueue()

    def tell(self, told: wire.Told, *payload: Any, end: socket.socket | None = None) -> None:
        """Have something sent, with one end of a connection if one is given."""
        self._out.put((told, payload, end))

    def send(self) -> None:
        """Send what is to be sent: a program that reads slowly holds up nobody else."""
        while (out := self._out.get()) is not None:
            told, payload, end = out
            try:
                self.line.send(told, *payload, file=None if end is None else end.fileno())
            except OSError:
                return
            if end is not None:
                end.close()

    def close(self) -> None:
        """Hang up."""
        self.closed = True
        self._out.put(None)
        self.line.close()


_Out = tuple[wire.Told, Sequence[Any], socket.socket | None]


class Bridges:
    """All side channels of a device."""

    def __init__(self, desk: Desk, lock: threading.RLock, folder: Path | None) -> None:
        self._desk = desk
        self._lock = lock
        self._folder = folder
        self._found: dict[str, Bridge] = {}
        self._count = 0

    def listen(self, path: Path) -> None:
        """Listen on a socket of this path, in threads of its own."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(_MOST)
        threading.Thread(target=self._accept, args=(listener,), name="bridge", daemon=True).start()

    def find(self, name: str) -> Bridge | None:
        """The side channel with this name."""
        return self._found.get(name)

    def _accept(self, listener: socket.socket) -> None:
        pause = threading.Event()
        while True:
            try:
                end, _ = listener.accept()
            except OSError:  # too many open files, for a while
                pause.wait(0.1)
                continue
            if len(self._found) >= _MOST:
                end.close()
                continue
            threading.Thread(target=self._serve, args=(end,), daemon=True).start()

    def _serve(self, end: socket.socket) -> None:
        bridge = self._open(end)
        threading.Thread(target=bridge.send, daemon=True).start()
        decoder = msgspec.msgpack.Decoder(wire.Said)
        try:
            while True:
                said, payload, file = bridge.line.receive(decoder)
                if file is not None:
                    os.close(file)
                with self._lock:
                    self._hear(bridge, said, payload)
        except (EOFError, OSError, wire.Broken):
            self._close(bridge)

    def _open(self, end: socket.socket) -> Bridge:
        with self._lock:
            self._count += 1
            folder = None
            if self._folder is not None:
                with suppress(OSError):
                    folder = self._folder / str(self._count)
                    folder.mkdir()
                    folder.chmod(0o733)  # a client writes there, and sees nothing
            bridge = Bridge(wire.Line(end), secrets.token_hex(16), folder)
            self._found[bridge.name] = bridge
            return bridge

    def _close(self, bridge: Bridge) -> None:
        with self._lock:
            self._found.pop(bridge.name, None)
            bridge.close()
            for call in list(bridge.calls):
                self._answer(bridge, wire.Returned(call, error="the program has gone"), b"")
            if bridge.folder is not None:
                _remove(bridge.folder)

    def _hear(self, bridge: Bridge, said: wire.Said, payload: bytearray) -> None:
        match said:
            case wire.Greeting():
                bridge.greeting = said
                folder = "" if bridge.folder is None else str(bridge.folder)
                bridge.tell(wire.Welcome(bridge.name, folder))
            case wire.AskStats():
                account = bridge.account
                stats = self._desk.ledger.stats(account) if account else []
                bridge.tell(wire.Stats(stats))
            case wire.Returned():
                if said.call in bridge.calls:
                    self._answer(bridge, said, payload)

    def call(
        self, bridge: Bridge | None, call: wire.Call, payload: bytearray, asked: float | None
    ) -> None:
        """Let a program answer a call of its host; the lock is held.

        `asked` is when the launch was asked for that calls.
        """
        if bridge is None or bridge.name not in self._found:
            error = "a host callback needs the client that comes with the device"
            self._desk.machine.tell(wire.Returned(call.call, error=error))
            return
        bridge.calls[call.call] = (self._desk.now(), asked, len(payload))
        bridge.tell(call, payload)

    def _answer(self, bridge: Bridge, said: wire.Returned, payload: bytes | bytearray) -> None:
        start, asked, count = bridge.calls.pop(said.call)
        self._desk.writer.write(
            Entry(
                "callback",
                start,
                end=self._desk.now(),
                asked=asked,
                bytes=count,
                client=bridge.client,
                returned=len(payload),
                detail=said.error or "",
            )
        )
        self._desk.machine.tell(said, payload)


def _remove(folder: Path) -> None:
    """Remove a client's folder, whatever it has left there."""
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):
                path.unlink()
        folder.rmdir()
