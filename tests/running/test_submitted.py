"""Opening submissions that anybody may have prepared: no link is followed, nothing waits."""

import os
import socket
from pathlib import Path

import pytest

from grader.course.catalog import Entry
from grader.running import submitted
from grader.running.grade import grade
from grader.source.inspection import MAX_BYTES, Unreadable

FILE = "ex02_mixed_devices.py"
SECRET = "the secret of somebody else\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a student's folder in it, and a secret beside it."""
    (tmp_path / "work" / "alice").mkdir(parents=True)
    (tmp_path / "secret.py").write_text(SECRET, "utf-8")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / FILE).write_text(SECRET, "utf-8")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def refusal(path: Path) -> str:
    """What is wrong with a file that cannot be read."""
    with pytest.raises(Unreadable) as caught:
        submitted.read(path)
    finding = caught.value.finding
    assert finding.check == "file"
    assert SECRET.strip() not in finding.expected + finding.observed
    return f"{finding.expected}; {finding.observed}"


@pytest.mark.parametrize("absolute", [False, True])
def test_a_regular_file_is_read(folder: Path, absolute: bool) -> None:
    (folder / "alice" / FILE).write_bytes(b"x = 1\r\n")
    path = Path("alice", FILE)
    assert submitted.read(path.absolute() if absolute else path) == "x = 1\n"
    assert submitted.read(Path("..", "theirs", FILE)) == SECRET


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("hops", [1, 2])
def test_a_link_as_submission_is_not_followed(folder: Path, absolute: bool, hops: int) -> None:
    """`ln -s .../solutions/ex02...` once passed, and any file's lines came into the report."""
    path = folder / "alice" / FILE
    target = folder.parent / "secret.py"
    if hops == 2:
        (folder / "step").symlink_to(target)
        target = folder / "step"
    path.symlink_to(target)
    said = refusal(path if absolute else Path("alice", FILE))
    assert f"`{FILE}` is a link" in said
    assert "name the folder or file that it leads to" in said


@pytest.mark.parametrize("absolute", [False, True])
def test_a_link_as_the_folder_is_not_followed(folder: Path, absolute: bool) -> None:
    (folder / "bob").symlink_to(folder.parent / "theirs")
    path = Path("bob", FILE)
    assert "`bob` is a link" in refusal(path.absolute() if absolute else path)


def test_a_link_on_the_way_of_a_relative_path_is_not_followed(folder: Path) -> None:
    (folder.parent / "theirs" / "exercises").mkdir()
    (folder.parent / "theirs" / "exercises" / FILE).write_text(SECRET, "utf-8")
    (folder / "bob").symlink_to(folder.parent / "theirs")
    assert "`bob` is a link" in refusal(Path("bob", "exercises", FILE))


def test_the_machines_own_links_above_an_absolute_path_are_followed(folder: Path) -> None:
    (folder / "alice" / FILE).write_text("x = 1\n", "utf-8")
    (folder.parent / "home").symlink_to(folder)
    assert submitted.read(folder.parent / "home" / "alice" / FILE) == "x = 1\n"


@pytest.mark.parametrize("kind", ["fifo", "socket", "folder", "device", "dangling", "missing"])
@pytest.mark.timeout(20)
def test_nothing_but_a_regular_file_is_opened(folder: Path, kind: str) -> None:
    """Whoever opens a pipe waits for somebody to write into it."""
    path = Path("alice", FILE)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path = Path("/dev/zero")
    elif kind == "dangling":
        path.symlink_to("nowhere")
    words = {"fifo": "a named pipe", "socket": "a socket", "folder": "a folder"}
    words |= {"device": "a device", "dangling": "is a link", "missing": "No such file"}
    assert words[kind] in refusal(path)


@pytest.mark.parametrize(
    "name", ["a b.py", "a\nb.py", "'\".py", "größe.py", "::error::.py", b"\xff\xfe.py"]
)
def test_strange_names_are_names(folder: Path, name: str | bytes) -> None:
    path = Path("alice", os.fsdecode(name))
    path.write_text("x = 1\n", "utf-8")
    assert submitted.read(path) == "x = 1\n"
    submitted.shown(path).encode("utf-8")
    path.unlink()
    refusal(path).encode("utf-8")


def test_names_that_no_file_can_have(folder: Path) -> None:
    assert "File name too long" in refusal(Path("alice", "x" * 5000))
    assert "no file has such a name" in refusal(Path("alice", "a\0b"))
    assert "a folder" in refusal(Path())


def test_a_huge_file_is_not_read_whole(folder: Path) -> None:
    with (folder / "alice" / FILE).open("wb") as file:
        file.truncate(1 << 40)  # sparse: it takes no room
    assert f"at most {MAX_BYTES:,} bytes" in refusal(Path("alice", FILE))


def test_no_descriptor_is_left_open(folder: Path) -> None:
    (folder / "alice" / FILE).symlink_to(folder.parent / "secret.py")
    before = len(list(Path("/dev/fd").iterdir()))
    for _ in range(5):
        refusal(Path("alice", FILE))
        refusal(Path("alice", "none.py"))
        refusal(Path("alice"))
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_a_fault_of_the_inspection_is_one_reports_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise AttributeError("no `ctx`")

    monkeypatch.setattr(Entry, "inspect", broken)
    Path(FILE).write_text("x = 1\n", "utf-8")
    record = grade(Entry("ex02_mixed_devices"), Path(FILE), None)  # type: ignore[arg-type]
    assert record.broken.startswith("AttributeError: no `ctx` (")
    assert record.submission is None
