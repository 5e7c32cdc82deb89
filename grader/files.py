"""Writes starters into the learner's folder, and loses nothing of the learner's."""

import tempfile
from pathlib import Path

from grader.catalog import Entry


def reset(entry: Entry, folder: Path) -> str:
    """Write the untouched starter to exercises/; returns what was done, in one line.

    Raises:
      NoStarter: there is no untouched copy.
      OSError: the folder cannot be written.
    """
    path = folder / "exercises" / entry.file_name
    starter = entry.starter().encode()
    shown = path.relative_to(folder)
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        _write(path, starter)
        return f"{shown} written"
    mine = path.read_bytes()
    if mine == starter:
        return f"{shown} is the fresh starter already"
    kept = _keep(path, mine)
    _write(path, starter)
    return f"{shown} is fresh; your version is {kept.relative_to(folder)}"


def _keep(path: Path, content: bytes) -> Path:
    """Copy to `name.py.1`, or the next number: never over a file that is there."""
    number = 1
    while True:
        kept = path.with_name(f"{path.name}.{number}")
        try:
            with kept.open("xb") as file:
                file.write(content)
        except FileExistsError:
            number += 1
        else:
            return kept


def _write(path: Path, content: bytes) -> None:
    """Put the whole file in place at once."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete_on_close=False) as file:
        file.write(content)
        file.close()
        Path(file.name).chmod(0o644)
        Path(file.name).replace(path)
