"""Remembers, in `.grader/` beside the exercises, what was last graded and hinted.

A convenience for `status` and `hint`, never evidence. A folder that cannot be written
is no error: the grader then remembers nothing.
"""

import hashlib
import tempfile
from pathlib import Path

import msgspec


class Remembered(msgspec.Struct):
    """The last grading of one exercise, and how many hints were given since."""

    digest: str
    exit_code: int
    failed: list[str] = []
    hints_given: int = 0
    solved_once: bool = False


def digest(source: str) -> str:
    """What tells one version of a file from another."""
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def is_own(path: Path, stem: str) -> bool:
    """Whether a graded file is the learner's own copy of an exercise: that alone is remembered."""
    return path.parent.name in ("", "exercises") and path.name == f"{stem}.py"


class State:
    """The memory of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / ".grader"

    def get(self, stem: str) -> Remembered | None:
        """What is known of an exercise, None if nothing."""
        try:
            raw = (self._folder / f"{stem}.json").read_bytes()
            return msgspec.json.decode(raw, type=Remembered)
        except (OSError, msgspec.DecodeError):
            return None

    def put(self, stem: str, remembered: Remembered) -> bool:
        """Remember; returns whether it could. Whole files only: two graders may write."""
        try:
            self._folder.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, delete_on_close=False) as file:
                file.write(msgspec.json.encode(remembered))
                file.close()
                Path(file.name).replace(self._folder / f"{stem}.json")
        except OSError:
            return False
        return True
