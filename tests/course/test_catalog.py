"""The catalogue: names of exercises, and where their files are."""

import ast
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

import starters
from grader.course import catalog
from grader.course.catalog import Entry, NoStarter, UnknownExercise

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


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package with ex07 alone, as a wheel brings it."""
    folder = tmp_path / "grader" / "checks" / "ex07_quiet_loop"
    shutil.copytree(ROOT / "grader" / "checks" / "ex07_quiet_loop", folder)
    (tmp_path / "grader" / "_data").mkdir()
    shutil.copytree(ROOT / "solutions", tmp_path / "grader" / "_data" / "solutions")
    monkeypatch.setattr(catalog, "PACKAGE", tmp_path / "grader")
    return tmp_path / "grader"


def test_each_published_starter_is_the_exercise() -> None:
    """After a change of an exercise: `python scripts/starters.py`."""
    assert list(starters.edited(ROOT)) == []
    for entry in catalog.entries():
        assert entry.starter() == (ROOT / "exercises" / entry.file_name).read_text("utf-8")


def test_the_starter_is_the_published_one_whatever_a_student_commits(
    package: Path, tmp_path: Path
) -> None:
    """A student works in a clone, and commits; the starter was read from there once."""
    (tmp_path / "exercises").mkdir()
    (tmp_path / "exercises" / "ex07_quiet_loop.py").write_text("# my own work\n", "utf-8")
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=s", "commit", "-qm", "mine"]):
        subprocess.run(["git", "-c", "user.email=s@s", *command], cwd=tmp_path, check=True)
    starter = Entry("ex07_quiet_loop").starter()
    assert "TODO" in starter
    assert "my own work" not in starter


def test_a_starter_that_was_changed_in_the_package_is_refused(package: Path) -> None:
    path = package / "checks" / "ex07_quiet_loop" / "starter.txt"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert "TODO" in Entry("ex07_quiet_loop").starter(), "line ends are no change"
    path.write_text("solved", "utf-8")
    with pytest.raises(NoStarter, match="ex07_quiet_loop is damaged"):
        Entry("ex07_quiet_loop").starter()
    path.unlink()
    with pytest.raises(NoStarter, match="install the grader anew"):
        Entry("ex07_quiet_loop").starter()


def test_a_wheel_has_its_own_solutions(package: Path) -> None:
    entry = Entry("ex07_quiet_loop")
    assert catalog.course_root() == package / "_data"
    assert entry.solution == package / "_data" / "solutions" / "ex07_quiet_loop.py"


@pytest.mark.parametrize("name", ["checks.py", "drive.py", "facts.py", "__init__.py"])
def test_a_change_of_what_decides_a_verdict_changes_the_checksum(package: Path, name: str) -> None:
    entry = Entry("ex07_quiet_loop")
    before, path = entry.checksum, package / "checks" / "ex07_quiet_loop" / name
    content = path.read_bytes()
    path.write_bytes(content.replace(b"\n", b"\r\n"))
    assert entry.checksum == before, "line ends are no change"
    path.write_bytes(content + b"# more\n")
    assert entry.checksum != before
    path.write_bytes(content)
    assert entry.checksum == before
    entry.solution.write_bytes(b"# another\n")
    assert entry.checksum != before


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
    assert "grader" in imported(Path(__file__)), "an import of the grader would be seen"
