"""What several tests share: one session of workers, and the command line in its own process."""

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grader import catalog
from grader.session import Options, Session, modules_of

ROOT = Path(__file__).resolve().parent.parent
ALONE = {"test_bad_machine", "test_isolation", "test_levels"}
"""They compare the files and processes of the machine before and after."""
type Ran = subprocess.CompletedProcess[str]
type Cli = Callable[..., Ran]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First the site: one worker builds it for minutes, and the others go on meanwhile. Last
    what runs alone, for which all others would wait."""
    items.sort(key=lambda i: (i.path.stem in ALONE) - (i.path.stem == "test_site"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let tests that look at the whole machine run alone; all others may run side by side."""
    path = Path(tempfile.gettempdir()) / f"where-does-my-array-live.{os.getuid()}.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if item.path.stem in ALONE else fcntl.LOCK_SH)
        return (yield)


@pytest.fixture(scope="session")
def session() -> Iterator[Session]:
    """Workers for all exercises on CPU devices, from one fork server for the whole run."""
    with Session(Options(device="cpu"), modules_of(catalog.entries())) as kept:
        yield kept


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A learner's folder with the starter of ex07 in it."""
    name = "ex07_quiet_loop.py"
    (tmp_path / "exercises").mkdir()
    (tmp_path / "exercises" / name).write_bytes((ROOT / "exercises" / name).read_bytes())
    return tmp_path


@pytest.fixture
def grader(folder: Path) -> Cli:
    """Runs `grader ARGUMENTS` in the learner's folder; keywords are environment variables."""

    def run(*arguments: str | Path, stdin: str = "", **more: str) -> Ran:
        return python("-m", "grader", *arguments, folder=folder, stdin=stdin, **more)

    return run


def python(*arguments: str | Path, folder: Path = ROOT, stdin: str = "", **more: str) -> Ran:
    """Runs this Python with the checkout importable; keywords are environment variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment = {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "200"} | more
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compares a text with `tests/golden/NAME`; `UPDATE_GOLDEN=1 pytest` writes it instead.

    Read what `git diff tests/golden` then shows: it is what users will read.
    """

    def compare(name: str, text: str) -> None:
        path = ROOT / "tests" / "golden" / name
        if os.environ.get("UPDATE_GOLDEN") == "1":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        assert path.is_file(), f"no {path.name}; UPDATE_GOLDEN=1 writes it"
        assert text == path.read_text("utf-8")

    return compare
