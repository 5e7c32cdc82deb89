"""Starts workers and talks to them: over a fork server where there is fork, else by spawn.

Runs in the grader's own process, which never imports JAX. What a worker is, once it
runs, is in `grader.process`; what fences it, in `grader.isolation`.
"""

import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from grader.isolation import KILL_SECONDS, REFUSED
from grader.messages import Ended, Request
from grader.process import Worker

_KEPT = re.compile(
    r"^(PATH|LD_LIBRARY_PATH|LANG|LC_.*|TZ|PYTHONPATH|SYSTEMROOT|CUDA_.*|NVIDIA_.*)$"
)


class BrokenInstallation(Exception):
    """The libraries cannot be imported; the message is the import's own."""


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
        """
        ...

    def close(self) -> None:
        """End everything this launcher started."""
        ...


class SocketControl:
    """The lifeline to a supervisor of the fork server."""

    def __init__(self, control: socket.socket, server: "subprocess.Popen[bytes]") -> None:
        self._socket, self._server = control, server
        self._ended: Ended | None = None
        self.fences: list[str] = []

    def ended(self) -> Ended | None:
        """The supervisor's report, waited for as long as a full machine may need."""
        return self._ended or self._report(3.0)

    def lost(self) -> str:
        """See `grader.process.Control`."""
        code = self._server.poll()
        return "" if code is None else f"the fork server ended with code {code}"

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


class ForkServer:
    """Workers forked from a process that has imported `modules` already."""

    def __init__(self, modules: Sequence[str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", "-m", "grader.forkserver"]
        self._errors = os.memfd_create("grader-forkserver")
        self._closed = False
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), ",".join(modules)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                start_new_session=True,
                env={**environment(tempfile.gettempdir()), **_import_path()},
            )
        self._socket = ours

    def start(self, request: Request) -> Worker:
        """Start a worker (see `Launcher`).

        Raises:
          BrokenInstallation: the fork server could not import the libraries.
        """
        in_r, in_w = os.pipe()
        out_r, out_w = os.pipe()
        err_r, err_w = os.pipe()
        ours, theirs = socket.socketpair()
        stack = os.fdopen(os.memfd_create("grader-stack"), "rb")
        worker = Worker(in_w, out_r, err_r, stack, SocketControl(ours, self._process))
        try:
            fds = [in_r, out_w, err_w, stack.fileno(), theirs.fileno()]
            socket.send_fds(self._socket, [msgspec.json.encode(request)], fds)
        except OSError:
            worker.close()
            self.check()
            raise
        finally:
            theirs.close()
            for fd in (in_r, out_w, err_w):
                os.close(fd)
        return worker

    def check(self) -> None:
        """See `Launcher`."""
        try:
            code = self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            return
        if not self._closed:
            text = os.pread(self._errors, 1 << 20, 0).decode("utf-8", "replace").strip()
            raise BrokenInstallation(text.splitlines()[-1] if text else f"exit code {code}")

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
            [sys.executable, "-P", "-m", "grader.worker", *map(str, inherited)],
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

    def close(self) -> None:
        """Nothing is kept between workers."""


def _import_path() -> dict[str, str]:
    """Let a worker find this very package, wherever it was imported from."""
    here = str(Path(__file__).resolve().parent.parent)
    known = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [here, known]))}


def launcher(modules: Sequence[str]) -> Launcher:
    """The launcher this system can have."""
    if platform.system() == "Linux":
        return ForkServer(modules)
    return Spawn()
