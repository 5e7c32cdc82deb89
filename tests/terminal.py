"""A terminal whose session can be ended: what a person's shell and keyboard are to a command.

Commands run as children of one process that leads a session, as a shell does. Their stdin and
stderr are a terminal, and stdout is a file, so that the two can be told apart.
"""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fenced import ROOT

LEADER = """
import json, os, signal, subprocess, sys

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # where tests run under nohup, it was ignored
children = {}
for line in sys.stdin:
    asked = json.loads(line)
    if "wait" in asked:
        answer = children.pop(asked["wait"]).wait()
    else:
        terminal = os.open(asked["terminal"], os.O_RDWR | os.O_NOCTTY)
        streams = [os.open(os.devnull, os.O_RDWR) if off else terminal for off in asked["off"]]
        with open(asked["out"], "wb") as out:
            child = subprocess.Popen(
                asked["words"],
                cwd=asked["cwd"],
                env=asked["env"],
                stdin=streams[0],
                stdout=out,
                stderr=streams[1],
                process_group=0,
            )
        children[child.pid] = child
        answer = child.pid
        for fd in {terminal, *streams}:
            os.close(fd)
    print(answer, flush=True)
"""
"""It must not ask for a controlling terminal: the end of that would be another end."""


@dataclass
class Ran:
    """A command that has ended."""

    code: int
    out: str
    said: str
    """What it said on the terminal, colours and the spinner's lines included."""


class Terminal:
    """Runs commands, one or several at a time, in a session of its own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment
        self.before: list[str] = []
        """A command that runs the commands."""
        self.ended = False
        self._count = 0
        self._leader = subprocess.Popen(
            [sys.executable, "-c", LEADER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def _ask(self, **message: Any) -> int:
        assert self._leader.stdin is not None
        assert self._leader.stdout is not None
        self._leader.stdin.write(json.dumps(message) + "\n")
        self._leader.stdin.flush()
        return int(self._leader.stdout.readline())

    def start(self, *words: str, off: tuple[bool, bool] = (False, False), **more: str) -> "Command":
        """Start `grader WORDS`; `off` takes the terminal from stdin, or stderr."""
        self._count += 1
        out = self.folder / f"stdout-{self._count}"
        ours, theirs = pty.openpty()
        tty.setraw(theirs)
        python = [sys.executable, "-P", "-m", "grader"]
        pid = self._ask(
            words=[*self.before, *python, *words],
            cwd=str(self.folder),
            env={**self.environment, **more},
            terminal=os.ttyname(theirs),
            out=str(out),
            off=off,
        )
        os.close(theirs)
        return Command(self, pid, ours, out)

    def run(self, *words: str, off: tuple[bool, bool] = (False, False), **more: str) -> Ran:
        """Run `grader WORDS` to its end."""
        return self.start(*words, off=off, **more).wait()

    def wait(self, pid: int) -> int:
        """The exit code of a command that was started here."""
        return self._ask(wait=pid)

    def end(self) -> None:
        """End the session, as closing a terminal's window does."""
        assert self._leader.stdin is not None
        assert self._leader.stdout is not None
        self.ended = True
        self._leader.kill()
        self._leader.wait()
        self._leader.stdin.close()
        self._leader.stdout.close()


class Command:
    """A command under way."""

    def __init__(self, terminal: Terminal, pid: int, screen: int, out: Path) -> None:
        self.pid, self._terminal, self._screen, self._out = pid, terminal, screen, out

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it and what it started in its group, as Ctrl-C does."""
        os.killpg(self.pid, number)

    def wait(self) -> Ran:
        """Read what it says until its end."""
        said = b""
        while chunk := self._read():
            said += chunk
        os.close(self._screen)
        code = self._terminal.wait(self.pid)
        return Ran(code, self._out.read_text("utf-8"), said.decode("utf-8"))

    def _read(self) -> bytes:
        try:
            return os.read(self._screen, 1 << 16)
        except OSError:  # nobody has the terminal open any more
            return b""


@contextmanager
def opened(folder: Path, root: Path = ROOT, **more: str) -> Iterator[Terminal]:
    """A terminal in `folder` for the checkout at `root`; its runtime folder is in `folder` too."""
    runtime = folder / "runtime"
    runtime.mkdir(mode=0o700, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "GRADER_WARM")}
    kept |= {"XDG_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(root), "TERM": "dumb"}
    terminal = Terminal(folder, kept | more)
    try:
        yield terminal
    finally:
        if not terminal.ended:
            terminal.run("stop")
            terminal.end()


def copied_checkout(folder: Path) -> Path:
    """A checkout of one's own, to edit."""
    for name in ("grader", "exercises", "solutions"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder
