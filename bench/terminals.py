"""Wall time of a second check at a terminal, where the first left its server, beside the peer.

Measured by a process of its own (`python -m bench.terminals`), which leads a session as a
shell does: what a check leaves behind ends with it. It prints the times as JSON.
"""

import os
import pty
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec

from bench.commands import ROOT, bare, check, command, shown, timed
from bench.figures import Row, interleaved, ratios, spread
from grader.course.catalog import Entry, find

LIMIT = 0.35
READING = 1.5
"""Seconds between a check and the next command, in which a person reads the report. What the
check leaves to the next one is got ready meanwhile."""
OFF = ("CI", "GRADER_WARM")
"""Variables that would keep a check from leaving a server."""


def row(entry: Entry, rounds: int) -> Row:
    """Measure in another process, and hold the outcome against the limit."""
    words = [sys.executable, "-m", "bench.terminals", entry.id, str(rounds)]
    done = subprocess.run(
        words, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True, check=True
    )
    checks, scripts = msgspec.json.decode(done.stdout, type=list[list[float]])
    ratio = ratios(checks, scripts)
    return Row(
        title=f"second check of {entry.id} at a terminal",
        command=shown(check(entry.id)),
        figures=f"{ratio} x the bare script; {spread(checks)} s and {spread(scripts)} s",
        limit=f"{LIMIT:g} x {shown(bare(entry))}",
        holds=ratio.median <= LIMIT,
        spreads={"ratio": ratio, "check": spread(checks), "bare": spread(scripts)},
    )


@contextmanager
def terminal() -> Iterator[int]:
    """A pseudo-terminal whose output goes nowhere."""
    ours, theirs = pty.openpty()

    def drain() -> None:
        with suppress(OSError):  # nobody has it open any more
            while os.read(ours, 1 << 16):
                pass

    threading.Thread(target=drain, daemon=True).start()
    try:
        yield theirs
    finally:
        os.close(theirs)


def read(run: Callable[[], float]) -> float:
    """Run a command, and read what it says; returns the seconds that it took."""
    seconds = run()
    time.sleep(READING)
    return seconds


def main() -> None:
    """Print the times of checks and of the bare script."""
    entry, rounds = find(sys.argv[1]), int(sys.argv[2])
    for name in OFF:
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory() as folder, terminal() as screen:
        os.environ["XDG_RUNTIME_DIR"] = folder
        again = timed(check(entry.id), stdin=screen, stderr=screen)
        again()
        if not any(Path(folder).glob("*/*")):
            sys.exit("the first check left no server behind")
        try:
            times = interleaved(rounds, partial(read, again), timed(bare(entry)))
        finally:
            timed(command("stop"))()
    sys.stdout.buffer.write(msgspec.json.encode(times))


if __name__ == "__main__":
    main()
