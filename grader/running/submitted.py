"""Opens the file of a submission: where it says it is, and nowhere else.

A submission may come from anybody, and so may the folder around it. A link could lead to a
solution, or to a file whose lines would then stand in a report; a pipe or a device could keep
the grader waiting forever. So no link is followed: not at the file, and not at its folder, nor
at any other folder of a relative path. Of an absolute path, the folders above those two are the
machine's own. What is opened is a regular file. Its text is read by `grader.source.inspection`.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from grader.records.record import Finding
from grader.source import inspection

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def read(path: Path) -> str:
    """The text of a submission; see `grader.source.inspection.read`.

    Raises:
      source.Unreadable: it is no regular file, a link leads to it, or it is no Python source.
    """
    with opened(path) as descriptor:
        return inspection.read(Path(f"/dev/fd/{descriptor}"))


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A descriptor of the regular file at `path`, to read.

    Raises:
      source.Unreadable: it is no regular file, or a link leads to it.
    """
    start, names = _way(path)
    folder = descriptor = -1
    try:
        folder = os.open(start, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in names[:-1]:
            below = _step(folder, name, path, os.O_DIRECTORY)
            os.close(folder)
            folder = below
        descriptor = _step(folder, names[-1], path, os.O_NONBLOCK)
        yield descriptor
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "no file has such a name"
        raise _unreadable("the file can be read", f"{why}: {shown(path)}") from error
    finally:
        for number in (folder, descriptor):
            if number >= 0:
                os.close(number)


def _way(path: Path) -> tuple[Path, Sequence[str]]:
    """Where to start, and the names of the way from there at which no link is followed."""
    if not path.is_absolute():
        return Path(), path.parts or (".",)
    return Path(path.anchor, *path.parts[1:-2]), path.parts[1:][-2:] or (".",)


def _step(folder: int, name: str, path: Path, flags: int) -> int:
    """Open what is called `name` in a folder, if it is what it should be."""
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        observed = f"`{shown(Path(name))}` is a link; name the folder or file that it leads to"
        raise _unreadable(f"{shown(path)} leads through no link", observed)
    is_file = not flags & os.O_DIRECTORY
    if is_file:
        _regular(mode, path)  # before it is opened: that alone can rewind a tape
    found = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=folder)
    try:
        if is_file:
            _regular(os.fstat(found).st_mode, path)  # what was opened, whatever was there before
    except inspection.Unreadable:
        os.close(found)
        raise
    return found


def _regular(mode: int, path: Path) -> None:
    """Raises `source.Unreadable` for anything that is no regular file."""
    if not stat.S_ISREG(mode):
        kind = next((words for is_kind, words in _KINDS if is_kind(mode)), "something else")
        raise _unreadable(f"{shown(path)} is a regular file", f"it is {kind}")


def shown(path: Path) -> str:
    """A path as text that can be encoded; bytes that are not UTF-8 are shown as escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _unreadable(expected: str, observed: str) -> inspection.Unreadable:
    return inspection.Unreadable(Finding("file", None, expected, observed))
