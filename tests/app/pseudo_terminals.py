"""A running `grader` command, with or without a terminal, and what it has printed so far."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from conftest import ROOT

PATIENCE = 120.0
"""Seconds to wait for something before a test fails."""

ON_ITS_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""

IN_A_SHELL = """
import fcntl, os, signal, subprocess, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = subprocess.Popen([sys.executable, *sys.argv[1:]], process_group=0)
os.tcsetpgrp(0, job.pid)
while os.WIFSTOPPED(status := os.waitpid(job.pid, os.WUNTRACED)[1]):
    os.tcsetpgrp(0, os.getpid())
    shown = termios.tcgetattr(0)[3] & termios.ECHO
    print("stopped, and typing is", "shown" if shown else "hidden", flush=True)
    os.tcsetpgrp(0, job.pid)
    os.kill(job.pid, signal.SIGCONT)
sys.exit(os.waitstatus_to_exitcode(status))
"""


class Running:
    """`python -m grader ARGUMENTS` in a folder; the process is killed when the block ends.

    `columns` is the width of its terminal; without a width it has none. `launcher` is the source
    of a program that runs the command on that terminal.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        columns: int | None = None,
        launcher: str = ON_ITS_TERMINAL,
    ) -> None:
        command = ["-m", "grader", *arguments]
        kept = {k: v for k, v in os.environ.items() if k != "COLUMNS" and not k.startswith("JAX_")}
        if columns is None:
            self._read, self._theirs = os.pipe()
            streams = [subprocess.DEVNULL, self._theirs]
        else:
            self._read, self._theirs = pty.openpty()
            fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
            self.settings = termios.tcgetattr(self._theirs)
            streams = [self._theirs, self._theirs]
            command = ["-c", launcher, *command]
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[1],
            cwd=folder,
            env={**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
            start_new_session=True,
        )
        self._raw, self._closed = b"", False
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        while not self._closed:
            if select.select([self._read], [], [], 0.05)[0]:
                self._raw += os.read(self._read, 1 << 16)

    def text(self) -> str:
        """All it has printed, without colours, and without text that it has overwritten since."""
        plain = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", self._raw).decode("utf-8", "replace")
        return re.sub(r"[^\n]*\r", "", plain.replace("\r\n", "\n"))

    def until(self, said: str, times: int = 1) -> str:
        """Wait until `said` was printed `times` times; return all that was printed."""
        self._wait(lambda: self.text().count(said) >= times, f"{said!r}, {times} times")
        return self.text()

    def end(self) -> int:
        """Wait for its end; return its exit code."""
        self._wait(lambda: self.process.poll() is not None, "its end")
        return self.process.wait()

    def _wait(self, came: Any, what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not came():
            ended = self.process.poll() is not None
            time.sleep(0.1 if ended else 0.01)  # its last words may still be on their way
            waits = not ended and time.monotonic() < deadline
            assert waits or came(), f"no {what}; code {self.process.poll()}:\n{self.text()}"

    def press(self, keys: str) -> None:
        """Type on its terminal."""
        os.write(self._read, keys.encode())

    def settings_now(self) -> Sequence[Any]:
        """The settings of its terminal, to compare with `settings`."""
        return termios.tcgetattr(self._theirs)

    def hang_up(self) -> None:
        """Close its terminal, as closing a window does."""
        self._closed = True
        self._listener.join()
        for fd in (self._theirs, self._read):
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        if not self._closed:
            self.hang_up()
