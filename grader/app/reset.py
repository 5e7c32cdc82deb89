"""Writes starters into the learner's folder, and keeps the learner's version.

A starter comes from `grader.course.catalog`.
"""

import os
import tempfile
from pathlib import Path

import msgspec

from grader.app.remembered import Remembered, State
from grader.course.catalog import Entry


def reset(entry: Entry, folder: Path) -> str:
    """Write the untouched starter to exercises/; returns what was done, in one line.

    Raises:
      NoStarter: there is no untouched copy.
      OSError: the folder cannot be written.
    """
    path = folder / "exercises" / entry.file_name
    starter = entry.starter().encode()
    shown = path.relative_to(folder)
    if not os.path.lexists(path):
        path.parent.mkdir(exist_ok=True)
        _put(entry, path, starter, folder)
        return f"{shown} written"
    mine = path.read_bytes()
    if mine.replace(b"\r\n", b"\n") == starter:
        return f"{shown} is the fresh starter already"
    kept = keep(path, mine)
    _put(entry, path, starter, folder)
    return f"{shown} is fresh; your version is {kept.relative_to(folder)}"


def _put(entry: Entry, path: Path, starter: bytes, folder: Path) -> None:
    """Write a starter, and remember that the learner began with it."""
    write(path, starter)
    state = State(folder)
    known = state.get(entry.stem) or Remembered("", 1)
    state.put(entry.stem, msgspec.structs.replace(known, began_with=starter.decode()))


def keep(path: Path, content: bytes, kind: str = "") -> Path:
    """Put content into `name.py.1`, or the next number: never over a file that is there.

    With a `kind`, the name is `name.py.new`, or `name.py.new.1`, and so on.
    """
    stem, number = f"{path.name}.{kind}".rstrip("."), 0 if kind else 1
    while True:
        kept = path.with_name(f"{stem}.{number}" if number else stem)
        try:
            with kept.open("xb") as file:
                file.write(content)
        except FileExistsError:
            number += 1
        else:
            return kept


def write(path: Path, content: bytes) -> None:
    """Put the whole file in place at once."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete_on_close=False) as file:
        file.write(content)
        file.close()
        Path(file.name).chmod(0o644)
        Path(file.name).replace(path)
