"""The set-up: finding a Python, one line when something is missing, pins, and tracked files.

The scripts run with a PATH made for the test, and install nothing. `make test` itself and
`test_wheel.py` show that installing works.
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
from grader.app import install

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("bash", "env", "awk", "cat", "cksum", "df", "dirname", "flock")
TOOLS += ("grep", "mkdir", "rm", "rmdir", "sed", "tail")
SHIM = "echo 'pyenv: $0: command not found' >&2\nexit 127"
SCRIPTS = ROOT / "scripts"
type Ran = subprocess.CompletedProcess[str]


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """A folder whose `bin/` is the only PATH: it has the tools of the scripts, but no Python."""
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        if found := shutil.which(tool):
            (tmp_path / "bin" / tool).symlink_to(found)
    return tmp_path


def program(folder: Path, name: str, body: str) -> None:
    """Put an executable shell script into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/usr/bin/env bash\n{body}\n", "utf-8")
    path.chmod(0o755)


def real(folder: Path, name: str) -> None:
    """Put the Python of this test run into the folder."""
    program(folder, name, f'exec "{sys.executable}" "$@"')


def pretend(folder: Path, name: str, change: str) -> None:
    """Put a Python into the folder that runs `change` before the program of `-I -c`."""
    program(folder, name, f'exec "{sys.executable}" -I -c "{change}\n$3"')


def script(stage: Path, *command: str | Path, **more: str) -> Ran:
    """Run one of the scripts with the PATH of the stage."""
    environment = {"PATH": str(stage / "bin"), "HOME": str(stage / "home")}
    environment |= {"FIND_PYTHON_PLACES": ""} | more
    return subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, timeout=60
    )


def find(stage: Path, **more: str) -> Ran:
    """Run the search for a Python."""
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
    """The files of a checkout that set-up reads, in a folder with a space in its name."""
    folder = stage / "my checkout"
    shutil.copytree(SCRIPTS, folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    (folder / "grader").mkdir()
    (folder / "grader/__init__.py").write_text('__version__ = "0.0.0"\n', "utf-8")
    return folder


def set_up(stage: Path, checkout: Path) -> Ran:
    """Run set-up in that checkout."""
    return script(stage, checkout / "scripts/setup.sh")


def pip_that(checkout: Path, says: str, code: int) -> None:
    """Put in an environment that looks whole; its pip prints `says` and ends with `code`."""
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
def test_after_an_interruption_set_up_starts_anew(stage: Path, checkout: Path, cut: str) -> None:
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


@pytest.mark.parametrize("runs_on_a_gpu", [False, True])
def test_a_plugin_that_an_earlier_set_up_installed_is_removed(
    stage: Path, checkout: Path, runs_on_a_gpu: bool
) -> None:
    pip_that(checkout, "", 0)
    (checkout / ".venv/.ready-dev,site,target").touch()
    if runs_on_a_gpu:
        (checkout / ".venv/lib/python3.12/site-packages/nvidia_cudnn_cu13").mkdir(parents=True)
    program(stage / "bin", "record", 'printf "%s\\n" "$*" >>"$HOME.calls"')
    python = checkout / ".venv/bin/python"
    python.write_text(python.read_text("utf-8").replace("\n", '\nrecord "$@"\n', 1), "utf-8")
    assert set_up(stage, checkout).returncode == 0
    calls = (stage / "home.calls").read_text("utf-8")
    assert ("uninstall --yes jax-cuda13-pjrt jax-cuda13-plugin" in calls) != runs_on_a_gpu
    assert [path.name for path in (checkout / ".venv").glob(".ready-*")] == [".ready-base"]


def test_somebody_elses_environment_is_not_deleted(stage: Path, checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv/precious").touch()
    real(stage / "bin", "python3")
    ran = set_up(stage, checkout)
    assert "remove it" in only_line(ran.stderr)
    assert (checkout / ".venv/precious").exists()


@pytest.mark.parametrize("has", ["3.11.9", "3.9.2", "3.8", "2.7.18"])
def test_an_environment_of_an_old_python_is_named_and_not_filled(
    stage: Path, checkout: Path, has: str
) -> None:
    """pip once filled it until a package refused, and said nothing of Python."""
    program(checkout / ".venv/bin", "python", f'echo "Python {has}"')
    ran = set_up(stage, checkout)
    said = f"{checkout}/.venv is an environment of Python {has}, and the course needs 3.12"
    assert (ran.returncode, ran.stdout) == (1, "")
    assert said in only_line(ran.stderr)
    assert [path.name for path in (checkout / ".venv").iterdir()] == ["bin"]


def test_an_environment_of_another_python_than_the_named_one(stage: Path, checkout: Path) -> None:
    pip_that(checkout, "Successfully installed", 0)
    program(stage / "bin", "python3.13", "echo Python 3.13.2")
    named = str(stage / "bin/python3.13")
    ran = script(stage, checkout / "scripts/setup.sh", PYTHON=named)
    assert ran.returncode == 1
    assert f"of Python 3.12.1, and PYTHON={named} is Python 3.13.2" in only_line(ran.stderr)
    program(stage / "bin", "python3.12", "echo Python 3.12.1")
    ran = script(stage, checkout / "scripts/setup.sh", PYTHON=str(stage / "bin/python3.12"))
    assert ran.returncode == 0


def test_set_up_needs_no_execute_bits(stage: Path, checkout: Path) -> None:
    """An archive that was unpacked by some tools has none."""
    for path in (checkout / "scripts").glob("*.sh"):
        path.chmod(0o644)
    ran = script(stage, "bash", checkout / "scripts/setup.sh")
    assert only_line(ran.stderr).startswith("setup: no Python >= 3.12 that runs")
    recipes = (ROOT / "Makefile").read_text("utf-8")
    assert "bash scripts/setup.sh" in recipes
    assert not re.search(r"(?<!bash )scripts/\w+\.sh(?! *[),])", recipes)


MADE = ("site", "wheelhouse", "build/gpu", ".cache", ".mypy_cache")


@pytest.mark.parametrize("ours", [True, False])
def test_clean_removes_only_what_was_made(stage: Path, checkout: Path, ours: bool) -> None:
    for name in (*MADE, ".venv", "build/mine", "exercises"):
        (checkout / name).mkdir(parents=True)
        (checkout / name / "file").touch()
    if ours:
        (checkout / ".venv/.made").write_text("whole\n", "utf-8")
    (stage / "elsewhere").mkdir()
    (stage / "elsewhere" / "precious").touch()
    (checkout / "site" / "file").unlink()
    (checkout / "site").rmdir()
    (checkout / "site").symlink_to(stage / "elsewhere")
    ran = script(stage, "bash", checkout / "scripts/clean.sh")
    assert ran.returncode == 0
    assert ran.stdout == ("" if ours else "kept .venv, which set-up did not make\n")
    assert (checkout / ".venv").exists() != ours
    assert not any((checkout / name).exists() for name in MADE if name != "site")
    assert (checkout / "build/mine/file").exists()
    assert (checkout / "exercises/file").exists()
    assert (stage / "elsewhere" / "precious").exists()


def test_scripts_end_their_lines_with_line_feeds_everywhere() -> None:
    """Git may write a checkout on Windows otherwise, and bash in WSL2 would read every `\\r`."""
    asked = subprocess.run(
        ["git", "-C", str(ROOT), "check-attr", "eol", "--stdin"],
        input="\n".join(str(path.relative_to(ROOT)) for path in tracked()),
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(line.rsplit(": eol: ", 1) for line in asked.stdout.splitlines())
    scripts = [name for name in found if name.endswith((".sh", ".py", "Makefile", ".ci/run"))]
    assert "scripts/setup.sh" in scripts
    assert [name for name in scripts if found[name] != "lf"] == []
    assert [
        str(p) for p in tracked() if p.suffix in (".sh", ".py") and b"\r" in p.read_bytes()
    ] == []


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
    """Every requirement of the base and of all extras, without the project itself."""
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
    needed = wheelhouse.closure(wheelhouse.PROJECT, frozenset({"dev", "site"}), lambda name: False)
    assert "jaxlib" in needed
    assert sorted(needed - pins().keys()) == []


def test_what_compiles_for_targets_is_pinned() -> None:
    assert {name: pins()[name] for name in install.JAX} == dict.fromkeys(
        install.JAX, pins()["jaxlib"]
    )
    assert pins().keys() >= set(install.NVIDIA)


def test_the_wheelhouse_leaves_the_nodes_own_jax_alone() -> None:
    assert gpu.is_nodes_own("nvidia_cublas")
    assert gpu.is_nodes_own("jaxlib")
    assert not gpu.is_nodes_own("jaxtyping")


def tracked() -> list[Path]:
    """The files that git tracks, and new ones that it does not ignore."""
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


def test_the_changelog_starts_with_the_version_of_the_package() -> None:
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert versions[0] == grader.__version__


def test_scripts_can_be_executed() -> None:
    for name in ("scripts/setup.sh", "scripts/find_python.sh", "scripts/clean.sh", ".ci/run"):
        assert os.access(ROOT / name, os.X_OK), name
