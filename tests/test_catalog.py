"""Names of exercises, and where their pieces lie."""

import ast
from pathlib import Path

import pytest
from conftest import ROOT

from grader import catalog
from grader.catalog import Entry, NoStarter, UnknownExercise

NAMES = (
    "ex07",
    "7",
    "ex7",
    "07",
    "EX07",
    "ex07_quiet_loop",
    "ex07_quiet_loop.py",
    "exercises/ex07_quiet_loop.py",
    "./exercises/ex07_quiet_loop",
    "/somewhere/else/ex07_quiet_loop.py",
    "quiet_loop",
)


@pytest.mark.parametrize("name", NAMES)
def test_names_of_one_exercise(name: str) -> None:
    assert catalog.find(name) == Entry("ex07_quiet_loop")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ex07_quite_loop", "no exercise `ex07_quite_loop`; did you mean ex07_quiet_loop?"),
        ("quiet_lop", "no exercise `quiet_lop`; did you mean ex07_quiet_loop?"),
        ("a/ex07_quiet.py", "no exercise `a/ex07_quiet.py`; did you mean ex07_quiet_loop?"),
        ("zzz", "no exercise `zzz`; `grader list` shows them all"),
        ("", "no exercise ``; `grader list` shows them all"),
    ],
)
def test_unknown_names_suggest_the_nearest(name: str, said: str) -> None:
    with pytest.raises(UnknownExercise) as caught:
        catalog.find(name)
    assert str(caught.value) == said


@pytest.mark.parametrize("name", ["0", "99", "ex99", "ex070", "-1", "7.5", "ex07/../ex99"])
def test_numbers_without_an_exercise(name: str) -> None:
    with pytest.raises(UnknownExercise):
        catalog.find(name)


def test_exercises_come_in_the_order_of_their_ids() -> None:
    ids = [entry.id for entry in catalog.entries()]
    assert "ex07" in ids
    assert ids == sorted(ids)
    assert len(ids) == len(set(ids))


def test_the_starter_is_the_committed_one() -> None:
    """What stands in exercises/ is the learner's to change."""
    assert "TODO" in Entry("ex07_quiet_loop").starter()


def test_without_history_there_is_no_starter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "course_root", lambda: tmp_path)
    with pytest.raises(NoStarter, match="no untouched copy"):
        Entry("ex07_quiet_loop").starter()


def test_a_wheel_carries_the_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "grader"
    for kind in ("exercises", "solutions"):
        (package / "_data" / kind).mkdir(parents=True)
        (package / "_data" / kind / "ex07_quiet_loop.py").write_text(kind, "utf-8")
    monkeypatch.setattr(catalog, "PACKAGE", package)
    entry = Entry("ex07_quiet_loop")
    assert catalog.course_root() == package / "_data"
    assert entry.starter() == "exercises"
    assert entry.solution.read_text("utf-8") == "solutions"


def test_a_checkout_is_its_own_course() -> None:
    assert catalog.course_root() == ROOT


def imported(path: Path) -> set[str]:
    """The top-level names of the modules a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    return found


def test_the_course_never_imports_the_grader() -> None:
    places = ("docs/lessons", "docs/_build", "exercises", "solutions")
    files = {place: list((ROOT / place).glob("*.py")) for place in places}
    assert all(files.values())
    guilty = [path for found in files.values() for path in found if "grader" in imported(path)]
    assert not guilty
    assert "grader" in imported(Path(__file__)), "and it would be seen"
