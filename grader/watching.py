"""Waits for saves of one file. What happens on a save is the caller's (`grader.batch`)."""

from collections.abc import Iterator
from pathlib import Path

from watchfiles import Change
from watchfiles import watch as changes

DEBOUNCE_MS, STEP_MS = 50, 20


def saves(path: Path) -> Iterator[None]:
    """Yield at once, then after each save of `path`, until interrupted.

    The folder is watched, since most editors replace a file rather than write into it.
    """
    yield
    wanted = path.resolve()

    def is_ours(_: Change, changed: str) -> bool:
        return Path(changed).resolve() == wanted

    folder = path.resolve().parent
    for _ in changes(
        folder, watch_filter=is_ours, debounce=DEBOUNCE_MS, step=STEP_MS, recursive=False
    ):
        if path.exists():
            yield
