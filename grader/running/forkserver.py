"""A process that has imported the libraries once and forks a worker for each request.

`grader.running.launch` starts it as `python -m grader.running.forkserver FD SINCE MODULE,...`,
where SINCE is the time of its start, in nanoseconds. It starts no backend and no thread, so a
fork is safe. A request on its socket is a JSON line with five descriptors: the worker's input,
result, output, stack, and a control socket. Three processes come of it:

    supervisor  sees the control socket close, or init end; kills; reports the end
    init        pid 1 of the new world; its end takes every process there with it
    worker      `grader.worker.serve`

When the request socket closes, all of them end, and so does this process; unless it was asked
to stay (`grader.running.kept`): then it serves whoever connects. It never runs a learner's
code itself, so nothing of one submission can reach the next. What fences the workers is in
`grader.fences`.

A command may hand over workers that it has started and that no submission has reached, for the
next command to take. This process holds their descriptors and reads none, so that no secret of
theirs is in the memory that later workers inherit.
"""

import fcntl
import gc
import importlib
import itertools
import os
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec

from grader.fences import family, limits, namespaces, system
from grader.running import compiled, kept
from grader.running.imported import Imported
from grader.running.messages import (
    BROKE,
    DOORS,
    LINES,
    MOST_LEFT,
    WORKER,
    Asked,
    Ended,
    Keep,
    Live,
    Request,
    Stay,
    Take,
)

WATCH_SECONDS = 0.2
FINISH_SECONDS = family.KILL_SECONDS + 1
REAP_SECONDS = 1.0
DOOR_THREADS = 8
"""How many times as many threads the client of a device next door may have: it starts one for each
answer that it has not dealt with yet."""
DOOR_STACK = 1 << 19
"""Bytes of the stack of each of them. Compilers and BLAS ask for larger ones themselves."""
DESCRIPTORS = 5
_FIRST_FD = 100


class Report(msgspec.Struct):
    """What init tells the supervisor, one JSON line each time."""

    fences: list[str] = []
    scratch: str = ""
    status: int | None = None
    """Wait status of the worker."""


class Server:
    """Forks a supervisor for each request, of its first line and of all who connect."""

    def __init__(self, first: socket.socket, imported: Imported) -> None:
        self._lines = [first]
        self._imported = imported
        self._published: kept.Published | None = None
        self._leader = -1
        """A descriptor that becomes readable when the session ends in which this stays."""
        self._idle_since = time.monotonic()
        self._compiled: compiled.Folder | None = None
        self._left: list[int] = []
        """Descriptors of workers that stand by (see `Keep`); each ends when they are closed."""

    def serve(self) -> None:
        """Serve until nobody is connected, and nobody can connect any more."""
        try:
            while self._lines or self._published:
                self._turn()
        finally:
            self._withdraw()
            self._end_left()
            if self._compiled:
                self._compiled.remove()

    def _turn(self) -> None:
        ready = select.select(self._sources(), [], [], self._patience())[0]
        for line in [line for line in self._lines if line in ready]:
            self._hear(line)
        if self._published and self._published.listener in ready:
            self._welcome(self._published)
        idle = not self._lines and time.monotonic() > self._idle_since + kept.IDLE_SECONDS
        if idle or self._leader in ready:
            self._withdraw()

    def _sources(self) -> list[socket.socket | int]:
        found: list[socket.socket | int] = [*self._lines]
        return found + ([self._published.listener, self._leader] if self._published else [])

    def _patience(self) -> float | None:
        """Seconds until there is something to do unasked: ended children, or an idle end."""
        if _reap():
            return REAP_SECONDS
        return kept.IDLE_SECONDS if self._published else None

    def _welcome(self, published: kept.Published) -> None:
        """Take a new line if what was imported still holds; else stay for nobody."""
        if (line := published.accept()) is None:
            return
        if not self._imported.unchanged():
            line.close()
            self._withdraw()
            return
        with suppress(OSError):  # whoever it was may have gone; the line then ends at once
            line.send(kept.WELCOME)
        self._lines.append(line)

    def _hear(self, line: socket.socket) -> None:
        """Do what is asked for on a line; forget one that has closed."""
        fds: list[int] = []
        try:
            message, fds, _, _ = socket.recv_fds(line, 1 << 16, LINES * MOST_LEFT)
            if not message:
                self._forget(line)
                return
            match msgspec.json.decode(message, type=Asked):
                case Request() as request if len(fds) == DESCRIPTORS:
                    self._fork(request, fds)
                case Stay() as stay:
                    line.send(kept.WELCOME if self._stay(stay) else kept.REFUSAL)
                case Keep() if len(fds) % LINES == 0:
                    self._end_left()
                    self._left, fds = fds, []
                case Take():
                    socket.send_fds(line, [kept.WELCOME], self._left)
                    self._end_left()
                case Live():
                    line.send(kept.WELCOME)
                case _:
                    self._forget(line)
        except (OSError, msgspec.DecodeError):
            self._forget(line)
        finally:
            for fd in fds:
                os.close(fd)

    def _end_left(self) -> None:
        """Hold nothing of the workers that stand by: they end, or are another process's."""
        for fd in self._left:
            os.close(fd)
        self._left = []

    def _forget(self, line: socket.socket) -> None:
        self._lines.remove(line)
        line.close()
        self._idle_since = time.monotonic()

    def _fork(self, request: Request, fds: Sequence[int]) -> None:
        if missing := [name for name in request.modules if name not in sys.modules]:
            _import(missing)
            self._imported.note()
            gc.freeze()
        if request.compiled and request.fenced:
            with suppress(OSError):  # a full disk, say: then every worker compiles for itself
                self._compiled = self._compiled or compiled.Folder()
                if request.compiled == "add":
                    self._compiled.tidy()
        if os.fork() == 0:
            _last(partial(self._supervise, request, fds))

    def _supervise(self, request: Request, fds: Sequence[int]) -> None:
        """In the fork: hold nothing of this server's, so that others see it end."""
        for line in self._lines:
            line.close()
        self._end_left()
        if self._published:
            self._published.listener.close()
            os.close(self._leader)
        control = socket.socket(fileno=fds[4])
        shared = self._compiled.seen(request.compiled) if self._compiled else ""
        _supervise(request, fds[:4], control, shared if request.compiled else "")
        control.detach()  # it closes when this process has ended, and not a moment before

    def _stay(self, stay: Stay) -> bool:
        """Let others find this process from now on; returns whether they can."""
        self._imported.note()
        if self._published or not self._imported.unchanged():
            return False
        try:
            leader = os.pidfd_open(stay.leader)
        except OSError:
            return False
        try:
            self._published = kept.publish(Path(os.fsdecode(stay.folder)), stay.name)
        except OSError:
            self._published = None
        if self._published is None:
            os.close(leader)
            return False
        self._leader = leader
        return True

    def _withdraw(self) -> None:
        if self._published:
            self._published.withdraw()
            os.close(self._leader)
            self._published = None
            self._end_left()


def _last(work: Callable[[], int | None]) -> NoReturn:
    """Do `work` and end, whatever happens: nothing of the caller's stack goes on in a fork."""
    code = BROKE
    try:
        code = work() or 0
    except BaseException:  # noqa: BLE001 (a forked process has nobody to raise to)
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
        finally:
            os._exit(code)


def _reap() -> bool:
    """Take the ends of children; returns whether any child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _supervise(request: Request, fds: Sequence[int], control: socket.socket, shared: str) -> None:
    """Fence, fork and watch one worker; report its end; leave nothing behind."""
    os.setsid()
    family.die_with_parent()
    family.adopt_orphans()
    os.environ.update(request.environment)
    sockets = namespaces.sockets_of_others(request.door)
    refused = namespaces.separate() if request.fenced else "not asked for"
    report_read, report_write = os.pipe()
    user = os.getpid()
    if request.door:
        limits.hand_over([f"{request.door}/{name}" for name in DOORS], user)
    init = os.fork()
    if init == 0:
        control.close()
        os.close(report_read)
        _last(partial(_init, request, refused, sockets, fds, report_write, user, shared))
    for fd in (*fds, report_write):
        os.close(fd)
    reports = _watch(init, report_read, control)
    gone = family.kill_tree()
    ended = _ended(reports)
    if not gone:
        ended.fences.append(system.REFUSED + "an end of all processes")
    with suppress(OSError):  # the other side may have gone, and with it the need to know
        control.sendall(msgspec.json.encode(ended))


def _watch(init: int, report: int, control: socket.socket) -> list[Report]:
    """Hear init until its end, which comes at once when the control socket closes."""
    raw, listened = b"", [report, control.fileno()]
    while report in listened:
        ready = select.select(listened, [], [])[0]
        if control.fileno() in ready:
            os.kill(init, signal.SIGKILL)
            listened.remove(control.fileno())
        if report in ready:
            chunk = os.read(report, 4096)
            raw += chunk
            if not chunk:
                listened.remove(report)
    os.waitpid(init, 0)
    return [msgspec.json.decode(line, type=Report) for line in raw.splitlines()]


def _ended(reports: Sequence[Report]) -> Ended:
    fences = [line for report in reports for line in report.fences]
    for report in reports:
        if report.scratch not in ("", namespaces.SCRATCH):
            shutil.rmtree(report.scratch, ignore_errors=True)
    status = next((r.status for r in reports if r.status is not None), signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    return Ended(code=max(code, 0), signal=max(-code, 0), fences=fences)


def _init(
    request: Request,
    refused: str,
    sockets: Sequence[str],
    fds: Sequence[int],
    report: int,
    user: int,
    shared: str,
) -> None:
    """Be pid 1 of the new world: furnish it, fork the worker, wait for it."""
    family.die_with_parent()
    hidden = list(map(os.fsdecode, request.hidden))
    adds = request.compiled == "add"
    fences, scratch = namespaces.furnish(hidden, sockets, refused, shared, adds=adds)
    if scratch != namespaces.SCRATCH or not shared:
        request.compiled = ""
    _say(report, Report(fences, scratch))
    worker = os.fork()
    if worker == 0:
        _last(partial(_work, request, scratch, fds, report, user))
    for fd in fds:
        os.close(fd)
    ended, status = os.wait()
    while ended != worker:
        ended, status = os.wait()
    _say(report, Report(status=status))


def _say(report: int, message: Report) -> None:
    os.write(report, msgspec.json.encode(message) + b"\n")


def _work(request: Request, scratch: str, fds: Sequence[int], report: int, user: int) -> int:
    worker = importlib.import_module(WORKER)
    os.setsid()  # a signal to its own group reaches nobody else
    namespaces.settle(scratch)
    os.chdir(scratch)  # where it was started, hidden folders could be reached from below
    threads = limits.THREADS
    if request.door:
        threads *= DOOR_THREADS
        limits.small_stacks(DOOR_STACK)
    _say(report, Report(limits.confine(request.memory, scratch, user, threads)))
    family.die_with_parent()  # again: a change of user clears it
    code: int = worker.serve(*_only_descriptors(fds), use=request.compiled)
    return code


def _only_descriptors(fds: Sequence[int]) -> list[int]:
    """Keep nothing open but input, result, output and stack; output is stdout and stderr.

    What the learner's code starts inherits output alone. Returns input, result, stack.
    """
    inbox, result, output, stack = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FD) for fd in fds)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    kept = sorted((inbox, result, stack))
    for first, last in itertools.pairwise([2, *kept, 1 << 12]):
        os.closerange(first + 1, last)
    sys.stdout = open(1, "w", 1, "utf-8", "replace", closefd=False)  # noqa: SIM115 (stdout, never closed)
    return [inbox, result, stack]


def _end_with(requests: socket.socket) -> None:
    """While the imports run, look now and then whether anybody still waits for them."""

    def look(*_: object) -> None:
        try:
            if not requests.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                os._exit(0)
        except BlockingIOError:
            return

    signal.signal(signal.SIGALRM, look)
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, WATCH_SECONDS, WATCH_SECONDS)


def _import(modules: Sequence[str]) -> None:
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001 (a library may raise, or exit, at will)
            text = str(error).strip().splitlines() or ["(no message)"]
            sys.exit(f"`import {name}`: {type(error).__name__}: {text[0]}")


def main() -> None:
    """Entry point of `python -m grader.running.forkserver FD SINCE MODULES`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    family.adopt_orphans()
    requests, imported = socket.socket(fileno=int(sys.argv[1])), Imported(int(sys.argv[2]))
    _end_with(requests)
    gc.disable()  # what is imported stays: a collector that looks through it finds nothing
    _import(list(filter(None, sys.argv[3].split(","))))
    gc.freeze()  # nor in a worker, where it would also copy each page it looks at
    gc.enable()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    Server(requests, imported).serve()
    deadline = time.monotonic() + FINISH_SECONDS  # supervisors clean up
    while _reap() and time.monotonic() < deadline:
        time.sleep(0.004)
    family.kill_tree()  # after a supervisor that was killed itself
    os._exit(0)  # at once: to take all of JAX apart again would take longer than all of this


if __name__ == "__main__":
    main()
