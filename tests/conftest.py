"""What several tests share: one session of workers, and the command line in its own process.

Each test process has a temporary folder of its own, so that a test can tell what was left
there, whatever else runs on this machine.
"""

import atexit
import difflib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grader.course import catalog
from grader.records.record import decode_record
from grader.records.verdict import encode
from grader.running.grade import made
from grader.running.session import Options, Session, modules_of

pytest_plugins = ["next_doors", "scheduling"]
ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
type Ran = subprocess.CompletedProcess[str]
type Cli = Callable[..., Ran]


def _own_temporary_folder() -> None:
    """Others may pass through it: a fenced worker's scratch folder lies in it, and its user
    is not ours."""
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # where `tmp_path` lies
    folder = tempfile.mkdtemp(prefix="course-tests-", dir=os.environ["PYTEST_DEBUG_TEMPROOT"])
    Path(folder).chmod(0o711)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["TMPDIR"] = tempfile.tempdir = folder


_own_temporary_folder()
# Tests that were started in the background ignore Ctrl-C, and so would all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First the site: one worker builds it for minutes, and the others go on meanwhile. Last
    what runs alone, for which all others would wait. On a GPU, first what settles most."""
    place = {name: number for number, name in enumerate(experiments_in_order())}
    items.sort(key=lambda i: place.get(i.name, len(place)))
    items.sort(key=lambda i: _is_alone(i) - (i.path.stem == "test_site"))


def experiments_in_order() -> list[str]:
    """The tests by which a GPU settles what is only expected, in the order of their list."""
    text = (ROOT / "docs" / "claims" / "experiments.toml").read_text("utf-8")
    return [name for each in tomllib.loads(text)["experiment"] for name in each["tests"]]


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let tests that starve the machine run alone; all others may run side by side."""
    folder = Path(os.environ["PYTEST_DEBUG_TEMPROOT"])
    with (folder / f"where-does-my-array-live.{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if _is_alone(item) else fcntl.LOCK_SH)
        return (yield)


@pytest.fixture(scope="session", autouse=True)
def _runtime_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of the grader's meets what the developer's own grader keeps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        yield


PATIENCE = 180.0
"""Seconds for a run. No test of this session takes too long on purpose, and tests run side by side
on machines that do other work, too."""


@pytest.fixture(scope="session")
def session() -> Iterator[Session]:
    """Workers for all exercises on CPU devices, from one fork server for the whole run."""
    options = Options(device="cpu", timeout=PATIENCE)
    with Session(options, modules_of(catalog.entries())) as kept:
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


def stamped(name: str, folder: Path) -> Path:
    """A copy of a golden record that says it was made by this grader, with its checks of today."""
    record = decode_record((ROOT / "tests" / "golden" / "records" / name).read_bytes())
    record.made = made(catalog.find(record.exercise))
    path = folder / name
    path.write_bytes(encode(record))
    return path


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compares a text with `tests/golden/NAME`; `UPDATE_GOLDEN=1 pytest` writes it instead.

    Read what `git diff tests/golden` then shows: it is what users will read.
    """

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("UPDATE_GOLDEN") == "1":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        assert path.is_file(), f"no {name}; UPDATE_GOLDEN=1 writes it"
        kept = path.read_text("utf-8")
        if text != kept:
            lines = (each.splitlines() for each in (kept, text))
            differs = difflib.unified_diff(*lines, f"tests/golden/{name}", "now", lineterm="")
            pytest.fail("\n".join([*differs, "UPDATE_GOLDEN=1 writes it"]), pytrace=False)

    return compare
