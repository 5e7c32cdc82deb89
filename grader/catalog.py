"""Finds exercises: ids, files, metadata. The catalogue is the file names.

In a checkout the pieces lie in `exercises/` and `solutions/` beside the package; in an
installed wheel they lie in `grader/_data/`. No JAX: a check module imports it only
inside its `drive()`.
"""

import difflib
import importlib
import re
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from grader.checking import Exercise

PACKAGE = Path(__file__).resolve().parent
_ID = re.compile(r"^(?:ex)?0*(\d{1,2})$")
_STEM = re.compile(r"^ex\d\d_[a-z0-9_]+$")


class UnknownExercise(Exception):
    """No exercise of that name; the message suggests the nearest."""


class NoStarter(Exception):
    """The untouched starter cannot be had; the message says why."""


def course_root() -> Path:
    """The folder that holds `exercises/` and `solutions/`."""
    checkout = PACKAGE.parent
    if (checkout / "solutions").is_dir() and (checkout / "pyproject.toml").is_file():
        return checkout
    return PACKAGE / "_data"


@dataclass(frozen=True)
class Entry:
    """One exercise by its stem, `ex07_quiet_loop`."""

    stem: str

    @property
    def id(self) -> str:
        """`ex07`."""
        return self.stem.split("_", 1)[0]

    @property
    def file_name(self) -> str:
        """`ex07_quiet_loop.py`."""
        return f"{self.stem}.py"

    @property
    def solution(self) -> Path:
        """The reference solution."""
        return course_root() / "solutions" / self.file_name

    @cached_property
    def exercise(self) -> Exercise:
        """Metadata, drive and checks, from `grader/checks/<stem>.py`."""
        loaded = importlib.import_module(f"grader.checks.{self.stem}").EXERCISE
        assert isinstance(loaded, Exercise)
        return loaded

    def starter(self) -> str:
        """The source of the untouched starter.

        Raises:
          NoStarter: neither a wheel's copy nor the repository's history is there.
        """
        packaged = PACKAGE / "_data" / "exercises" / self.file_name
        if packaged.is_file():
            return packaged.read_text("utf-8")
        return _committed(course_root(), f"exercises/{self.file_name}")


def _committed(root: Path, path: str) -> str:
    show = ["git", "-C", str(root), "show", f"HEAD:{path}"]
    try:
        shown = subprocess.run(show, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoStarter(f"{path}: no untouched copy (is this a git checkout?)") from error
    return shown.stdout.decode("utf-8")


def entries() -> list[Entry]:
    """All exercises, by id."""
    stems = (path.stem for path in (PACKAGE / "checks").glob("ex*.py"))
    return [Entry(stem) for stem in sorted(stems) if _STEM.match(stem)]


def find(name: str) -> Entry:
    """The exercise that `name` means: `ex07`, `7`, `ex07_quiet_loop`, `quiet_loop`, or a path.

    Raises:
      UnknownExercise: none, with the nearest name.
    """
    known = entries()
    stem = (Path(name).stem if name.endswith(".py") or "/" in name else name).lower()
    number = _ID.match(stem)
    for entry in known:
        slug = entry.stem.split("_", 1)[1]
        if stem in (entry.stem, slug) or (number and entry.id == f"ex{int(number[1]):02d}"):
            return entry
    raise UnknownExercise(_suggestion(name, stem, known))


def _suggestion(name: str, stem: str, known: list[Entry]) -> str:
    if _ID.match(stem):  # another number is no misspelling
        return f"no exercise `{name}`; `grader list` shows them all"
    names = {word: e.stem for e in known for word in (e.stem, e.id, e.stem.split("_", 1)[1])}
    near = difflib.get_close_matches(stem, names, n=1, cutoff=0.5)
    said = f"did you mean {names[near[0]]}?" if near else "`grader list` shows them all"
    return f"no exercise `{name}`; {said}"
