"""Starts workers: over a fork server where there is fork, its own or a kept one; else by spawn.

Runs in the grader's own process, which never imports JAX. What a worker is, once it
runs, is in `grader.running.process`; what fences it, in `grader.fences`.
"""

import fcntl
import itertools
import os
import platform
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from grader.fences import imports
from grader.fences.family import KILL_SECONDS
from grader.fences.system import REFUSED
from grader.fences.unnamed import unnamed
from grader.running import kept
from grader.running.messages import (
    LINES,
    MOST_LEFT,
    Ended,
    Keep,
    Left,
    Live,
    Request,
    Stay,
    Take,
    frame,
    write_all,
)
from grader.running.process import Worker

ANSWER = 1 << 20
"""So many bytes of an answer may wait to be read when its worker has ended."""
_KEPT = re.compile(
    r"^(PATH|LD_LIBRARY_PATH|LANG|LC_.*|TZ|PYTHONPATH|SYSTEMROOT|CUDA_.*|NVIDIA_.*)$"
)


class BrokenInstallation(Exception):
    """The libraries cannot be imported; the message is the import's own."""


class Lost(Exception):
    """The fork server that another command had left is gone: what it did counts for nothing."""


def environment(scratch: str) -> dict[str, str]:
    """The environment a worker gets: an allow-list, and quiet numerical libraries."""
    kept = {name: value for name, value in os.environ.items() if _KEPT.match(name)}
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {
        **kept,
        **threads,
        "HOME": scratch,
        "TMPDIR": scratch,
        "PYTHONIOENCODING": "utf-8",
        "JAX_TRACEBACK_FILTERING": "off",  # the learner's lines are found without it
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TF_CPP_MIN_LOG_LEVEL": "1",
    }


class Launcher(Protocol):
    """Makes workers."""

    def start(self, request: Request) -> Worker:
        """Start a worker that waits for its `Setup`."""
        ...

    def check(self) -> None:
        """Called when a worker died early.

        Raises:
          BrokenInstallation: no worker can live here.
          Lost: another launcher might do better.
        """
        ...

    def confirm(self) -> None:
        """Called when a grading is done.

        Raises:
          Lost: this launcher did not live to its end.
        """
        ...

    def take(self) -> list[tuple[Left, Worker]]:
        """The workers that an earlier command left standing by, with what they were told.

        Raises:
          Lost: this launcher does not answer.
        """
        ...

    def leave(self, left: Sequence[Left]) -> bool:
        """Close, but leave to later commands what they can use; returns whether that is new.

        Where something stays, workers stand by as `left` asks, and none of before.
        """
        ...

    def close(self) -> None:
        """End everything this launcher started."""
        ...


class SocketControl:
    """The lifeline to a supervisor of a fork server."""

    def __init__(self, control: socket.socket, lost: Callable[[], str]) -> None:
        self._socket = control
        self._ended: Ended | None = None
        self.lost = lost
        self.fences: list[str] = []

    def ended(self) -> Ended | None:
        """The supervisor's report, waited for as long as a full machine may need."""
        return self._ended or self._report(3.0)

    def _report(self, seconds: float) -> Ended | None:
        self._socket.settimeout(seconds)
        try:
            self._ended = msgspec.json.decode(self._socket.recv(1 << 16), type=Ended)
        except (OSError, msgspec.DecodeError):
            return None
        self.fences = self._ended.fences
        return self._ended

    def cancel(self) -> None:
        """Hang up, which tells the supervisor to kill, and wakes who waits for a report."""
        self._shut(socket.SHUT_RDWR)

    def _shut(self, how: int) -> None:
        with suppress(OSError):  # it may have ended already
            self._socket.shutdown(how)

    def close(self) -> None:
        """Tell the supervisor to kill, and wait for its report and its end."""
        self._shut(socket.SHUT_WR)
        self._ended = self._ended or self._report(KILL_SECONDS + 1)
        with suppress(OSError):
            self._socket.recv(1)
        self._socket.close()


def _ask_for(line: socket.socket, request: Request, lost: Callable[[], str]) -> Worker:
    """A worker from the fork server at the other end of `line`; `lost` says if it has died.

    Raises:
      OSError: it has.
    """
    return _worker(_forked(line, request), lost)


def _forked(line: socket.socket, request: Request) -> list[int]:
    """The grader's ends of a new worker: input, result, output, stack, control.

    Raises:
      OSError: as `_ask_for`.
    """
    in_r, in_w = os.pipe()
    out_r, out_w = os.pipe()
    with suppress(AttributeError, OSError):  # not Linux, or more than this user may have
        fcntl.fcntl(out_w, fcntl.F_SETPIPE_SZ, ANSWER)
    err_r, err_w = os.pipe()
    ours, theirs = (each.detach() for each in socket.socketpair())
    stack = unnamed("grader-stack")
    mine = [in_w, out_r, err_r, stack, ours]
    try:
        socket.send_fds(line, [msgspec.json.encode(request)], [in_r, out_w, err_w, stack, theirs])
    except OSError:
        _close(mine)
        raise
    finally:
        _close([in_r, out_w, err_w, theirs])
    return mine


def _worker(fds: Sequence[int], lost: Callable[[], str]) -> Worker:
    inbox, result, output, stack, control = fds
    lifeline = SocketControl(socket.socket(fileno=control), lost)
    return Worker(inbox, result, output, os.fdopen(stack, "rb"), lifeline)


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def _leave(line: socket.socket, left: Sequence[Left]) -> None:
    """Start workers that stand by, and hand this side's ends to the server to keep.

    Raises:
      OSError: the server has died.
    """
    fds: list[int] = []
    try:
        for each in left[:MOST_LEFT]:
            fds += _forked(line, each.request)
            write_all(fds[-5], frame(each.setup) + (frame(each.job) if each.job else b""))
            fds.append(unnamed("grader-left"))
            write_all(fds[-1], msgspec.json.encode(each))
        socket.send_fds(line, [msgspec.json.encode(Keep())], fds)
    finally:
        _close(fds)


def _taken(line: socket.socket, lost: Callable[[], str]) -> list[tuple[Left, Worker]]:
    """The workers that stood by, and what each was told.

    Raises:
      OSError: the server does not answer.
    """
    line.send(msgspec.json.encode(Take()))
    line.settimeout(kept.PATIENCE)
    answer, fds, _, _ = socket.recv_fds(line, 1, LINES * MOST_LEFT)
    line.settimeout(None)
    if answer != kept.WELCOME or len(fds) % LINES:
        _close(fds)
        raise ConnectionError("the fork server does not know what stands by")
    found = []
    for *ends, told in itertools.batched(fds, LINES):
        with os.fdopen(told, "rb") as file:
            file.seek(0)
            left = msgspec.json.decode(file.read(), type=Left)
        worker = _worker(ends, lost)
        worker.told = 2 if left.job else 1
        found.append((left, worker))
    return found


class ForkServer:
    """Workers forked from a process that has imported `modules` already.

    They look for packages in `folders` before they look into the environment's.
    """

    def __init__(self, modules: Sequence[str], folders: Sequence[str] = ()) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._errors = unnamed("grader-forkserver")
        self._closed = False
        with theirs:
            arguments = (theirs.fileno(), time.time_ns(), ",".join(modules))
            self._process = subprocess.Popen(
                imports.command("grader.running.forkserver", *map(str, arguments)),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                start_new_session=True,
                env=server_environment(folders),
            )
        self._socket = ours

    def start(self, request: Request) -> Worker:
        """Start a worker (see `Launcher`).

        Raises:
          BrokenInstallation: the fork server could not import the libraries.
        """
        try:
            return _ask_for(self._socket, request, self._lost)
        except OSError:
            self.check()
            raise

    def _lost(self) -> str:
        code = self._process.poll()
        return "" if code is None else f"the fork server ended with code {code}"

    def check(self) -> None:
        """See `Launcher`."""
        try:
            code = self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            return
        if not self._closed:
            text = os.pread(self._errors, 1 << 20, 0).decode("utf-8", "replace").strip()
            raise BrokenInstallation(text.splitlines()[-1] if text else f"exit code {code}")

    def confirm(self) -> None:
        """A worker's own end says more than the server's."""

    def take(self) -> list[tuple[Left, Worker]]:
        """No command was before this one."""
        return []

    def leave(self, left: Sequence[Left]) -> bool:
        """Ask the server to stay, and close it if it does not; returns whether it stays."""
        leader = kept.session_leader()
        stays = leader is not None and self._stays(leader)
        if stays:
            self._process.returncode = 0  # it is no longer this process's to wait for
            with suppress(OSError):
                _leave(self._socket, left)
        self.close()
        return stays

    def _stays(self, leader: int) -> bool:
        try:
            stay = Stay(os.fsencode(kept.folder()), kept.world(server_environment()), leader)
            self._socket.settimeout(kept.PATIENCE)
            self._socket.send(msgspec.json.encode(stay))
            return self._socket.recv(1) == kept.WELCOME
        except OSError:
            return False

    def close(self) -> None:
        """End the server and every worker."""
        self._closed = True
        self._socket.close()
        try:
            self._process.wait(KILL_SECONDS + 2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._errors)


class KeptForkServer:
    """Workers forked from the server that an earlier command left behind."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line

    def start(self, request: Request) -> Worker:
        """Start a worker (see `Launcher`).

        Raises:
          Lost: the server has died.
        """
        try:
            return _ask_for(self._line, request, self._lost)
        except OSError as error:
            raise Lost(str(error)) from error

    def _lost(self) -> str:
        try:
            said = self._line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return ""
        except OSError as error:
            return f"the fork server ended: {error}"
        return "" if said else "the fork server ended"

    def check(self) -> None:
        """A worker's early death may be the old server's fault: a new one will tell."""
        raise Lost(self._lost() or "a worker of the fork server died early")

    def confirm(self) -> None:
        """See `Launcher`. A server that is killed may take its workers along before its line
        closes, so it is asked."""
        try:
            self._line.send(msgspec.json.encode(Live()))
            self._line.settimeout(kept.PATIENCE)
            said = self._line.recv(1)
            self._line.settimeout(None)
        except OSError as error:
            raise Lost(f"the fork server does not answer: {error}") from error
        if said != kept.WELCOME:
            raise Lost("the fork server ended")

    def take(self) -> list[tuple[Left, Worker]]:
        """See `Launcher`."""
        try:
            return _taken(self._line, self._lost)
        except OSError as error:
            raise Lost(str(error)) from error

    def leave(self, left: Sequence[Left]) -> bool:
        """It stays, and was left by another command already."""
        with suppress(OSError):
            _leave(self._line, left)
        self.close()
        return False

    def close(self) -> None:
        """Hang up. Each worker has ended with its own control socket."""
        self._line.close()


class ProcessControl:
    """The lifeline of a spawned worker, and its scratch folder."""

    def __init__(self, process: "subprocess.Popen[bytes]", scratch: str) -> None:
        self._process, self._scratch = process, scratch
        self.fences = [f"{REFUSED}fences (this system has no fork that is safe)"]

    def ended(self) -> Ended | None:
        """The process's end, waited for a second."""
        try:
            code = self._process.wait(1)
        except subprocess.TimeoutExpired:
            return None
        return Ended(code=max(code, 0), signal=max(-code, 0), fences=self.fences)

    def lost(self) -> str:
        """Nothing stands between the grader and this process."""
        return ""

    def cancel(self) -> None:
        """Kill the process group."""
        if not hasattr(os, "killpg"):
            self._process.kill()
            return
        with suppress(ProcessLookupError):  # it may have ended already
            os.killpg(self._process.pid, 9)

    def close(self) -> None:
        """Kill and wait."""
        self.cancel()
        self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)


class Spawn:
    """Workers started from scratch, for systems without a safe fork."""

    def start(self, request: Request) -> Worker:
        """Start a worker (see `Launcher`)."""
        scratch = tempfile.mkdtemp(prefix="grader-")
        stack = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        inherited = [stack.fileno()] if os.name == "posix" else []
        process = subprocess.Popen(
            imports.command("grader.worker", *map(str, inherited)),
            pass_fds=inherited,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=os.name == "posix",
            env={**environment(scratch), **_import_path(), **request.environment},
        )
        pipes = [pipe for pipe in (process.stdin, process.stdout, process.stderr) if pipe]
        inbox, result, output = (os.dup(pipe.fileno()) for pipe in pipes)
        for pipe in pipes:
            pipe.close()
        return Worker(inbox, result, output, stack, ProcessControl(process, scratch))

    def check(self) -> None:
        """A spawned worker's death says nothing of the next."""

    def confirm(self) -> None:
        """There is nothing between the grader and its workers that could be lost."""

    def take(self) -> list[tuple[Left, Worker]]:
        """Nothing was left."""
        return []

    def leave(self, left: Sequence[Left]) -> bool:
        """There is nothing to leave."""
        return False

    def close(self) -> None:
        """Nothing is kept between workers."""


def _import_path(folders: Sequence[str] = ()) -> dict[str, str]:
    """Let a worker find packages in `folders`, then where this process was told to look."""
    known = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [*folders, known]))}


def server_environment(folders: Sequence[str] = ()) -> dict[str, str]:
    """The environment of a fork server, which its workers inherit; `folders` as `ForkServer`."""
    return {**environment(tempfile.gettempdir()), **_import_path(folders)}


def launcher(modules: Sequence[str], *, join: bool) -> Launcher:
    """The launcher this system can have; with `join`, a kept fork server if one is there."""
    if platform.system() != "Linux":
        return Spawn()
    line = None
    if join:
        with suppress(OSError):
            line = kept.join(kept.world(server_environment()))
    return ForkServer(modules) if line is None else KeptForkServer(line)
