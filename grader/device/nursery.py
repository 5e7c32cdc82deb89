"""A process that has imported JAX and gRPC once, and forks devices, which are ready at once.

It starts no thread and no backend, so that a fork is safe. `Nursery` is its handle, in a
process that never imports JAX; the process itself is `python -m grader.device.nursery FD`. A
request on its socket comes with the descriptors that a device's processes inherit; the answer
comes with a descriptor for each of the two processes, by which their end is waited for. When
the socket closes, the nursery ends; devices end with their own starters.
"""

import importlib
import itertools
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import NoReturn

import msgspec

from grader.device.options import Options
from grader.device.start import (
    END_SECONDS,
    START_SECONDS,
    CouldNotStart,
    Device,
    Ends,
    described,
    launch,
    process_environment,
    resolved,
    user,
)

_DESCRIPTORS = 6
_FIRST_FD = 100
_READY = b"ready"
EXECUTOR, FRONT = "grader.device.executor.process", "grader.device.front.process"
"""They are named and not imported here: one of them imports JAX."""


class Request(msgspec.Struct):
    """A device to fork. With it come control, front, executor, book, lock and log."""

    devices: int
    user: int
    """The number of the executor's user; 0 for no change."""


class Nursery:
    """A nursery that runs until `close`. It is ready some time after it was made; `start` waits."""

    def __init__(self) -> None:
        self._line, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ready = False
        with end:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "grader.device.nursery", str(end.fileno())],
                pass_fds=[end.fileno()],
                env=process_environment(),
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Wait until a device can be started at once.

        Raises:
          CouldNotStart: the nursery itself did not start.
        """
        if self._ready:
            return
        self._line.settimeout(START_SECONDS)
        try:
            self._ready = self._line.recv(16) == _READY
        except OSError as error:
            raise CouldNotStart(f"the devices' nursery: {error}") from error
        if not self._ready:
            raise CouldNotStart("the devices' nursery ended as it started")

    def start(self, options: Options) -> Device:
        """Start a device; see `grader.device.start.start`.

        Raises:
          CouldNotStart: it does not start.
        """
        found = resolved(options), described()
        self.wait()
        return launch(*found, self._fork)

    def _fork(self, ends: Ends, devices: int) -> Callable[[], None]:
        sockets = [each.fileno() for each in (ends.control, ends.front, ends.executor)]
        fds = [*sockets, ends.book, ends.lock, ends.log.fileno()]
        socket.send_fds(self._line, [msgspec.json.encode(Request(devices, user(2)))], fds)
        _, found, _, _ = socket.recv_fds(self._line, 16, 2)
        if len(found) != 2:
            raise CouldNotStart("the devices' nursery has ended")

        def ended() -> None:
            deadline = time.monotonic() + END_SECONDS
            for process in found:
                left = max(0.0, deadline - time.monotonic())
                if not select.select([process], [], [], left)[0]:
                    with suppress(ProcessLookupError):
                        signal.pidfd_send_signal(process, signal.SIGKILL)
                    select.select([process], [], [])
                os.close(process)

        return ended

    def close(self) -> None:
        """End the nursery. Devices that it has forked go on. A second call does nothing."""
        self._line.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> "Nursery":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def fork(request: Request, fds: list[int]) -> list[int]:
    """Fork an executor and a front; returns a descriptor of each process (`pidfd`).

    `fds` are control, front, executor, book, lock and log. The caller has imported both
    modules, and has started no thread.
    """
    control, front, executor, book, lock, log = fds
    found = [_forked(EXECUTOR, [executor], log, [request.devices, request.user])]
    found.append(_forked(FRONT, [control, front, book, lock], log, []))
    return found


def _forked(module: str, fds: list[int], log: int, numbers: list[int]) -> int:
    process = os.fork()
    if process == 0:
        _child(module, fds, log, numbers)
    return os.pidfd_open(process)


def _child(module: str, fds: list[int], log: int, numbers: list[int]) -> NoReturn:
    """In the fork: be one of the device's processes, and hold nothing else open."""
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        kept = [os.dup2(fd, _FIRST_FD + place, False) for place, fd in enumerate(fds)]
        for first, last in itertools.pairwise([2, *kept, 1 << 12]):
            os.closerange(first + 1, last)
        run = importlib.import_module(module).run
        if module == EXECUTOR:
            run(socket.socket(fileno=kept[0]), *numbers)
        else:
            run(socket.socket(fileno=kept[0]), socket.socket(fileno=kept[1]), kept[2])
    finally:
        os._exit(1)


def serve(line: socket.socket) -> None:
    """Fork devices until the other end closes."""
    line.send(_READY)
    while True:
        data, fds, _, _ = socket.recv_fds(line, 1 << 12, _DESCRIPTORS)
        if not data:
            return
        found: list[int] = []
        try:
            if len(fds) == _DESCRIPTORS:
                found = fork(msgspec.json.decode(data, type=Request), fds)
            socket.send_fds(line, [b"forked"], found)
        finally:
            for fd in (*fds, *found):
                os.close(fd)


def main() -> None:
    """Entry point of `python -m grader.device.nursery FD`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = socket.socket(fileno=int(sys.argv[1]))
    importlib.import_module(FRONT)
    importlib.import_module(EXECUTOR).prepare()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system takes the ends of its children
    with suppress(OSError):
        serve(line)
    os._exit(0)


if __name__ == "__main__":
    main()
