"""Starts workers and talks to them: over a fork server where there is fork, else by spawn.

Runs in the grader's own process, which never imports JAX. What a worker is, once it
runs, is in `grader.process`; what fences it, in `grader.isolation`.
"""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from grader.isolation import SCRATCH
from grader.messages import Ended, Request
from grader.process import Worker

_KEPT = re.compile(r"^(PATH|LD_LIBRARY_PATH|LANG|LC_.*|TZ|PYTHONPATH|SYSTEMROOT|CUDA_.*|NVIDIA_.*)$")


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
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TF_CPP_MIN_LOG_LEVEL": "1",
    }


class Launcher(Protocol):
    """Makes workers."""

    def start(self, request: Request) -> Worker:
        """Start a worker that waits for its `Setup`."""
        ...

    def close(self) -> None:
        """End everything this launcher started."""
        ...


class SocketControl:
    """The lifeline to a supervisor of the fork server."""

    def __init__(self, control: socket.socket) -> None:
        self._socket = control
        self._ended: Ended | None = None
        self.fences: list[str] = []

    def ended(self) -> Ended:
        """Wait for the supervisor's report."""
        if self._ended is None:
            self._socket.settimeout(10)
            try:
                raw = self._socket.recv(1 << 16)
                self._ended = msgspec.json.decode(raw, type=Ended)
            except (OSError, msgspec.DecodeError):
                self._ended = Ended(signal=9)
            self.fences = self._ended.fences
        return self._ended

    def cancel(self) -> None:
        """Half-close, which tells the supervisor to kill."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has ended already

    def close(self) -> None:
        """Cancel, then wait for the supervisor's report."""
        self.cancel()
        self.ended()
        self._socket.close()


class ForkServer:
    """Workers forked from a process that has imported `modules` already."""

    def __init__(self, modules: Sequence[str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", "-m", "grader.forkserver"]
        self._errors = os.memfd_create("grader-forkserver")
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), ",".join(modules)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                start_new_session=True,
                env={**environment(SCRATCH), **_import_path()},
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
        with theirs:
            fds = [in_r, out_w, err_w, theirs.fileno()]
            try:
                socket.send_fds(self._socket, [msgspec.json.encode(request)], fds)
            except OSError as error:
                raise BrokenInstallation(self._last_words()) from error
        for fd in (in_r, out_w, err_w):
            os.close(fd)
        return Worker(in_w, out_r, err_r, SocketControl(ours))

    def _last_words(self) -> str:
        self._process.wait(10)
        text = os.pread(self._errors, 1 << 20, 0).decode("utf-8", "replace").strip()
        return text.splitlines()[-1] if text else f"exit code {self._process.returncode}"

    def close(self) -> None:
        """End the server and every worker."""
        self._socket.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._errors)


class ProcessControl:
    """The lifeline of a spawned worker."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self.fences = ["not fenced: no fork on this system"]

    def ended(self) -> Ended:
        """Wait for the process."""
        code = self._process.wait(10)
        return Ended(code=max(code, 0), signal=max(-code, 0), fences=self.fences)

    def cancel(self) -> None:
        """Kill the process group."""
        if os.name == "posix":
            try:
                os.killpg(self._process.pid, 9)
            except ProcessLookupError:
                pass  # it has ended already
        else:
            self._process.kill()

    def close(self) -> None:
        """Kill and wait."""
        self.cancel()
        self._process.wait()


class Spawn:
    """Workers started from scratch, for systems without a safe fork."""

    def start(self, request: Request) -> Worker:
        """Start a worker (see `Launcher`)."""
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "grader.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=os.name == "posix",
            env={**environment(os.path.expanduser("~")), **_import_path(), **request.environment},
        )
        pipes = (process.stdin, process.stdout, process.stderr)
        fds = [os.dup(pipe.fileno()) for pipe in pipes if pipe is not None]
        for pipe in pipes:
            if pipe is not None:
                pipe.close()
        return Worker(fds[0], fds[1], fds[2], ProcessControl(process))

    def close(self) -> None:
        """Nothing is kept between workers."""


def _import_path() -> dict[str, str]:
    """Let a worker find this very package, wherever it was imported from."""
    here = str(Path(__file__).resolve().parent.parent)
    known = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [here, known]))}


def launcher(modules: Sequence[str]) -> Launcher:
    """The launcher this system can have."""
    if sys.platform.startswith("linux"):
        return ForkServer(modules)
    return Spawn()
