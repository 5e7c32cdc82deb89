"""Whether a command may leave a process behind for the next one, and what it says about that.

Only where a person works at a terminal: programs, CI and pipes get a command that ends whole.
How such a process lives, is found again and ends is in `grader.running.kept`.
"""

import os
import sys

from grader.judging.words import plural
from grader.running import kept

LEFT_BEHIND = (
    "grader: a server stays ready for the next check, which will be faster "
    "(`grader stop` ends it; it ends by itself after 10 idle minutes)"
)


def wanted(*, fresh: bool) -> bool:
    """Whether to use a server that stays.

    There must be a terminal to type at and one to be told on; where stdout goes does not
    matter. `GRADER_WARM=0` turns it off, and so does `CI` with any value; `fresh` is `--fresh`.
    """
    off = fresh or os.environ.get("GRADER_WARM") == "0" or bool(os.environ.get("CI"))
    return not off and all(stream.isatty() for stream in (sys.stdin, sys.stderr))


def stop_line() -> str:
    """End all servers of this user; says how many there were."""
    from grader.running import compiled  # here, since every command loads this module

    count = kept.stop()
    compiled.sweep()
    return f"stopped {plural(count, 'server')}" if count else "no server was running"
