"""What the grader keeps in a learner's folder: results, and older versions of a file."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from grader.app import reset as files
from grader.app.remembered import Remembered, State, digest
from grader.course.catalog import Entry

ENTRY = Entry("ex07_quiet_loop")
KNOWN = Remembered("abc", 1, ["same_losses"], {"same_losses": 2})


def test_a_result_that_was_put_can_be_read(tmp_path: Path) -> None:
    assert State(tmp_path).get("ex07") is None
    assert State(tmp_path).put("ex07", KNOWN)
    assert State(tmp_path).get("ex07") == KNOWN
    assert State(tmp_path).get("ex08") is None
    assert [path.name for path in (tmp_path / ".grader").iterdir()] == ["ex07.json"]


def test_what_an_older_grader_remembered_is_kept(tmp_path: Path) -> None:
    """It counted hints by exercise, in a field that is gone."""
    (tmp_path / ".grader").mkdir()
    old = b'{"digest": "abc", "exit_code": 0, "failed": [], "hints_given": 2, "solved_once": true}'
    (tmp_path / ".grader" / "ex07.json").write_bytes(old)
    assert State(tmp_path).get("ex07") == Remembered("abc", 0, solved_once=True)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"digest": 1}', b"\xff\x00"])
def test_a_broken_file_counts_as_nothing_remembered(tmp_path: Path, content: bytes) -> None:
    State(tmp_path).put("ex07", KNOWN)
    (tmp_path / ".grader" / "ex07.json").write_bytes(content)
    assert State(tmp_path).get("ex07") is None
    assert State(tmp_path).put("ex07", KNOWN)


def test_what_cannot_be_written_is_not_remembered(tmp_path: Path) -> None:
    (tmp_path / ".grader").write_text("in the way", "utf-8")
    assert not State(tmp_path).put("ex07", KNOWN)
    assert State(tmp_path).get("ex07") is None
    assert not State(tmp_path / "none").put("ex07", KNOWN)


def test_a_link_as_the_folder_is_not_followed(tmp_path: Path) -> None:
    """Whoever grades in a student's folder would write where that student likes."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / ".grader").symlink_to(tmp_path / "etc")
    assert not State(tmp_path / "work").put("ex07", KNOWN)
    assert list((tmp_path / "etc").iterdir()) == []
    (tmp_path / "etc" / "ex07.json").write_text('{"digest":"","exit_code":0}', "utf-8")
    assert State(tmp_path / "work").get("ex07") is None


@pytest.mark.timeout(20)
def test_a_pipe_as_the_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / ".grader").mkdir()
    os.mkfifo(tmp_path / ".grader" / "ex07.json")
    assert State(tmp_path).get("ex07") is None
    assert State(tmp_path).put("ex07", KNOWN)
    assert State(tmp_path).get("ex07") == KNOWN


def test_two_graders_in_one_folder(tmp_path: Path) -> None:
    """A reader finds one of their results, whole, and no other file stays behind."""
    state = State(tmp_path)
    state.put("ex07", KNOWN)
    versions = [Remembered(str(n), 1, ["check"] * 1000) for n in range(2)]
    with ThreadPoolExecutor(4) as pool:
        wrote = [pool.submit(state.put, "ex07", version) for version in versions * 100]
        read = [pool.submit(state.get, "ex07") for _ in range(200)]
    assert all(one.result() for one in wrote)
    assert all(one.result() in (KNOWN, *versions) for one in read)
    assert len(list((tmp_path / ".grader").iterdir())) == 1


def test_other_versions_have_other_digests() -> None:
    assert digest("a") == digest("a") != digest("b")
    assert digest("\ud800")


@pytest.fixture
def starter(monkeypatch: pytest.MonkeyPatch) -> str:
    """The published starter, whatever is in it."""
    monkeypatch.setattr(Entry, "starter", lambda _: "starter\n")
    return "starter\n"


def test_two_resets_at_once_lose_nothing(tmp_path: Path, starter: str) -> None:
    path = tmp_path / "exercises" / ENTRY.file_name
    path.parent.mkdir()
    path.write_text("mine", "utf-8")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: files.reset(ENTRY, tmp_path), range(16)))
    assert path.read_text("utf-8") == starter
    kept = [one.read_text("utf-8") for one in path.parent.iterdir() if one != path]
    assert "mine" in kept


def test_a_kept_version_is_never_written_over(tmp_path: Path, starter: str) -> None:
    path = tmp_path / "exercises" / ENTRY.file_name
    path.parent.mkdir()
    path.write_bytes(b"mine\r\n\xff")
    older = path.with_name(path.name + ".1")
    older.write_text("older", "utf-8")
    assert files.reset(ENTRY, tmp_path).endswith(f"your version is exercises/{path.name}.2")
    assert older.read_text("utf-8") == "older"
    assert path.with_name(path.name + ".2").read_bytes() == b"mine\r\n\xff"
    assert path.read_text("utf-8") == starter
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_folder_in_the_place_of_the_file(tmp_path: Path, starter: str) -> None:
    (tmp_path / "exercises" / ENTRY.file_name).mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        files.reset(ENTRY, tmp_path)
    assert starter
