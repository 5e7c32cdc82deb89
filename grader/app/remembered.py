"""Remembers, in `.grader/` beside the exercises, what was last graded and hinted.

It is a convenience for `status` and `hint`, never evidence. A folder that cannot be written
is not an error: the grader then remembers nothing. Nor does it follow a link there, or wait for a
pipe: the working folder may be a student's. What is remembered comes from `grader.app.grading`,
`grader.app.reset` and `grader.app.hints`.
"""

import hashlib
import os
import tempfile
from pathlib import Path

import msgspec

from grader.running.submitted import opened
from grader.source.inspection import Unreadable

MAX_BYTES = 1 << 20
"""Of one remembered grading, which holds a starter and the names of checks."""


class Remembered(msgspec.Struct):
    """The last grading of one exercise, and how many hints were given since then."""

    digest: str
    exit_code: int
    failed: list[str] = []
    hints: dict[str, int] = {}
    """Check -> how many of its hints were given; "" stands for the exercise."""
    chosen: dict[str, str] = {}
    """Check -> the hint that what was observed asks for, if that is not the check's own first."""
    solved_once: bool = False
    checksum: str = ""
    """Of the exercise that was graded (`Entry.checksum`)."""
    began_with: str = ""
    """The starter that the file is an edit of, as far as is known."""


def digest(source: str) -> str:
    """A short text that tells one version of a file from another."""
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class State:
    """The memory of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / ".grader"

    def get(self, stem: str) -> Remembered | None:
        """What is known of an exercise, None if nothing."""
        try:
            with opened(self._folder / f"{stem}.json") as descriptor:
                raw = os.read(descriptor, MAX_BYTES)
            return msgspec.json.decode(raw, type=Remembered)
        except (OSError, Unreadable, msgspec.DecodeError, RecursionError):
            return None

    def put(self, stem: str, remembered: Remembered) -> bool:
        """Remember; returns whether it could. Files are replaced whole: two graders may write."""
        if self._folder.is_symlink():  # somebody else's folder, for all that is known
            return False
        try:
            self._folder.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, delete_on_close=False) as file:
                file.write(msgspec.json.encode(remembered))
                file.close()
                Path(file.name).replace(self._folder / f"{stem}.json")
        except OSError:
            return False
        return True
