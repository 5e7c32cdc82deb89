"""Lets processes die together: a child with its parent, or all descendants of a process.

Linux only. When they have to die is decided in `grader.running` and `grader.stages.hosts`.
"""

import os
import signal
import time
from pathlib import Path

from grader.fences.system import call, libc

KILL_SECONDS = 5.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def die_with_parent() -> None:
    """Have this process killed when its parent dies.

    Raises:
      OSError: the system refuses.
    """
    call(libc().prctl, _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent dies.

    Raises:
      OSError: the system refuses.
    """
    call(libc().prctl, _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_tree(patience: float = KILL_SECONDS) -> bool:
    """Kill every descendant of this process, even those that left its session.

    Call `adopt_orphans()` before. Returns whether all were gone within `patience` seconds.
    """
    deadline = time.monotonic() + patience
    while children := _children(os.getpid()):
        if time.monotonic() > deadline:
            return False
        _kill_all(children)
        _reap()
        time.sleep(0.001)
    return True


def _kill_all(found: list[int]) -> None:
    """Stop all first, so that none forks while the others are looked for; then kill them."""
    for pid in found:
        if _send(pid, signal.SIGSTOP):
            found += [child for child in _children(pid) if child not in found]
    for pid in found:
        _send(pid, signal.SIGKILL)


def _send(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:
            continue  # it has ended
    return found
