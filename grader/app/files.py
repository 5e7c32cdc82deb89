"""Finds the file of each exercise, names it in a report, and knows the learner's own.

Nothing is opened here: that a file is no link, and no pipe, is for `grader.running.submitted`.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from grader.course.catalog import Entry
from grader.running.submitted import shown

FOLDER = Path("exercises")
"""Where learners keep their files, below the working folder."""


class Unusable(Exception):
    """The command or the files are wrong; the message is one line."""


def files_of(
    entries: Sequence[Entry], names: Sequence[str], submission: Path | None
) -> list[tuple[Entry, Path]]:
    """The file of each exercise. Of several exercises, one without a file fails on its own.

    Raises:
      Unusable: there is no file at all, or one file for several exercises.
    """
    if len(entries) == 1:
        return [(entries[0], path_of(entries[0], "".join(names), submission))]
    if submission is not None and os.path.lexists(submission) and not _is_folder(submission):
        raise Unusable(f"one file for {len(entries)} exercises; give a folder, or name one of them")
    padded = list(names) or [""] * len(entries)
    found = [(e, _expected(e, name, submission)) for e, name in zip(entries, padded, strict=True)]
    if any(os.path.lexists(path) for _, path in found):
        return found
    raise Unusable(_nothing(entries[0], padded[0], submission))


def path_of(entry: Entry, name: str, submission: Path | None) -> Path:
    """The file to grade: --submission, else the path that named the exercise, else exercises/.

    Raises:
      Unusable: it is not there.
    """
    path = _expected(entry, name, submission)
    if os.path.lexists(path):
        return path
    raise Unusable(_nothing(entry, name, submission))


def _expected(entry: Entry, name: str, submission: Path | None) -> Path:
    """Where the file should be."""
    if submission is not None:
        return submission / entry.file_name if _is_folder(submission) else submission
    if name.endswith(".py"):
        return Path(name)
    candidates = (FOLDER / entry.file_name, Path(entry.file_name))
    return next((path for path in candidates if os.path.lexists(path)), candidates[0])


def _is_folder(path: Path) -> bool:
    """Whether a path leads to a folder; `Path.is_dir` raises where it may not look."""
    return os.path.isdir(path)  # noqa: PTH112


def _nothing(entry: Entry, name: str, submission: Path | None) -> str:
    """Why there is nothing to grade."""
    if submission is not None and _is_folder(submission):
        return f"no {entry.file_name} in the folder {shown(submission)}"
    if submission is not None:
        return f"no file {shown(submission)}"
    if name.endswith(".py"):
        return f"no file {shown(Path(name))}"
    return (
        f"no exercises/{entry.file_name} here: go to the course's folder, or "
        f"`grader reset {entry.id}` writes a fresh one here"
    )


def label(path: Path) -> str:
    """The path as the learner would type it; bytes that are not UTF-8 are shown as escapes."""
    absolute, here = Path(os.path.abspath(path)), Path.cwd()  # noqa: PTH100 (follows no link)
    return shown(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute)


def is_own(path: Path, stem: str) -> bool:
    """Whether a file is the learner's own copy of an exercise. Only that is remembered.

    It lies in `exercises/` of the working folder, or in the working folder itself. What lies in
    anybody else's folder is not the learner's, whatever that folder is called.
    """
    folder = Path(os.path.abspath(path)).parent  # noqa: PTH100 (follows no link)
    return path.name == f"{stem}.py" and folder in (Path.cwd(), Path.cwd() / FOLDER)
