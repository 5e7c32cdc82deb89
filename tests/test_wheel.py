"""The wheel, built and used as a learner without a checkout would: from an empty folder.

Builds without network, with the back end of this environment. The wheel is installed into an
environment of its own, which sees this one's packages but not this checkout: a path in a `.pth`
file does not bring the `.pth` files of that folder, so the editable install stays out of sight.
"""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
IDS = sorted(path.name[:4] for path in (ROOT / "grader" / "checks").glob("ex*.py"))


def run(*command: str | Path, cwd: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command with nothing of this checkout in its environment."""
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=kept | {"HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=200,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel."""
    out = tmp_path_factory.mktemp("dist")
    built = run(
        *(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT),
        cwd=out,
        home=out,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def learner(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel in it; returns its folder."""
    folder = tmp_path_factory.mktemp("learner") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    installed = run(
        *(sys.executable, "-m", "pip", "--python", folder / "bin" / "python"),
        *("install", "--quiet", "--no-deps", "--no-index", wheel),
        cwd=folder,
        home=folder,
    )
    assert installed.returncode == 0, installed.stderr
    return folder


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """The empty folder that the learner works in."""
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def grader(learner: Path, empty: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs the installed `grader` in the empty folder."""
    return run(learner / "bin" / "grader", *arguments, cwd=empty, home=empty.parent)


def packaged(learner: Path) -> Path:
    """The folder of exercises and solutions that the wheel brought."""
    (data,) = learner.glob("lib/python*/site-packages/grader/_data")
    return data


def test_the_wheel_holds_every_exercise_twice(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "ex07" in IDS
    for kind in ("exercises", "solutions"):
        files = {path.name for path in (ROOT / kind).glob("ex*.py")}
        assert sorted(name[:4] for name in files) == IDS
        assert {f"grader/_data/{kind}/{name}" for name in files} <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]


def test_the_installed_grader_is_not_the_checkout(learner: Path, empty: Path) -> None:
    said = run(
        *(learner / "bin" / "python", "-c", "import grader; print(grader.__file__)"),
        cwd=empty,
        home=empty,
    )
    assert Path(said.stdout.strip()).is_relative_to(learner)


def test_list_names_every_exercise(learner: Path, empty: Path) -> None:
    listed = grader(learner, empty, "list")
    assert listed.returncode == 0, listed.stderr
    assert [name for name in IDS if name not in listed.stdout] == []


def test_reset_writes_the_starter_into_an_empty_folder(learner: Path, empty: Path) -> None:
    done = grader(learner, empty, "reset", "ex07")
    assert done.returncode == 0, done.stderr
    (written,) = empty.rglob("ex07_quiet_loop.py")
    assert written.read_text("utf-8") == (
        packaged(learner) / "exercises" / "ex07_quiet_loop.py"
    ).read_text("utf-8")


def test_the_packaged_solution_passes(learner: Path, empty: Path) -> None:
    """One without a timing: what a busy machine leaves open is not the wheel's fault."""
    solution = packaged(learner) / "solutions" / "ex14_donate.py"
    checked = grader(learner, empty, "check", "ex14", "--submission", solution, "--format=json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    (report,) = json.loads(checked.stdout)["reports"]
    assert {v["ground"] for v in report["verdicts"]} >= {"source", "observed", "program"}
    assert list(empty.iterdir()) == []
