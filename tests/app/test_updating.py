"""A starter that has changed upstream: offered as a merge, nothing lost, nobody blamed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from grader.app import reset, updating
from grader.app.remembered import Remembered, State
from grader.course.catalog import Entry
from grader.records.record import Finding, Record

ENTRY = Entry("ex07_quiet_loop")
NOW = ENTRY.starter()
OLD = NOW.replace("0.05 * g", "0.04 * g")
"""The starter as it was before: `sgd_step` is given, and is not the learner's to change."""
MINE = OLD.replace("    losses = []", "    losses = []  # my work")
type Begin = Callable[[str, str], Path]


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    """A learner's file, and what is remembered of the starter that it began with."""

    def put(text: str, began_with: str) -> Path:
        path = tmp_path / "exercises" / ENTRY.file_name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8", newline="")
        if began_with:
            State(tmp_path).put(ENTRY.stem, Remembered("", 1, began_with=began_with))
        return path

    return put


def others(path: Path) -> dict[str, str]:
    """The files beside it."""
    return {p.name: p.read_text("utf-8") for p in path.parent.iterdir() if p != path}


def test_the_old_starter_is_another_one() -> None:
    assert OLD != NOW
    found = ENTRY.inspect(OLD)
    assert [finding.check for finding in found] == ["edits"], "the change would be held against it"


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_a_change_of_the_starter_comes_into_the_learners_file(
    begin: Begin, tmp_path: Path, end: str
) -> None:
    path = begin(MINE.replace("\n", end), OLD)
    said = updating.update(ENTRY, tmp_path)
    name = f"exercises/{ENTRY.file_name}"
    assert said == f"{name} has the new starter's changes; your version is {name}.1"
    merged = path.read_bytes().decode()
    assert "# my work" in merged
    assert "0.05 * g" in merged
    assert merged.replace("\r\n", "\n").count("\n") == merged.count(end)
    assert path.with_name(f"{path.name}.1").read_bytes().decode() == MINE.replace("\n", end)
    assert updating.update(ENTRY, tmp_path) == f"{name} is up to date"


def test_where_both_changed_the_same_lines_the_file_stays(begin: Begin, tmp_path: Path) -> None:
    mine = MINE.replace("0.04 * g", "0.9 * g")
    path = begin(mine, OLD)
    said = updating.update(ENTRY, tmp_path)
    assert "was left as it is: you and the starter changed the same lines" in said
    assert path.read_text("utf-8") == mine
    (merge,) = others(path).values()
    assert "<<<<<<< yours" in merge
    assert ">>>>>>> the starter\n" in merge
    assert "# my work" in merge


@pytest.mark.parametrize("lacking", ["git", "note"])
def test_without_git_or_a_note_the_new_starter_lies_beside(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    path = begin(MINE, OLD if lacking == "git" else "")
    if lacking == "git":
        monkeypatch.setenv("PATH", "")
    said = updating.update(ENTRY, tmp_path)
    reason = {"git": "there is no git here", "note": "which starter you began with"}[lacking]
    assert reason in said
    assert said.endswith(f"the new starter is exercises/{ENTRY.file_name}.new")
    assert path.read_text("utf-8") == MINE
    assert others(path) == {f"{path.name}.new": NOW}


def test_a_file_that_cannot_be_read_stays(begin: Begin, tmp_path: Path) -> None:
    path = begin("", OLD)
    path.write_bytes(b"\xff")
    assert "was left as it is: byte 0xff is not UTF-8" in updating.update(ENTRY, tmp_path)
    path.unlink()
    path.symlink_to("/dev/zero")
    assert "is a link" in updating.update(ENTRY, tmp_path)
    path.unlink()
    assert "`grader reset ex07` writes the starter" in updating.update(ENTRY, tmp_path)


def judged(source: str, known: Remembered | None) -> Record:
    """A record of the file, as the grader excuses it."""
    record = Record(ENTRY.stem, "", source, 0)
    record.findings = ENTRY.inspect(source)
    updating.excuse(ENTRY, record, known)
    return record


def test_a_change_of_the_starter_is_not_held_against_the_learner() -> None:
    record = judged(MINE, Remembered("", 1, began_with=OLD))
    assert record.findings == []
    assert "`grader update ex07` brings the change into it" in record.unavailable


@pytest.mark.parametrize(
    ("source", "began_with"),
    [
        (MINE, ""),
        (MINE, NOW),
        (MINE.replace("0.04 * g", "0.9 * g"), OLD),
        ("def (", OLD),
    ],
    ids=["no-note", "same-starter", "edited-outside", "no-python"],
)
def test_whatever_else_is_wrong_is_held_against_the_learner(source: str, began_with: str) -> None:
    record = judged(source, Remembered("", 1, began_with=began_with))
    assert record.findings
    assert not record.unavailable
    assert judged(source, None).findings


def test_what_a_file_began_with_is_noted_when_it_fits(begin: Begin, tmp_path: Path) -> None:
    assert updating.base(ENTRY, NOW, None) == NOW
    assert updating.base(ENTRY, MINE, None) == ""
    assert updating.base(ENTRY, MINE, Remembered("", 1, began_with=OLD)) == OLD
    assert updating.base(ENTRY, "", None) == ""
    reset.reset(ENTRY, tmp_path)
    known = State(tmp_path).get(ENTRY.stem)
    assert known is not None
    assert known.began_with == NOW


def test_a_finding_of_another_kind_is_no_matter_of_starters() -> None:
    record = Record(ENTRY.stem, "", MINE, 0)
    record.findings = [Finding("file", None, "a", "b")]
    updating.excuse(ENTRY, record, Remembered("", 1, began_with=OLD))
    assert record.findings
