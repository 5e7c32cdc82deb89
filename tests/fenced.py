"""What the tests of bad input share: submissions, a session, and a search for what is left.

A submission is the solution of ex07 with another `train`. Processes are found by a token
in their environment, which every process that the grader starts inherits.
"""

import dataclasses
import gc
import os
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from grader.course import catalog
from grader.course.catalog import Entry
from grader.judging.judge import judge
from grader.records.record import Record
from grader.records.verdict import Report
from grader.running import launch, session
from grader.running.grade import grade
from grader.running.session import Options, Session
from grader.running.sides import Reference
from grader.source import inspection

type Ran = subprocess.CompletedProcess[str]
ROOT = Path(__file__).resolve().parent.parent
ATTACKS = Path(__file__).parent / "attacks"
TOKEN = "LC_GRADER_TEST"
SECONDS = 6.0
SEED = 20
FILE = "ex07_quiet_loop.py"


def untimed() -> Entry:
    """ex07 without its timing check, which takes long and is not tested here."""
    entry = Entry("ex07_quiet_loop")
    checks = [check for check in entry.exercise.checks if check.ground != "timing"]
    entry.__dict__["exercise"] = dataclasses.replace(
        entry.exercise, checks=checks, loop_timing=None
    )
    return entry


def solution() -> str:
    """The text of the solution; outside `train` it is the starter."""
    return (catalog.course_root() / "solutions" / FILE).read_text("utf-8")


def submission(train: str) -> str:
    """The solution with its `train` replaced by this text, which may start with imports."""
    before, rest = solution().split("def train(")
    after = rest[rest.index("@jax.jit") :]
    return before + train + "\n\n" + after


def header(text: str) -> dict[str, list[str]]:
    """`# key: value` lines at the top of an attack."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if not (match := re.match(r"# (\w+): (.*)$", line)):
            break
        found.setdefault(match[1], []).append(match[2])
    return found


def lines_of(text: str, mark: str) -> set[int]:
    """The numbers of the lines that end with `mark`."""
    return {n for n, line in enumerate(text.splitlines(), 1) if line.endswith(mark)}


def processes(token: str) -> set[int]:
    """The running processes with the token in their environment."""
    return {int(folder.name) for folder in Path("/proc").glob("[0-9]*") if _has(folder, token)}


def _has(process: Path, token: str) -> bool:
    try:
        return token.encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def open_files() -> int:
    """How many descriptors this process holds, without those of objects that nothing refers to."""
    gc.collect()  # else they close some time later, and are fewer after a test than before it
    return len(list(Path("/proc/self/fd").iterdir()))


def files_left() -> set[str]:
    """Temporary files that a worker may have made, without those of what runs beside: browsers,
    devices, and fork servers with their compiled programs."""
    beside = ("chromium", "grader-device", "grader-compiled")
    found = [*Path(tempfile.gettempdir()).glob("grader-*"), *Path("/dev/shm").glob("*")]
    return {str(path) for path in found if not any(name in path.name for name in beside)}


def environ(more: dict[str, str] | None = None) -> dict[str, str]:
    """The environment of a command line; a PYTHONPATH in `more` comes before the checkout."""
    more = more or {}
    path = os.pathsep.join(filter(None, [more.get("PYTHONPATH", ""), str(ROOT)]))
    return {**os.environ, **more, "PYTHONPATH": path}


def command(*arguments: str) -> list[str]:
    """The grader's command line."""
    return [sys.executable, "-P", "-m", "grader", *arguments]


def run(folder: Path, words: list[str], environment: dict[str, str] | None = None) -> Ran:
    """Run a command in `folder` to its end."""
    return subprocess.run(
        words,
        cwd=folder,
        env=environ() if environment is None else environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@dataclasses.dataclass
class Place:
    """A session in which to grade files of ex07, and how to tell what is left behind."""

    session: Session
    token: str
    folder: Path
    kept: frozenset[int] = frozenset()
    reference: Reference | None = None
    """The run of the reference: it is the same in every test, so it runs once."""

    def grade(self, text: str, *, policy: bool = True) -> tuple[Record, Report]:
        """Grade a file with this text; with `policy` off, the source policy refuses nothing."""
        path = self.folder / FILE
        path.write_text(text, "utf-8")
        entry = untimed()
        with pytest.MonkeyPatch.context() as patch:
            if not policy:
                patch.setattr(inspection, "violations", lambda *_: iter(()))
            self.reference = self.reference or Reference(entry, self.session, SEED)
            record = grade(entry, path, self.session, label=FILE, ahead=self.reference)
        assert not record.broken, record.broken
        return record, judge(record, entry.exercise)

    def left(self) -> set[int]:
        """Processes that still run, without those that were there from the start."""
        return processes(self.token) - self.kept

    def ended(self) -> bool:
        """Whether all that was started ends. The last process does so once it has reported."""
        deadline = time.monotonic() + SECONDS
        while self.left():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True


@contextmanager
def place(
    folder: Path, *, fenced: bool = True, spawn: bool = False, seconds: float = SECONDS
) -> Iterator[Place]:
    """Open a session with little memory, and little time unless `seconds` says otherwise."""
    token = f"token-{uuid.uuid4().hex}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TOKEN, token)
        patch.setattr(session, "MEMORY", 1 << 30)
        if spawn:
            patch.setattr(session, "launcher", lambda *_, **__: launch.Spawn())
        options = Options(device="cpu", timeout=seconds, fenced=fenced)
        with Session(options, session.modules_of([untimed()])) as opened:
            while not (kept := frozenset(processes(token))) and not spawn:
                time.sleep(0.01)  # a process shows its environment only once it has begun
            yield Place(opened, token, folder, kept)
    assert not processes(token)
