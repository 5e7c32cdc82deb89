"""What the reference compiled, a submission reads and cannot change; and nobody else does."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import fenced
import pytest
from fenced import ROOT, SEED, untimed

from grader.fences import namespaces
from grader.fences.namespaces import COMPILED
from grader.records.record import Observed
from grader.running import compiled
from grader.running.grade import grade
from grader.running.messages import DriveJob
from grader.running.session import Options, Session, modules_of
from grader.running.sides import Place, Reference, Side

LOOKS = f"""import os

import jax


def train(step, params, batches):
    seen = sorted(os.listdir({COMPILED!r}))
    refused = []
    for name in (seen[0], "new"):
        try:
            open({COMPILED!r} + "/" + name, "wb")
        except OSError as error:
            refused.append(error.strerror)
    raise ValueError(f"{{len(seen)}} programs, {{refused}}")
"""
DRIVES = """import sys, tempfile
from pathlib import Path

from fenced import SEED, untimed

from grader.running.session import Options, Session, modules_of
from grader.running.sides import Reference

fenced = sys.argv[1] == "fenced"
with Session(Options(device="cpu", fenced=fenced), modules_of([untimed()])) as session:
    side = Reference(untimed(), session, SEED).side
    side.wait()
    programs = list(Path(tempfile.gettempdir()).glob("grader-compiled-*/all/*/*"))
    print(side.driven.result()[0].outcome.kind, len(programs) > 0)
"""


@pytest.fixture(autouse=True)
def _temporary() -> Iterator[None]:
    """No other session's folders: those of this module's sessions lie in one of their own."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        Path(folder).chmod(0o711)  # each fenced worker is a user of its own
        patch.setattr(tempfile, "tempdir", folder)
        patch.setenv("TMPDIR", folder)
        yield


@pytest.fixture
def session() -> Iterator[Session]:
    """A session that has compiled nothing yet."""
    with Session(Options(device="cpu"), modules_of([untimed()])) as opened:
        yield opened


def folders() -> list[Path]:
    """The folders of compiled programs that are there."""
    return list(Path(tempfile.gettempdir()).glob("grader-compiled-*"))


def programs() -> dict[Path, int]:
    """The programs that were handed on, and when each was written; no worker has more."""
    (found,) = folders()
    assert not list((found / "all" / "own").iterdir())
    return {path: path.stat().st_mtime_ns for path in (found / "all" / "handed_on").iterdir()}


def driven(session: Session) -> Observed:
    """The reference of ex07, driven and measured."""
    side = Reference(untimed(), session, SEED).side
    side.wait()
    return side.driven.result()[0]


def test_the_reference_compiles_a_program_once_and_hands_it_on(session: Session) -> None:
    assert driven(session).outcome.kind == "finished"
    assert (first := programs())
    assert driven(session).outcome.kind == "finished"
    assert programs() == first


def test_a_submission_reads_and_adds_nothing(session: Session, tmp_path: Path) -> None:
    entry = untimed()
    driven(session)
    before = programs()
    source = entry.solution.read_text("utf-8")
    path = tmp_path / entry.file_name
    path.write_text(source.replace("losses = []", "losses = list(jnp.arange(0, 0.5).tolist())[:0]"))
    record = grade(entry, path, session, seed=SEED)
    assert record.submission is not None
    assert record.submission.outcome.kind == "finished"
    assert programs() == before
    assert "cache" not in record.submission.outcome.output


def test_a_submission_cannot_change_what_it_reads(session: Session) -> None:
    driven(session)
    count = len(programs())
    job = DriveJob(untimed().drive_module, "looks.py", fenced.submission(LOOKS), SEED)
    side = Side(session, Place("cpu", 1), job, hide=True)
    side.wait()
    said = side.driven.result()[0].outcome.message
    assert said.endswith(f"{count} programs, {['Read-only file system'] * 2}"), said


def test_a_damaged_program_is_compiled_again(session: Session) -> None:
    """So it was read."""
    before = driven(session)
    for path in programs():
        path.write_bytes(path.read_bytes()[:100])
    after = driven(session)
    assert "Error reading persistent compilation cache entry" in after.outcome.output
    assert after.outcome.kind == "finished"
    assert after.events == before.events


def test_a_folder_that_is_gone_costs_no_run_and_no_fence(session: Session) -> None:
    before = driven(session)
    (found,) = folders()
    shutil.rmtree(found)
    side = Reference(untimed(), session, SEED).side
    side.wait()
    after, machine = side.driven.result()
    assert (after.outcome.kind, after.outcome.output) == ("finished", "")
    assert after.events == before.events
    assert not machine.refused


def test_a_worker_that_can_make_no_folder_uses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "COMPILED", str(tmp_path / "not there"))
    assert compiled.used("add") == ""
    compiled.hand_on(str(tmp_path / "not there"))


def test_nothing_is_left() -> None:
    with Session(Options(device="cpu"), modules_of([untimed()])) as opened:
        driven(opened)
        assert folders()
    assert not folders()


def test_what_a_killed_server_left_is_swept() -> None:
    left = Path(tempfile.mkdtemp(prefix=f"grader-compiled-{dead_process()}-"))
    other = Path(tempfile.mkdtemp(prefix=f"grader-compiled-{os.getpid()}-"))
    compiled.sweep()
    assert not left.exists()
    assert other.exists(), "its server lives"
    other.rmdir()


def dead_process() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    return child.pid


def test_what_is_old_goes_if_there_are_many_or_its_worker_was_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = compiled.Folder()
    try:
        handed_on, own = Path(folder.seen("read")), Path(folder.seen("add"), "own")
        old, new = handed_on / "old", handed_on / "new"
        killed, works = own / "killed", own / "works"
        for path, age in ((old, 2), (new, 0), (killed, 2), (works, 0)):
            path.mkdir() if path.parent == own else path.touch()
            os.utime(path, (time.time() - age * compiled.OLD_SECONDS,) * 2)
        folder.tidy()
        assert {*handed_on.iterdir(), *own.iterdir()} == {old, new, works}
        monkeypatch.setattr(compiled, "MOST_FILES", 1)
        folder.tidy()
        assert {*handed_on.iterdir(), *own.iterdir()} == {new, works}
    finally:
        folder.remove()


@pytest.mark.parametrize(
    ("how", "refused", "used"),
    [("fenced", False, True), ("fenced", True, False), ("free", False, False)],
)
def test_without_a_fence_around_files_none_is_used(
    how: str, refused: bool, used: bool, tmp_path: Path
) -> None:
    """There a submission could write what the next worker would run."""
    program = tmp_path / "drives.py"
    program.write_text(DRIVES)
    refuse = [sys.executable, str(ROOT / "tests" / "fences" / "refuse_namespaces.py")]
    ran = subprocess.run(
        refuse * refused + [sys.executable, str(program), how],
        env=fenced.environ({"PYTHONPATH": str(ROOT / "tests")}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == (f"finished {used}\n", "")
