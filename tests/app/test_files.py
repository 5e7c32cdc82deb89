"""Which file is graded, what it is called in a report, and which files are the learner's own."""

import json
import os
from pathlib import Path

import pytest
from conftest import ROOT, Cli

from grader.app.files import is_own, label
from grader.running.session import hidden_folders

STEM = "ex07_quiet_loop"
OTHER = "ex02_mixed_devices"
SOLVED = ROOT / "solutions" / f"{OTHER}.py"


def test_only_files_of_the_working_folder_are_the_learners_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = ("exercises", ".", str(tmp_path / "exercises"), "./exercises/../exercises")
    others = ("alice/exercises", "../exercises", "/exercises", "exercises/exercises", "alice")
    assert all(is_own(Path(folder, f"{STEM}.py"), STEM) for folder in own)
    assert not any(is_own(Path(folder, f"{STEM}.py"), STEM) for folder in others)
    assert not is_own(Path("exercises", f"{OTHER}.py"), STEM)


def test_grading_a_student_leaves_the_instructors_own_state(grader: Cli, folder: Path) -> None:
    """A student's folder is often called exercises/, too."""
    (folder / "alice" / "exercises").mkdir(parents=True)
    (folder / "alice" / "exercises" / f"{STEM}.py").write_text("def (", "utf-8")
    ran = grader("check", "ex07", "--submission", "alice/exercises")
    assert ran.returncode == 1
    assert "grader hint" not in ran.stdout
    assert "not checked" in grader("status").stdout.splitlines()[6]
    assert not (folder / ".grader").exists()
    assert [path.name for path in (folder / "alice" / "exercises").iterdir()] == [f"{STEM}.py"]


def test_two_submissions_at_once_are_refused(grader: Cli, folder: Path) -> None:
    """The first one would go ungraded, and nobody would notice."""
    for name in ("alice", "bob"):
        (folder / name).mkdir()
        (folder / name / f"{STEM}.py").write_text("def (", "utf-8")
    ran = grader("check", "ex07", "--submission", "alice", "--submission", "bob")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert (
        "--submission was given 2 times (alice, bob); run the command once for each" in ran.stderr
    )


def test_a_path_beside_the_name_of_its_exercise_is_what_is_graded(
    grader: Cli, folder: Path
) -> None:
    (folder / "alice").mkdir()
    (folder / "alice" / f"{STEM}.py").write_text("def (", "utf-8")
    for names in (("ex07", f"alice/{STEM}.py"), (f"alice/{STEM}.py", "7")):
        ran = grader("check", *names)
        assert ran.returncode == 1
        assert f"--> alice/{STEM}.py:1" in ran.stdout
    ran = grader("check", f"alice/{STEM}.py", f"exercises/{STEM}.py")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"two files of one exercise, alice/{STEM}.py and exercises/{STEM}.py" in ran.stderr


def test_a_link_to_a_solution_passes_nothing(grader: Cli, folder: Path) -> None:
    (folder / "exercises" / SOLVED.name).symlink_to(SOLVED)
    ran = grader("check", OTHER)
    assert ran.returncode == 1
    assert f"`{SOLVED.name}` is a link" in ran.stdout


def test_a_link_prints_no_line_of_another_file(grader: Cli, folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("TOKEN = hunter2 secret\n", "utf-8")
    (folder / "exercises" / SOLVED.name).symlink_to(secret)
    ran = grader("check", OTHER, "--format", "json")
    assert ran.returncode == 1
    assert "hunter2" not in ran.stdout + ran.stderr


def test_of_several_named_exercises_a_missing_file_fails_its_own(grader: Cli, folder: Path) -> None:
    """It once stopped the command before anything was graded."""
    (folder / "exercises" / f"{STEM}.py").write_text("def (", "utf-8")
    ran = grader("check", "ex02", "ex07", "--format", "json")
    reports = json.loads(ran.stdout)["reports"]
    assert ran.returncode == 1
    assert [one["exercise"] for one in reports] == [OTHER, STEM]
    assert "No such file" in reports[0]["verdicts"][0]["observed"]
    assert grader("check", "ex02", "ex04").returncode == 2, "there is nothing to grade at all"


NAMES = [
    "with space",
    "new\nline",
    "'quoted\"",
    "größe",
    "$(id)",
    "-rf",
    "[bold]x",
    os.fsdecode(b"\xff\xfe"),
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_folders_may_have_any_name(grader: Cli, folder: Path, name: str) -> None:
    """Also one that is not UTF-8, of which JSON knows nothing."""
    student = folder / name
    student.mkdir()
    (student / f"{STEM}.py").write_text("def (", "utf-8")
    ran = grader(
        *("check", "ex07", "--format", "json"),
        *(f"--submission={name}", f"--save={name}/records"),
    )
    assert (ran.returncode, ran.stderr) == (1, "")
    (report,) = json.loads(ran.stdout)["reports"]
    assert report["path"] == os.fsencode(f"{name}/{STEM}.py").decode("utf-8", "backslashreplace")
    assert (student / "records" / f"{STEM}.json").is_file()
    ran = grader("check", "ex07", f"--submission={name}")
    assert ran.returncode == 1
    assert "broke" not in ran.stderr
    ran = grader("judge", f"{'./' if name.startswith('-') else ''}{name}/records/{STEM}.json")
    assert ran.returncode == 1


def test_a_label_is_always_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert label(Path(os.fsdecode(b"\xff.py"))) == "\\xff.py"
    assert label(tmp_path / "exercises" / "a.py") == "exercises/a.py"
    assert label(Path("/elsewhere/a.py")) == "/elsewhere/a.py"


def test_a_folder_that_may_not_be_entered_is_a_wrong_command_not_a_fault(
    grader: Cli, folder: Path
) -> None:
    long = "x" * 5000
    ran = grader("check", "ex07", "--submission", long)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "no file" in ran.stderr


def test_a_folder_with_ten_thousand_entries_and_no_end(grader: Cli, folder: Path) -> None:
    """What is not asked for is not looked at."""
    many = folder / "many"
    many.mkdir()
    for number in range(10_000):
        (many / f"ex{number}").touch()
    os.mkfifo(many / f"{OTHER}.py")
    with (many / "ex04_place_model.py").open("wb") as file:
        file.truncate(1 << 40)
    (many / f"{STEM}.py").mkdir()
    (many / "ex03_create_in_place.py").symlink_to("/dev/zero")
    ran = grader("check", "2", "3", "4", "7", "--submission", "many", "--format", "json")
    assert ran.returncode == 1
    said = [one["verdicts"][0]["observed"] for one in json.loads(ran.stdout)["reports"]]
    assert said[0] == "it is a named pipe"
    assert "is a link" in said[1]
    assert "1,099,511,627,776 bytes" in said[2]
    assert said[3] == "it is a folder"


def test_what_shows_solutions_is_hidden_from_submissions() -> None:
    """Also what was built of the course, and copies of it on the import path."""
    hidden = hidden_folders()
    wanted = [ROOT / name for name in ("solutions", "tests", "docs", "exercises", "bench")]
    assert [str(path) for path in wanted if str(path) not in hidden] == []
    assert str(ROOT / "grader") not in hidden
    assert not [one for one in hidden if Path(os.__file__).is_relative_to(one)]
