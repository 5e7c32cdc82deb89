"""Saved records: whole or not there, never over another, and only judged by the rules they fit."""

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import Cli, stamped

import grader as package
from grader.app.saving import save
from grader.course.catalog import Entry
from grader.records.record import Record, decode_record

STEM = "ex07_quiet_loop"


def record(source: str) -> Record:
    """The record of somebody's file."""
    return Record(STEM, f"exercises/{STEM}.py", source, 0)


def test_the_records_of_two_students_do_not_meet(grader: Cli, folder: Path) -> None:
    """Their files have the same name, and the second record once took the place of the first."""
    for name in ("alice", "bob"):
        (folder / name).mkdir()
        (folder / name / f"{STEM}.py").write_text(f"def ({name}", "utf-8")
        grader("check", "ex07", "--submission", name, "--save", "records", "--format", "json")
    saved = [folder / "records" / f"{STEM}.json", folder / "records" / f"{STEM}.2.json"]
    assert sorted((folder / "records").iterdir()) == sorted(saved)
    assert [decode_record(path.read_bytes()).source for path in saved] == ["def (alice", "def (bob"]


def test_a_report_names_its_record(grader: Cli, folder: Path) -> None:
    (folder / "exercises" / f"{STEM}.py").write_text("def (", "utf-8")
    names = []
    for _ in range(2):
        ran = grader("check", "ex07", "--save", "records", "--format", "json")
        names.append(json.loads(ran.stdout)["reports"][0]["saved"])
    assert names == [f"records/{STEM}.json", f"records/{STEM}.2.json"]


@pytest.mark.parametrize("links", [True, False], ids=["links", "no-links"])
def test_many_runs_at_once_lose_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def refuse(_: Path, __: Path) -> None:
        raise OSError(errno.EPERM, "no links here")

    if not links:
        monkeypatch.setattr(Path, "hardlink_to", refuse)
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda n: save(record(str(n)), tmp_path), range(40)))
    assert len(set(paths)) == 40
    assert {decode_record(path.read_bytes()).source for path in paths} == set(map(str, range(40)))
    assert sorted(tmp_path.iterdir()) == sorted(paths), "no part of one is left"


def test_a_record_that_is_cut_short_has_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(record("x"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_record_says_who_made_it(grader: Cli, folder: Path) -> None:
    (folder / "exercises" / f"{STEM}.py").write_text("def (", "utf-8")
    ran = grader("check", "ex07", "--save", "records", "--format", "json")
    made = json.loads((folder / "records" / f"{STEM}.json").read_bytes())["made"]
    assert json.loads(ran.stdout)["reports"][0]["made"] == made
    assert made["grader"] == package.__version__
    assert made["checksum"] == Entry(STEM).checksum
    assert made["date"].startswith("20")
    assert made["date"].endswith("Z")
    assert "processor" in made["system"]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("grader", "0.0.9", "was made by grader 0.0.9 on 20"),
        ("checksum", "0" * 16, "for other checks of ex07 than are here: check the submission"),
        (None, None, "does not say which checks of ex07 it was made for"),
    ],
)
def test_a_record_for_other_rules_is_refused_in_a_sentence(
    grader: Cli, tmp_path: Path, field: str | None, value: str | None, said: str
) -> None:
    path = stamped("ex07_starter.json", tmp_path)
    assert grader("judge", path).returncode == 1
    saved = json.loads(path.read_bytes())
    if field is None:
        del saved["made"]
    else:
        saved["made"][field] = value
    path.write_text(json.dumps(saved), "utf-8")
    ran = grader("judge", path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert said in ran.stderr
    assert ran.stderr.count("\n") == 1
