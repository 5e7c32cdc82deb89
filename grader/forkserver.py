"""A process that has imported the libraries once and forks a worker for each request.

Started by `grader.launch` as `python -m grader.forkserver FD MODULE,...`; it starts no
backend and no thread, so a fork is safe. A request on the socket is a JSON line with
five descriptors: the worker's input, result, output, stack, and a control socket. Three
processes come of it:

    supervisor  sees the control socket close, or init end; kills; reports the end
    init        pid 1 of the new world; its end takes every process there with it
    worker      `grader.worker`

When the request socket closes, all of them end, and so does this process. What fences
them is in `grader.isolation`.
"""

import fcntl
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
from typing import NoReturn

import msgspec

from grader import isolation
from grader.messages import BROKE, Ended, Request

WATCH_SECONDS = 0.2
FINISH_SECONDS = isolation.KILL_SECONDS + 1
_FIRST_FD = 100


class Report(msgspec.Struct):
    """What init tells the supervisor, one JSON line each time."""

    fences: list[str] = []
    scratch: str = ""
    status: int | None = None
    """Wait status of the worker."""


def serve(requests: socket.socket) -> None:
    """Fork a supervisor for each request until the socket closes."""
    while True:
        message, fds, _, _ = socket.recv_fds(requests, 1 << 16, 5)
        if not message:
            return
        if os.fork() == 0:
            requests.close()
            request = msgspec.json.decode(message, type=Request)
            _last(partial(_supervise, request, fds[:4], socket.socket(fileno=fds[4])))
        for fd in fds:
            os.close(fd)
        _reap()


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


def _supervise(request: Request, fds: Sequence[int], control: socket.socket) -> None:
    """Fence, fork and watch one worker; report its end; leave nothing behind."""
    os.setsid()
    isolation.die_with_parent()
    isolation.adopt_orphans()
    os.environ.update(request.environment)
    sockets = isolation.sockets_of_others()
    refused = isolation.separate() if request.fenced else "not asked for"
    report_read, report_write = os.pipe()
    user = os.getpid()
    init = os.fork()
    if init == 0:
        control.close()
        os.close(report_read)
        _last(partial(_init, request, refused, sockets, fds, report_write, user))
    for fd in (*fds, report_write):
        os.close(fd)
    reports = _watch(init, report_read, control)
    gone = isolation.kill_tree()
    ended = _ended(reports)
    if not gone:
        ended.fences.append(isolation.REFUSED + "an end of all processes")
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
        if report.scratch not in ("", isolation.SCRATCH):
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
) -> None:
    """Be pid 1 of the new world: furnish it, fork the worker, wait for it."""
    isolation.die_with_parent()
    fences, scratch = isolation.furnish(request.hidden, sockets, refused)
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
    from grader import worker

    os.setsid()  # a signal to its own group reaches nobody else
    isolation.settle(scratch)
    _say(report, Report(isolation.confine(request.memory, scratch, user)))
    isolation.die_with_parent()  # again: a change of user clears it
    return worker.serve(*_only_descriptors(fds))


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
    sys.stdout = open(1, "w", 1, "utf-8", "replace", closefd=False)  # noqa: SIM115 (open to the end)
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
    """Entry point of `python -m grader.forkserver FD MODULES`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    isolation.adopt_orphans()
    requests = socket.socket(fileno=int(sys.argv[1]))
    _end_with(requests)
    _import(list(filter(None, sys.argv[2].split(","))))
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    serve(requests)
    deadline = time.monotonic() + FINISH_SECONDS  # supervisors clean up
    while _reap() and time.monotonic() < deadline:
        time.sleep(0.004)
    isolation.kill_tree()  # after a supervisor that was killed itself


if __name__ == "__main__":
    main()
