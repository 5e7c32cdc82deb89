"""Writes starters into the learner's folder, and loses nothing of the learner's."""

from pathlib import Path

from grader.catalog import Entry


def reset(entry: Entry, folder: Path) -> str:
    """Write the untouched starter to exercises/; returns what was done, in one line.

    Raises:
      NoStarter: there is no untouched copy.
      OSError: the folder cannot be written.
    """
    path = folder / "exercises" / entry.file_name
    starter = entry.starter()
    shown = path.relative_to(folder)
    if path.is_file():
        if path.read_bytes() == starter.encode():
            return f"{shown} is the fresh starter already"
        kept = _free_name(path)
        path.rename(kept)
        path.write_text(starter, "utf-8")
        return f"{shown} is fresh; your version is {kept.relative_to(folder)}"
    path.parent.mkdir(exist_ok=True)
    path.write_text(starter, "utf-8")
    return f"{shown} written"


def _free_name(path: Path) -> Path:
    number = 1
    while (kept := path.with_suffix(f".py.{number}")).exists():
        number += 1
    return kept
