"""Workers that share a folder of compiled programs: only where a session asks for it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import fenced
import pytest
from fenced import SEED, untimed

from grader.judging.record import Observed
from grader.running.session import Options, Session, modules_of
from grader.running.sides import Reference

WORKER_USES = """import jax


def train(step, params, batches):
    raise ValueError(f"it uses {jax.config.jax_compilation_cache_dir}")
"""


@pytest.fixture
def compiled() -> Iterator[Path]:
    """A folder that every user may reach, and write to."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


@pytest.fixture
def session(compiled: Path) -> Iterator[Session]:
    """A session whose workers share the folder."""
    options = Options(device="cpu", compiled=compiled)
    with Session(options, modules_of([untimed()])) as opened:
        yield opened


def driven(session: Session) -> Observed:
    """The reference of ex07, driven and measured."""
    side = Reference(untimed(), session, SEED).side
    side.wait()
    return side.driven.result()[0]


def test_a_program_is_compiled_once(session: Session, compiled: Path) -> None:
    """The fence leaves the folder writable, and the second worker adds nothing to it."""
    assert driven(session).outcome.kind == "finished"
    first = {path: path.stat().st_mtime_ns for path in compiled.iterdir()}
    assert first
    assert driven(session).outcome.kind == "finished"
    assert {path: path.stat().st_mtime_ns for path in compiled.iterdir()} == first


def test_a_damaged_program_is_compiled_again(session: Session, compiled: Path) -> None:
    """So it was read; and a worker that was killed while it wrote does no harm to others."""
    before = driven(session)
    for path in compiled.iterdir():
        path.write_bytes(path.read_bytes()[:100])
    after = driven(session)
    assert "Error reading persistent compilation cache entry" in after.outcome.output
    assert after.outcome.kind == "finished"
    assert after.events == before.events


def test_no_other_session_uses_one(tmp_path: Path) -> None:
    text = fenced.submission(WORKER_USES)
    with fenced.place(tmp_path) as place:
        record, _ = place.grade(text, policy=False)
    assert record.submission is not None
    assert "it uses None" in record.submission.outcome.message
