"""Grading many files: a fault in one costs no other its report. Nothing is run here."""

import json
from pathlib import Path

import pytest
from made_up import add, exercise, record

from grader.app import grading
from grader.app.grading import Wanted, grade_all
from grader.course.catalog import Entry
from grader.judging.checking import Exercise, Failure, Result
from grader.records.record import Record


def broken(record: Record) -> Result:
    """A check with a fault of its own."""
    raise ZeroDivisionError("division by zero")


def entry(stem: str, made: Exercise) -> Entry:
    """An exercise with made-up checks."""
    found = Entry(stem)
    found.__dict__["exercise"] = made
    return found


def graded(form: str, monkeypatch: pytest.MonkeyPatch, *, brief: bool = True) -> int:
    """Grade three files: one meets a broken check, one a broken run, one fails."""
    with_fault = exercise(one=None)
    add(with_fault, "two", broken)
    work = {
        entry("ex01_one", with_fault): record(),
        entry("ex02_two", exercise(one=None)): record(broken="the reference solution ended"),
        entry("ex03_three", exercise(one=Failure("x", "y"))): record(),
    }
    for one, made in work.items():
        made.exercise = one.stem
    monkeypatch.setattr(grading, "grade", lambda entry, *_, **__: work[entry])
    monkeypatch.setattr(grading, "begin_next", lambda *_: None)
    wanted = Wanted(None, "cpu", None, None, 60.0, form, None)
    files = [(one, Path(f"elsewhere/{one.file_name}")) for one in work]
    return grade_all(files, None, wanted, brief=brief)  # type: ignore[arg-type]


def test_json_comes_out_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert graded("json", monkeypatch) == 4
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == 4
    statuses = [[v["status"] for v in report["verdicts"]] for report in document["reports"]]
    assert statuses == [
        ["pass", "pass", "pass", "could not check"],
        ["pass", "could not check", "could not check"],
        ["pass", "pass", "fail"],
    ]
    fault = document["reports"][0]["verdicts"][3]["fault"]
    assert fault == "check two: ZeroDivisionError: division by zero"


@pytest.mark.parametrize("brief", [True, False])
def test_every_report_is_printed(
    brief: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert graded("text", monkeypatch, brief=brief) == 4
    shown = capsys.readouterr().out
    for said in ("please report: check two: Zero", "please report: the reference", "ex03_three"):
        assert said in shown


def test_the_next_reference_is_begun_beside_each_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next grading gets it."""
    entries = [entry(stem, exercise(one=None)) for stem in ("ex01_one", "ex02_two", "ex03_three")]
    told: list[tuple[str, object]] = []

    def grade(entry: Entry, *_: object, ahead: object, **__: object) -> Record:
        told.append((entry.stem, ahead))
        made = record()
        made.exercise = entry.stem
        return made

    monkeypatch.setattr(grading, "grade", grade)
    monkeypatch.setattr(grading, "begin_next", lambda now, upcoming, *_: (now.stem, upcoming.stem))
    wanted = Wanted(None, "cpu", None, None, 60.0, "json", None)
    files = [(one, Path(f"elsewhere/{one.file_name}")) for one in entries]
    grade_all(files, None, wanted, brief=True)  # type: ignore[arg-type]
    assert told == [
        ("ex01_one", None),
        ("ex02_two", ("ex01_one", "ex02_two")),
        ("ex03_three", ("ex02_two", "ex03_three")),
    ]
