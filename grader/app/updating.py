"""Brings an upstream change of a starter into a learner's file: a three-way merge.

The three are the starter that the learner began with, the learner's file, and the starter as it
is published now. The first is remembered when a file is written or graded
(`grader.app.remembered`). git merges them; where there is no git, or no first, the new starter
is put beside the file. The learner's version is kept in any case.
"""

import os
import subprocess
import tempfile
from pathlib import Path

import msgspec

from grader.app.remembered import Remembered, State
from grader.app.reset import keep, write
from grader.course.catalog import Entry, NoStarter
from grader.records.record import Record
from grader.running import submitted
from grader.source.inspection import Unreadable

STRUCTURE = ("edits", "definitions")
"""The findings of a file that is an edit of another starter."""


def base(entry: Entry, text: str, before: Remembered | None) -> str:
    """The starter that a file is an edit of, as far as is known, else ""."""
    if text and _fits(entry, text):
        try:
            return entry.starter()
        except NoStarter:
            return ""
    return before.began_with if before else ""


def excuse(entry: Entry, record: Record, known: Remembered | None) -> None:
    """Do not hold a change of the starter against the learner's own file.

    If the file is a sound edit of the starter it began with, and that has changed since, then
    nothing is wrong with the file, and nothing can be judged either.
    """
    if not record.findings or known is None or not known.began_with:
        return
    if any(finding.check not in STRUCTURE for finding in record.findings):
        return
    if _changed(entry, known.began_with) and _fits(entry, record.source, known.began_with):
        record.findings = []
        record.unavailable = (
            "the starter has changed since this file was begun; "
            f"`grader update {entry.id}` brings the change into it"
        )


def update(entry: Entry, folder: Path) -> str:
    """Merge what has changed in the starter into the learner's file; says what was done.

    Raises:
      NoStarter: there is no published starter.
      OSError: the folder cannot be written.
    """
    path = folder / "exercises" / entry.file_name
    shown = path.relative_to(folder)
    if not os.path.lexists(path):
        return f"{shown} is not there; `grader reset {entry.id}` writes the starter"
    try:
        text = submitted.read(path)
    except Unreadable as unreadable:
        return f"{shown} was left as it is: {unreadable.finding.observed}"
    state, starter = State(folder), entry.starter()
    known = state.get(entry.stem) or Remembered("", 1)
    if _fits(entry, text):
        return f"{shown} is up to date"
    if not known.began_with or not _changed(entry, known.began_with):
        return _beside(path, starter, shown, "it is not known which starter you began with")
    merged, conflicts = _merged(text, known.began_with, starter)
    if merged is None:
        return _beside(path, starter, shown, "git merges, and there is no git here")
    if conflicts:
        kept = keep(path, merged.encode("utf-8", "surrogatepass"), "merge")
        where = kept.relative_to(folder)
        return f"{shown} was left as it is: you and the starter changed the same lines, see {where}"
    mine = path.read_bytes()
    kept = keep(path, mine)
    write(path, merged.replace("\n", _line_end(mine)).encode("utf-8", "surrogatepass"))
    state.put(entry.stem, msgspec.structs.replace(known, began_with=starter))
    return f"{shown} has the new starter's changes; your version is {kept.relative_to(folder)}"


def _beside(path: Path, starter: str, shown: Path, why: str) -> str:
    new = keep(path, starter.encode(), "new")
    return f"{shown} was left as it is ({why}); the new starter is {shown.with_name(new.name)}"


def _line_end(content: bytes) -> str:
    return "\r\n" if b"\r\n" in content else "\n"


def _fits(entry: Entry, text: str, original: str = "") -> bool:
    """Whether a file is an edit of a starter, of which `original` is one too."""
    found = entry.inspect(text, original)
    return not any(finding.check in (*STRUCTURE, "file") for finding in found)


def _changed(entry: Entry, began_with: str) -> bool:
    """Whether the published starter is another one by now."""
    try:
        return entry.starter() != began_with
    except NoStarter:
        return False


def _merged(mine: str, began_with: str, starter: str) -> tuple[str | None, bool]:
    """The merge, and whether it has conflicts; None where git is missing or fails."""
    with tempfile.TemporaryDirectory(prefix="grader-") as folder:
        texts = {"yours": mine, "the starter you began with": began_with, "the starter": starter}
        paths = [Path(folder, name) for name in texts]
        for path, text in zip(paths, texts.values(), strict=True):
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
        labels = [word for name in texts for word in ("-L", name)]
        command = ["git", "merge-file", "--stdout", *labels, *map(str, paths)]
        try:
            done = subprocess.run(command, capture_output=True, cwd=folder, check=False)
        except OSError:
            return None, False
    if not 0 <= done.returncode < 128:  # 255 for an error; else the number of conflicts
        return None, False
    return done.stdout.decode("utf-8", "surrogatepass"), done.returncode > 0
