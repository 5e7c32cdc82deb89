"""Finds exercises: ids, files, metadata. The catalogue is the folders of `grader/checks/`.

An exercise's published starter lies in its folder there, with a checksum: what a learner's copy
in `exercises/` holds by now is not asked. Solutions lie beside the package in a checkout, and in
`grader/_data/` in an installed wheel. There is no JAX here, since an exercise's metadata and
checks import none. Its drive is only named here; a worker imports it.
"""

import difflib
import hashlib
import importlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from grader.judging.checking import Exercise
from grader.records.record import Finding
from grader.source import inspection

PACKAGE = Path(__file__).resolve().parent.parent
_ID = re.compile(r"^(?:ex)?0*(\d{1,2})$")
_STEM = re.compile(r"^ex\d\d_[a-z0-9_]+$")
_DECIDING = (".py", ".toml", ".json")


class UnknownExercise(Exception):
    """There is no exercise of that name; the message suggests the nearest."""


class NoStarter(Exception):
    """There is no published starter; the message says why, and what to do."""


def course_root() -> Path:
    """The folder that holds `solutions/` and `constraints.txt`."""
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
        """Metadata and checks, from `grader/checks/<stem>/`."""
        loaded = importlib.import_module(f"grader.checks.{self.stem}.checks").EXERCISE
        assert isinstance(loaded, Exercise)
        loaded.model = self.solution.read_text("utf-8")
        return loaded

    def inspect(self, text: str, original: str = "") -> list[Finding]:
        """All that is wrong with the text of a submission; empty if nothing is.

        `original` is the text that it is an edit of: the reference solution, if none is given.
        """
        edits, allowed = self.exercise.edits, self.exercise.allowed_modules
        return inspection.inspect_source(text, original or self.exercise.model, edits, allowed)

    @property
    def drive_module(self) -> str:
        """The module that drives a submission, for a worker to import: it imports JAX."""
        return f"grader.checks.{self.stem}.drive"

    @property
    def folder(self) -> Path:
        """Metadata, drive, checks and the published starter."""
        return PACKAGE / "checks" / self.stem

    def starter(self) -> str:
        """The source of the published starter.

        Raises:
          NoStarter: the package's copy is gone, or is not what was published.
        """
        try:
            raw = (self.folder / "starter.txt").read_bytes()
            known = (self.folder / "starter.sha256").read_text("utf-8").strip()
        except OSError as error:
            raise NoStarter(_damaged(self.stem, str(error.strerror))) from error
        if _checksum([raw]) != known:
            raise NoStarter(_damaged(self.stem, "it was changed"))
        return _normal(raw).decode("utf-8")

    @property
    def checksum(self) -> str:
        """A short text that is another one as soon as a file changes that decides a verdict.

        Those are the files of the exercise's folder, and the solution.
        """
        files = [path for path in sorted(self.folder.iterdir()) if path.suffix in _DECIDING]
        named = [path.name.encode() + b"\n" + path.read_bytes() for path in files]
        return _checksum([*named, self.solution.read_bytes()])[:16]


def _damaged(stem: str, why: str) -> str:
    return f"the package's starter of {stem} is damaged ({why}): install the grader anew"


def _normal(raw: bytes) -> bytes:
    """Another kind of line ends is no other text."""
    return raw.replace(b"\r\n", b"\n")


def _checksum(parts: Iterable[bytes]) -> str:
    return hashlib.sha256(b"\0".join(map(_normal, parts))).hexdigest()


def entries() -> list[Entry]:
    """All exercises, by id."""
    stems = (path.parent.name for path in (PACKAGE / "checks").glob("ex*/__init__.py"))
    return [Entry(stem) for stem in sorted(stems) if _STEM.match(stem)]


def find(name: str) -> Entry:
    """The exercise that `name` means: `ex07`, `7`, `ex07_quiet_loop`, `quiet_loop`, or a path.

    Raises:
      UnknownExercise: there is none; the message suggests the nearest name.
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
    if _ID.match(stem):  # a wrong number is not a misspelling
        return f"no exercise `{name}`; `grader list` shows them all"
    names = {word: e.stem for e in known for word in (e.stem, e.id, e.stem.split("_", 1)[1])}
    near = difflib.get_close_matches(stem, names, n=1, cutoff=0.5)
    said = f"did you mean {names[near[0]]}?" if near else "`grader list` shows them all"
    return f"no exercise `{name}`; {said}"
