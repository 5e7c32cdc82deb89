"""Waits for files to be saved. What a save means is for `grader.app.watching` to say."""

from collections.abc import Collection, Iterator
from pathlib import Path

from watchfiles import watch as changes

DEBOUNCE_MS, STEP_MS = 50, 20
TICK_MS = 100


class FolderGone(Exception):
    """A watched folder is gone, or another one took its place; the message names it."""


def saves(paths: Collection[Path]) -> Iterator[list[Path]]:
    """Yield which of `paths` were saved since the last time, the newest last; often none.

    Yields every `TICK_MS` at the latest, so that the caller can do other things between
    saves. A path that was deleted counts as saved. The folders are watched and not the
    files, since most editors replace a file rather than write into it, and a file need not
    be there yet. What is saved while the caller works comes with the next yield.

    Raises:
      FolderGone: no more saves can be noticed.
    """
    folders = {path.resolve().parent for path in paths}
    known = {folder: _identity(folder) for folder in folders}
    for found in changes(
        *folders,
        watch_filter=None,
        debounce=DEBOUNCE_MS,
        step=STEP_MS,
        rust_timeout=TICK_MS,
        yield_on_timeout=True,
        recursive=False,
    ):
        for folder, identity in known.items():
            if _identity(folder) != identity:
                raise FolderGone(str(folder))
        changed = {Path(name).resolve() for _, name in found}
        yield sorted((p for p in paths if changed and p.resolve() in changed), key=_saved_at)


def _identity(folder: Path) -> tuple[int, int]:
    try:
        found = folder.stat()
    except OSError:
        raise FolderGone(str(folder)) from None
    return found.st_dev, found.st_ino


def _saved_at(path: Path) -> int:
    """When a file was saved, in nanoseconds; 0 if it was deleted, so that it comes first."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
