"""Reads single keys from the terminal, without Enter, while the grader works.

The terminal is changed while `listen` is entered, and given back when it is left, when
Ctrl-Z stops the program, and when a signal ends it. Where there is no terminal, or the
program runs in the background, nothing is changed and no key ever comes. What a key means
is for the caller to say (`grader.app.watching`), except for the key that stops the program.
"""

import os
import re
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

if sys.platform != "win32":
    import termios
    import tty

_NO_KEYS = re.compile(rb"\x1b[\[O]?[0-9;]*[A-Za-z~]?")
"""Arrows, function keys, and letters with Alt come as several characters. They are ignored."""
BACKGROUND_SECONDS = 0.2
"""How often a program in the background looks whether it may read again."""


class Keys:
    """The keys that were pressed, in order. `offered` says whether any can come."""

    def __init__(self, *, offered: bool) -> None:
        self.offered = offered
        self._pressed: SimpleQueue[str] = SimpleQueue()

    def put(self, key: str) -> None:
        """Add a key."""
        self._pressed.put(key)

    def next(self) -> str:
        """The oldest key that was not taken yet, in lower case; "" if there is none."""
        try:
            return self._pressed.get_nowait()
        except Empty:
            return ""


@contextmanager
def listen(stop: str) -> Iterator[Keys]:
    """Take keys from the terminal. The key `stop` acts as Ctrl-C, even while the grader works.

    Call it from the main thread, which alone may handle signals.
    """
    if sys.platform == "win32" or not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield Keys(offered=False)
        return
    terminal = _Terminal(sys.stdin.fileno())
    if not terminal.in_foreground():
        yield Keys(offered=False)
        return
    with terminal.changed(), _reading(terminal, stop) as keys:
        yield keys


class _Terminal:
    """A terminal that hands over each key at once, without showing it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._before = termios.tcgetattr(fd)

    def in_foreground(self) -> bool:
        """Whether this program may read keys. In the background, reading would stop it."""
        try:
            return os.tcgetpgrp(self.fd) == os.getpgrp()
        except OSError:  # the terminal controls no jobs
            return True

    @contextmanager
    def changed(self) -> Iterator[None]:
        """Change the terminal for a block, and restore it however the block ends."""
        handlers = {
            signal.SIGTERM: _end,
            signal.SIGHUP: _end,
            signal.SIGTSTP: self._pause,
            signal.SIGCONT: self._resume,
        }
        before: dict[signal.Signals, Any] = {}
        try:
            for number, handler in handlers.items():
                before[number] = signal.signal(number, handler)
            self._take()
            yield
        finally:
            self._give_back()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _take(self) -> None:
        """Let keys come one by one, without showing them. Ctrl-C and Ctrl-Z work as before."""
        with suppress(termios.error):  # the terminal may have gone
            tty.setcbreak(self.fd, termios.TCSANOW)

    def _give_back(self) -> None:
        if self.in_foreground():
            with suppress(termios.error):
                termios.tcsetattr(self.fd, termios.TCSANOW, self._before)

    def _pause(self, number: int, frame: FrameType | None) -> None:
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)  # stops here, until the shell continues it
        signal.signal(signal.SIGTSTP, self._pause)
        self._resume(number, frame)

    def _resume(self, number: int, frame: FrameType | None) -> None:
        if self.in_foreground():
            self._take()


def _end(number: int, frame: FrameType | None) -> None:
    """Exit through every `finally`, with the code that shells give for the signal."""
    sys.exit(128 + number)


@contextmanager
def _reading(terminal: _Terminal, stop: str) -> Iterator[Keys]:
    """Read keys in a thread."""
    keys = Keys(offered=True)
    ended, end = os.pipe()
    reader = threading.Thread(target=_read, args=(terminal, ended, stop, keys), daemon=True)
    reader.start()
    try:
        yield keys
    finally:
        os.close(end)
        reader.join()
        os.close(ended)


def _read(terminal: _Terminal, ended: int, stop: str, keys: Keys) -> None:
    """Put keys into `keys` until the other side of `ended` is closed, or the terminal is gone."""
    while True:
        if ended in select.select([terminal.fd, ended], [], [])[0]:
            return
        if not terminal.in_foreground():
            select.select([ended], [], [], BACKGROUND_SECONDS)
            continue
        try:
            typed = os.read(terminal.fd, 64)
        except OSError:
            return
        if not typed:
            return
        for key in _NO_KEYS.sub(b"", typed).decode("ascii", "ignore").lower():
            if key == stop:
                _interrupt()
            else:
                keys.put(key)


def _interrupt() -> None:
    """Do what the terminal does on Ctrl-C, even if the main thread waits for something."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)
