"""What this process has imported, and whether the disk still holds the same.

A process that outlives a command must not answer with yesterday's code. It compares, each time
it is asked, every file that it has imported, every file of the grader, and what each folder of
the import path offers (an installed package brings a folder with its version in the name).
"""

import os
import sys
from pathlib import Path
from typing import NamedTuple

_PACKAGE = Path(__file__).resolve().parent.parent
_IMPORTABLE = (".py", ".so", ".pth")


class Mark(NamedTuple):
    """What tells one state of a file from another."""

    changed: int
    """When its content, name or rights last changed, in nanoseconds, by the kernel's own book."""
    device: int
    inode: int
    size: int


class Imported:
    """The state of the disk that this process stands for.

    `since` is a time before its first import, in nanoseconds. A file that changed after it may
    not be what was imported.
    """

    def __init__(self, since: int) -> None:
        self._since = since
        self._files: dict[str, Mark | None] = {}
        self._offers: dict[str, list[str]] = {}

    def note(self) -> None:
        """Remember what has been imported since the last time."""
        files, offers = _state()
        self._files, self._offers = files | self._files, offers | self._offers

    def unchanged(self) -> bool:
        """Whether a process that starts now would import just what this one has imported."""
        files, offers = _state()
        old = all(mark is None or mark.changed < self._since for mark in files.values())
        return old and files == self._files and offers == self._offers


def _state() -> tuple[dict[str, Mark | None], dict[str, list[str]]]:
    """Files that were imported or steer an import, and all of the grader's; and what can be found.

    The second are the names that each folder of the import path offers.
    """
    offers = {folder: sorted(_importable(folder)) for folder in sys.path}
    imported = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    paths = {path for path in imported if isinstance(path, str)} | {sys.executable}
    for folder, folders, names in os.walk(_PACKAGE):
        folders[:] = [name for name in folders if name != "__pycache__"]
        paths |= {f"{folder}/{name}" for name in names}
    for folder, names in offers.items():
        paths |= {f"{folder}/{name}" for name in names if name.endswith(".pth")}
    return {path: _mark(path) for path in paths}, offers


def _mark(path: str) -> Mark | None:
    try:
        found = os.stat(path)  # noqa: PTH116 (two thousand files: a Path for each takes longer)
    except OSError:
        return None
    return Mark(found.st_ctime_ns, found.st_dev, found.st_ino, found.st_size)


def _importable(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = [e.name for e in entries if e.name.endswith(_IMPORTABLE) or e.is_dir()]
    except OSError:
        return []  # an import finds nothing there either
    return [name for name in names if not name.startswith((".", "__pycache__"))]
