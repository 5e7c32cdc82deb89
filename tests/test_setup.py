"""The set-up: finding a Python, one line when something is missing, pins, tracked text.

Runs the scripts on staged PATHs; installs nothing (`make test` itself does, and test_wheel.py).
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import gpu
import grader
import wheelhouse

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("bash", "env", "awk", "cat", "cksum", "df", "dirname", "flock")
TOOLS += ("grep", "mkdir", "rm", "rmdir", "sed", "tail")
SHIM = "echo 'pyenv: $0: command not found' >&2\nexit 127"
SCRIPTS = ROOT / "scripts"
type Ran = subprocess.CompletedProcess[str]


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """A folder with `bin/` as the only PATH: the tools that the scripts call, no Python."""
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        if found := shutil.which(tool):
            (tmp_path / "bin" / tool).symlink_to(found)
    return tmp_path


def program(folder: Path, name: str, body: str) -> None:
    """Puts an executable shell script there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/usr/bin/env bash\n{body}\n", "utf-8")
    path.chmod(0o755)


def real(folder: Path, name: str) -> None:
    """Puts the Python of this test run there."""
    program(folder, name, f'exec "{sys.executable}" "$@"')


def pretend(folder: Path, name: str, change: str) -> None:
    """Puts a Python there that runs `change` before the program that `-I -c` gives it."""
    program(folder, name, f'exec "{sys.executable}" -I -c "{change}\n$3"')


def script(stage: Path, *command: str | Path, **more: str) -> Ran:
    """Runs one of the scripts on the stage."""
    environment = {"PATH": str(stage / "bin"), "HOME": str(stage / "home")}
    environment |= {"FIND_PYTHON_PLACES": ""} | more
    return subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, timeout=60
    )


def find(stage: Path, **more: str) -> Ran:
    """Runs the search for a Python."""
    return script(stage, SCRIPTS / "find_python.sh", **more)


def only_line(text: str) -> str:
    """The one line that a failure may print."""
    (line,) = text.strip().splitlines()
    return line


def test_a_shim_that_fails_is_passed_over(stage: Path) -> None:
    program(stage / "bin", "python3.12", SHIM)
    real(stage / "bin", "python3")
    found = find(stage)
    assert (found.returncode, found.stdout.strip()) == (0, sys.executable)


def test_a_python_outside_path_is_found(stage: Path) -> None:
    program(stage / "bin", "python3.12", SHIM)
    real(stage / "home/.pyenv/versions/3.12.9/bin", "python3.12")
    assert find(stage).stdout.strip() == sys.executable


def test_the_named_python_comes_first(stage: Path) -> None:
    program(stage / "bin", "python3.14", "echo /not/this/one")
    real(stage / "named one", "python")
    found = find(stage, PYTHON=str(stage / "named one" / "python"))
    assert found.stdout.strip() == sys.executable


def test_old_pythons_and_shims_are_named_in_one_line(stage: Path) -> None:
    program(stage / "bin", "python3.12", SHIM)
    pretend(stage / "bin", "python3", "import sys; sys.version_info = (3, 11, 7)")
    found = find(stage)
    assert found.returncode == 1
    assert found.stdout == ""
    assert only_line(found.stderr) == (
        "setup: no Python >= 3.12 that runs (python3.12 does not run, python3 is 3.11); "
        "install one (Debian: python3.12 and python3.12-venv; macOS: brew install python@3.13), "
        "or name it: make start PYTHON=/path/to/python3"
    )


def test_a_python_without_venv_is_named(stage: Path) -> None:
    pretend(stage / "bin", "python3.13", "import sys; sys.modules['venv'] = None")
    assert "(python3.13 has no module venv)" in only_line(find(stage).stderr)


def test_no_python_at_all(stage: Path) -> None:
    found = find(stage)
    assert found.returncode == 1
    assert "(none on this machine)" in only_line(found.stderr)


@pytest.fixture
def checkout(stage: Path) -> Path:
    """What set-up reads of a checkout, in a folder with a space."""
    folder = stage / "my checkout"
    shutil.copytree(SCRIPTS, folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    (folder / "grader").mkdir()
    (folder / "grader/__init__.py").write_text('__version__ = "0.0.0"\n', "utf-8")
    return folder


def set_up(stage: Path, checkout: Path) -> Ran:
    """Runs set-up in that checkout."""
    return script(stage, checkout / "scripts/setup.sh")


def pip_that(checkout: Path, says: str, code: int) -> None:
    """Puts an environment there that looks whole, and whose pip does this."""
    folder = checkout / ".venv/bin"
    quick = '[ "$1" = -m ] || [ "$2" = -m ] || { echo "Python 3.12.1"; exit 0; }'
    program(folder, "python", f"{quick}\ncat <<'END'\n{says}\nEND\nexit {code}")
    (folder / "activate").write_text(f"VIRTUAL_ENV={checkout}/.venv\n", "utf-8")
    (checkout / ".venv/.made").write_text("whole\n", "utf-8")


def test_set_up_without_python_says_so_in_one_line(stage: Path, checkout: Path) -> None:
    ran = set_up(stage, checkout)
    assert ran.returncode == 1
    assert only_line(ran.stderr).startswith("setup: no Python >= 3.12 that runs")


def test_set_up_writes_its_stamp_and_then_does_nothing(stage: Path, checkout: Path) -> None:
    pip_that(checkout, "Successfully installed", 0)
    assert set_up(stage, checkout).returncode == 0
    again = set_up(stage, checkout)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_set_up_runs_again_when_its_inputs_change(stage: Path, checkout: Path, name: str) -> None:
    pip_that(checkout, "Successfully installed", 0)
    set_up(stage, checkout)
    with (checkout / name).open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert "installing" in set_up(stage, checkout).stdout


@pytest.mark.parametrize(
    ("says", "line"),
    [
        (
            "WARNING: Retrying after connection broken by NewConnectionError\n"
            "ERROR: No matching distribution found for rich==1.0",
            "no network: pip cannot reach its package index",
        ),
        (
            "ERROR: No matching distribution found for rich==1.0",
            "pip finds no rich==1.0: no network or package index, or no wheel for Python 3.12.1",
        ),
        ("ERROR: Could not install: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: Operation cancelled by user", "interrupted; run it again to finish"),
        ("ERROR: something new", "pip failed: ERROR: something new"),
    ],
)
def test_what_pip_says_becomes_one_line(stage: Path, checkout: Path, says: str, line: str) -> None:
    pip_that(checkout, says, 1)
    ran = set_up(stage, checkout)
    assert ran.returncode == 1
    assert only_line(ran.stderr) == f"setup: {line} (all of it: .venv/.setup.log)"


def test_no_stamp_after_a_failure(stage: Path, checkout: Path) -> None:
    pip_that(checkout, "ERROR: something new", 1)
    set_up(stage, checkout)
    assert not list((checkout / ".venv").glob(".ready-*"))


@pytest.mark.parametrize("cut", ["while packages went in", "while the environment was made"])
def test_a_cut_off_set_up_starts_anew(stage: Path, checkout: Path, cut: str) -> None:
    pip_that(checkout, "", 0)
    if cut == "while packages went in":
        (checkout / ".venv/.setup.log").write_text("Installing collected packages: x\n", "utf-8")
    else:
        (checkout / ".venv/.made").write_text("part\n", "utf-8")
    (checkout / ".venv/half").touch()
    program(stage / "bin", "python3", '[ "$1" = -I ] && echo "$0" || exit 7')
    ran = set_up(stage, checkout)
    assert not (checkout / ".venv/half").exists()
    assert "making .venv" in ran.stdout


def test_somebody_elses_environment_is_not_deleted(stage: Path, checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv/precious").touch()
    real(stage / "bin", "python3")
    ran = set_up(stage, checkout)
    assert "remove it" in only_line(ran.stderr)
    assert (checkout / ".venv/precious").exists()


def test_a_small_disk_is_named(stage: Path, checkout: Path) -> None:
    real(stage / "bin", "python3")
    (stage / "bin/df").unlink()
    program(stage / "bin", "df", "echo head; echo none 9 9 102400 1% /")
    line = only_line(set_up(stage, checkout).stderr)
    assert line == "setup: only 100 MiB free on this disk; the packages need 1536 MiB"


def test_make_gpu_without_jax_says_so_in_one_line(stage: Path) -> None:
    program(stage / "bin", "python3", f'exec "{sys.executable}" -S "$@"')
    ran = script(stage, stage / "bin/python3", SCRIPTS / "gpu.py", "--out", stage / "out")
    assert ran.returncode == 2
    assert only_line(ran.stderr).startswith("gpu: nothing run: ")


def pins() -> dict[str, str]:
    """Name to version, from the constraints file."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    rows = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert len(rows) > 100
    return {canonicalize_name(name): version for name, version in rows}


def direct_requirements() -> list[Requirement]:
    """Every requirement of the project, in base and all extras, but for itself and CUDA's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    texts = project["dependencies"] + [text for rows in extras.values() for text in rows]
    return [need for need in map(Requirement, texts) if need.name != wheelhouse.PROJECT]


def test_every_direct_requirement_is_pinned_within_its_range() -> None:
    pinned = pins()
    for need in direct_requirements():
        version = pinned.get(canonicalize_name(need.name))
        assert version, f"{need.name} has no pin"
        assert need.specifier.contains(version), f"{need} against {version}"


def test_every_indirect_requirement_is_pinned() -> None:
    needed = wheelhouse.closure(
        wheelhouse.PROJECT, frozenset({"dev", "site", "target"}), lambda name: False
    )
    assert "jaxlib" in needed
    assert sorted(needed - pins().keys()) == []


def test_the_wheelhouse_leaves_the_nodes_own_jax_alone() -> None:
    assert gpu.is_nodes_own("nvidia_cublas")
    assert gpu.is_nodes_own("jaxlib")
    assert not gpu.is_nodes_own("jaxtyping")


def tracked() -> list[Path]:
    """Files that git tracks or would, with text in them."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_tracked_file_names_a_registry_host() -> None:
    hosts = re.compile(rb"://[^ /]*(?:py[p]i|n[p]mjs|pythonhos[t]ed)|index-ur[l]")
    files = tracked()
    assert ROOT / "pyproject.toml" in files
    assert [str(path) for path in files if hosts.search(path.read_bytes())] == []
    assert hosts.search(b"https://py" + b"pi.org/simple")


def test_changelog_is_headed_by_the_package_version() -> None:
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert versions[0] == grader.__version__


def test_scripts_can_be_executed() -> None:
    for name in ("scripts/setup.sh", "scripts/find_python.sh", ".ci/run"):
        assert os.access(ROOT / name, os.X_OK), name
