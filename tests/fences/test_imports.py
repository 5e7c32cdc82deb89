"""No import from the working folder: it may be a student's, and hold a module of any name.

A student's module runs without a fence, in the instructor's own process, and may print whatever
verdict it likes.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from grader import __main__ as entrance
from grader.fences import imports

PACKAGES = [
    "click",
    "flax",
    "grader",
    "haiku",
    "jax",
    "jaxlib",
    "jax_plugins",
    "msgspec",
    "numpy",
    "optax",
    "rich",
    "watchfiles",
]
BEFORE_US = {
    "-m": {"importlib", "types", "warnings", "grader"},
    "PYTHONPATH": {"encodings", "sitecustomize"},
}
"""What Python itself imports before the first line of the grader's, either way it is started."""
SHADOW = """\
import os
os.write(2, b"SHADOWED by " + __name__.encode() + b"\\n")
os._exit(0)
"""
STEM = "ex02_mixed_devices"


def shadows(folder: Path, without: set[str]) -> None:
    """Fill the folder with modules of every name that could be imported."""
    for name in {*sys.stdlib_module_names, *PACKAGES, "sitecustomize", "usercustomize"} - without:
        (folder / f"{name}.py").write_text(SHADOW, "utf-8")


def run(folder: Path, *command: str, path: str) -> subprocess.CompletedProcess[str]:
    """Run a Python in the folder."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("arguments", [["list"], ["check", "ex02"], ["doctor"]], ids=str)
@pytest.mark.parametrize("way", ["-m", "PYTHONPATH"])
def test_no_module_of_the_working_folder_is_imported(
    tmp_path: Path, way: str, arguments: list[str]
) -> None:
    shadows(tmp_path, BEFORE_US[way])
    (tmp_path / "exercises").mkdir()
    solved = (ROOT / "solutions" / f"{STEM}.py").read_bytes()
    (tmp_path / "exercises" / f"{STEM}.py").write_bytes(solved)
    if way == "-m":
        ran = run(tmp_path, "-m", "grader", *arguments, path=str(ROOT))
    else:
        script = tmp_path.parent / "grader-command"
        script.write_text("from grader.__main__ import run\nrun()\n", "utf-8")
        ran = run(tmp_path, str(script), *arguments, path=f"{ROOT}:.:{tmp_path}:")
    assert "SHADOWED" not in ran.stderr, ran.stderr
    assert ran.returncode == 0, ran.stdout + ran.stderr
    if arguments[0] == "check":
        assert "all 9 checks pass" in ran.stdout


def test_a_shadow_would_be_seen(tmp_path: Path) -> None:
    shadows(tmp_path, BEFORE_US["-m"])
    ran = run(tmp_path, "-c", "import rich", path="")
    assert ran.stderr == "SHADOWED by rich\n"


def test_a_module_of_the_grader_runs_from_its_own_file(tmp_path: Path) -> None:
    """Whatever package of that name lies where it is started, or on the import path."""
    shadows(tmp_path, set())
    command = imports.command("grader.fences.imports", "argument")
    assert command[0] == sys.executable
    ran = run(tmp_path, *command[1:], path="")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_other_folders_stay_on_the_import_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some machines keep their JAX in a folder that PYTHONPATH names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    inside, other = tmp_path / "exercises", tmp_path.parent
    inside.mkdir()
    given = ["", ".", "relative", str(tmp_path), str(tmp_path / "link"), str(other), str(inside)]
    monkeypatch.setattr(sys, "path", [*given, "/nowhere"])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(given))
    entrance.forget_working_folder()
    assert sys.path == [str(other), str(inside), "/nowhere"]
    assert os.environ["PYTHONPATH"] == os.pathsep.join([str(other), str(inside)])
