"""A process that has imported the libraries once and forks a worker for each request.

Started by `grader.launch` as `python -m grader.forkserver FD MODULE,...`; it starts no
backend and no thread, so a fork is safe. A request on the socket is a JSON line with
four descriptors: the worker's input, result, output, and a control socket. The control
socket reports how the worker ended; when the other side closes it, the worker and all
it started die. When the request socket closes, so does this process.
"""

import fcntl
import importlib
import os
import select
import signal
import socket
import sys
import time
from typing import NoReturn

import msgspec

from grader import isolation
from grader.messages import Ended, Request

POLL_SECONDS = 0.004


def serve(requests: socket.socket) -> None:
    """Fork a supervisor for each request until the socket closes."""
    while True:
        try:
            message, fds, _, _ = socket.recv_fds(requests, 1 << 16, 4)
        except InterruptedError:
            continue
        if not message:
            return
        request = msgspec.json.decode(message, type=Request)
        if os.fork() == 0:
            requests.close()
            supervise(request, *fds)
        for fd in fds:
            os.close(fd)
        _reap()


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def supervise(request: Request, inbox: int, result: int, output: int, control_fd: int) -> NoReturn:
    """Fence, fork and watch one worker; report its end; leave nothing behind."""
    os.setsid()
    isolation.die_with_parent()
    isolation.adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=control_fd)
    os.environ.update(request.environment)
    fences = isolation.separate() if request.fenced else ["not fenced: asked not to"]
    report_read, report_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        control.close()
        os.close(report_read)
        _init(request, inbox, result, output, report_write)
    for fd in (inbox, result, output, report_write):
        os.close(fd)
    _wait(pid, control)
    ended = _ended(report_read, fences)
    isolation.kill_tree()
    try:
        control.sendall(msgspec.json.encode(ended))
    except OSError:
        pass  # the other side has gone, and with it the need to know
    os._exit(0)


def _wait(pid: int, control: socket.socket) -> None:
    """Return when the child has ended, or has been killed because control closed."""
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if select.select([control], [], [], POLL_SECONDS)[0]:
            isolation.kill_tree()
            return


def _ended(report: int, fences: list[str]) -> Ended:
    """Read what init wrote: fences, then exit status."""
    raw = b""
    while chunk := os.read(report, 4096):
        raw += chunk
    lines = [line for line in raw.decode(errors="replace").splitlines() if line]
    status = [int(line[7:]) for line in lines if line.startswith("status ")]
    fences = fences + [line for line in lines if not line.startswith("status ")]
    if not status:
        return Ended(signal=signal.SIGKILL, fences=fences)
    code = os.waitstatus_to_exitcode(status[0])
    return Ended(code=max(code, 0), signal=max(-code, 0), fences=fences)


def _init(request: Request, inbox: int, result: int, output: int, report: int) -> NoReturn:
    """Be pid 1 of the new namespace: fork the worker, wait for it, take all with it."""
    isolation.die_with_parent()
    if request.fenced:
        _say(report, isolation.furnish(request.hidden))
    pid = os.fork()
    if pid == 0:
        _become_worker(request, inbox, result, output, report)
    for fd in (inbox, result, output):
        os.close(fd)
    while True:
        try:
            ended, status = os.wait()
        except ChildProcessError:
            break
        if ended == pid:
            _say(report, [f"status {status}"])
            break
    os._exit(0)


def _say(report: int, lines: list[str]) -> None:
    os.write(report, "".join(f"{line}\n" for line in lines).encode())


def _become_worker(
    request: Request, inbox: int, result: int, output: int, report: int
) -> NoReturn:
    from grader import worker

    code = 70
    try:
        _say(report, isolation.confine(request.memory))
        isolation.die_with_parent()  # again: a change of user clears it
        code = worker.run(*_only_descriptors(inbox, result, output))
    finally:
        os._exit(code)


def _only_descriptors(inbox: int, result: int, output: int) -> tuple[int, int]:
    """Keep nothing open but input, result and output; output is stdout and stderr."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in (inbox, result, output)]
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (high[2], 1), (high[2], 2)):
        os.dup2(source, target)
    os.closerange(3, 100)
    os.closerange(high[2], 1 << 12)
    return high[0], high[1]


def main() -> None:
    """Entry point of `python -m grader.forkserver FD MODULES`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = socket.socket(fileno=int(sys.argv[1]))
    for name in filter(None, sys.argv[2].split(",")):
        importlib.import_module(name)
    serve(requests)
    _finish()


def _finish() -> None:
    """Give supervisors, which see their control sockets close, a moment to clean up."""
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        try:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(POLL_SECONDS)
        except ChildProcessError:
            return


if __name__ == "__main__":
    main()
