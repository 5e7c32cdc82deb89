"""The wheel, used as a learner without a checkout uses it: from an empty folder.

It is built without network, by the back end of this environment, and installed into a fresh
environment. That one sees the packages of this environment, but not this checkout: a path in a
`.pth` file does not bring in the `.pth` files of that folder, so not the editable install either.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from grader.program import targets

ROOT = Path(__file__).resolve().parents[2]
HERE = str(targets.folder().parent)
IDS = sorted(path.name[:4] for path in (ROOT / "grader" / "checks").glob("ex*"))


def run(
    *command: str | Path, cwd: Path, home: Path, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a command with nothing of this checkout in its variables, except in `more`."""
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=kept | {"HOME": str(home)} | more,
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


def grader(
    learner: Path, empty: Path, *arguments: str | Path, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the installed `grader` in the empty folder."""
    return run(learner / "bin" / "grader", *arguments, cwd=empty, home=empty.parent, **more)


def packaged(learner: Path) -> Path:
    """The folder of solutions that the wheel brought."""
    (data,) = learner.glob("lib/python*/site-packages/grader/_data")
    return data


def test_the_wheel_holds_every_starter_and_solution(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "ex07" in IDS
    files = [path.stem for path in (ROOT / "exercises").glob("ex*.py")]
    assert sorted(name[:4] for name in files) == IDS
    for stem in files:
        assert f"grader/_data/solutions/{stem}.py" in names
        for part in ("starter.txt", "starter.sha256"):
            assert f"grader/checks/{stem}/{part}" in names
    assert not [name for name in names if name.startswith(("tests/", "docs/", "exercises/"))]
    assert "grader/_data/constraints.txt" in names


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A student's checkout, with an exercise solved."""
    folder = tmp_path_factory.mktemp("edited") / "checkout"
    listed = run("git", "-C", ROOT, "ls-files", "-z", cwd=ROOT, home=ROOT).stdout.split("\0")
    for name in filter(None, listed):
        if name.startswith(("tests/", "docs/")) or not (ROOT / name).is_file():
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    shutil.copy(folder / "solutions" / "ex07_quiet_loop.py", folder / "exercises")
    return folder


def test_a_wheel_of_an_edited_checkout_is_refused(edited: Path, tmp_path: Path) -> None:
    """Its starters would be the student's answers."""
    command = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path)
    built = run(*command, edited, cwd=tmp_path, home=tmp_path)
    assert built.returncode != 0
    said = built.stdout + built.stderr
    assert "no wheel is built from an edited checkout: exercises/ex07_quiet_loop.py is not" in said
    assert "Traceback" not in said.partition("no wheel is built")[2]
    assert list(tmp_path.glob("*.whl")) == []


def test_an_editable_installation_copies_no_solution(edited: Path, tmp_path: Path) -> None:
    """A submission could read it there; and a student's own checkout is edited, of course."""
    code = f"from hatchling.build import build_editable; print(build_editable({str(tmp_path)!r}))"
    built = run(sys.executable, "-c", code, cwd=edited, home=tmp_path)
    assert built.returncode == 0, built.stderr
    (found,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(found).namelist()
    assert [name for name in names if name.endswith(".pth")]
    assert not [name for name in names if "solutions" in name or "ex07" in name]


def test_the_installed_grader_is_not_the_checkout(learner: Path, empty: Path) -> None:
    said = run(
        *(learner / "bin" / "python", "-c", "import grader; print(grader.__file__)"),
        cwd=empty,
        home=empty,
    )
    assert Path(said.stdout.strip()).is_relative_to(learner)


def test_what_compiles_for_targets_is_looked_for_beside_the_learners_packages(
    learner: Path, empty: Path
) -> None:
    said = grader(learner, empty, "doctor").stdout
    assert "targets   compiling for a target needs JAX's CUDA plugin, and no GPU: `grader " in said
    installed = grader(learner, empty, "install-target", GRADER_TARGET_FOLDER=HERE)
    assert (installed.returncode, installed.stdout.count("\n")) == (0, 1), installed.stderr
    said = grader(learner, empty, "doctor", GRADER_TARGET_FOLDER=HERE).stdout
    assert "targets   h200x8, " in said


def test_list_names_every_exercise(learner: Path, empty: Path) -> None:
    listed = grader(learner, empty, "list")
    assert listed.returncode == 0, listed.stderr
    assert [name for name in IDS if name not in listed.stdout] == []


def test_reset_writes_the_starter_into_an_empty_folder(learner: Path, empty: Path) -> None:
    done = grader(learner, empty, "reset", "ex07")
    assert done.returncode == 0, done.stderr
    (written,) = empty.rglob("ex07_quiet_loop.py")
    assert written.read_text("utf-8") == (ROOT / "exercises" / written.name).read_text("utf-8")


def test_the_packaged_solution_passes(learner: Path, empty: Path) -> None:
    """This exercise has no timing check, which a busy machine may leave undecided."""
    solution = packaged(learner) / "solutions" / "ex14_donate.py"
    checked = grader(learner, empty, "check", "ex14", "--submission", solution, "--format=json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    (report,) = json.loads(checked.stdout)["reports"]
    assert {v["ground"] for v in report["verdicts"]} >= {"source", "observed", "program"}
    assert list(empty.iterdir()) == []
