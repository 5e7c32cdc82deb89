"""`grader device`: a device next door for another shell, or for a notebook.

It stays in the foreground and ends with Ctrl-C, with a signal to its process, or with the session
of its terminal or notebook. Then the page goes to stderr.
"""

import os
import select
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec

from grader.app.next_door import run
from grader.app.next_door.borrowed import Wanted, borrowed, options_of, writable
from grader.device.start import Device
from grader.running import kept

PROCESS = "GRADER_DEVICE_PID"
"""The variable that tells the process to end: `kill $GRADER_DEVICE_PID`."""
UNABLE = 3
"""The exit code where the device ended before anybody asked it to."""
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def lend(wanted: Wanted, *, trace: Path | None, print_env: bool, form: str) -> int:
    """Start a device, say what a program's environment needs, and keep it until the end.

    With `print_env`, stdout has nothing but that, and is closed then, so that a shell that reads
    it goes on.

    Raises:
      Unusable: an option is wrong.
      NoDevice: no device could be started.
    """
    options = options_of(wanted)
    if trace is not None:
        writable("--perfetto", trace)
    with _ended() as ended, borrowed(options) as device:
        environment = {**device.environment, PROCESS: str(os.getpid())}
        run.print_lines(list(_lines(environment, form)), sys.stdout)
        if print_env:
            _close_stdout()
        else:
            run.print_lines(_EXPLAINED)
        alone = ended.wait(device)
        run.say(device, "a device for others", trace=trace)
        if alone:
            run.print_lines(["grader: the device has ended by itself: its process was killed"])
    return UNABLE if alone else 0


_EXPLAINED = (
    "grader: a device next door is ready. Give these lines to another shell; programs that you",
    "grader: start there use it. Ctrl-C here ends it.",
)


def _lines(environment: Mapping[str, str], form: str) -> Iterator[str]:
    if form == "json":
        yield msgspec.json.encode(environment).decode()
        return
    for name, value in environment.items():
        yield f"export {name}={shlex.quote(value)}"


def _close_stdout() -> None:
    """Let whoever reads stdout see its end; later prints go nowhere."""
    sys.stdout.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


class _Ended:
    """Waits for a signal, or for the end of the session's leader."""

    def __init__(self, sources: list[int]) -> None:
        self._sources = sources

    def wait(self, device: Device) -> bool:
        """Wait for one of them, or for the device; returns whether the device ended by itself."""
        line = device.fileno()
        return line in select.select([*self._sources, line], [], [])[0]


@contextmanager
def _ended() -> Iterator[_Ended]:
    """Inside the block, `ENDS` end nothing but a `wait`."""
    with ExitStack() as after:
        ours, theirs = os.pipe()
        after.callback(os.close, ours)
        after.callback(os.close, theirs)
        os.set_blocking(theirs, False)
        after.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(theirs))
        for number in ENDS:
            after.callback(signal.signal, number, signal.signal(number, lambda *_: None))
        sources = [ours]
        leader = kept.session_leader()
        if leader is not None:
            with suppress(OSError, AttributeError):  # gone already, or a system without pidfds
                sources.append(os.pidfd_open(leader))
                after.callback(os.close, sources[-1])
        yield _Ended(sources)
