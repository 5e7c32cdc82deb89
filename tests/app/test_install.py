"""`grader install-target`: pip installs empty wheels of the right names, without a network."""

import re
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from conftest import Cli

from grader.app import install
from grader.program import targets

JAXLIB = version("jaxlib")
NOWHERE = "http://127.0.0.1:9/simple"
type Environment = dict[str, str]


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder with an empty wheel of each package that is to be installed."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for requirement in install.requirements():
        name, number = requirement.replace("-", "_").split("==")
        info = f"{name}-{number}.dist-info"
        with zipfile.ZipFile(folder / f"{name}-{number}-py3-none-any.whl", "w") as wheel:
            about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n"
            wheel.writestr(f"{info}/METADATA", about)
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
    return folder


@pytest.fixture
def offline(tmp_path: Path, wheels: Path) -> Environment:
    """Variables with which pip finds only those wheels, and installs into a temporary folder."""
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_CONFIG_FILE": "/dev/null"}
    return {**pip, "PIP_USER": "1", targets.FOLDER: str(tmp_path / "a place")}


def found(place: Path) -> list[str]:
    """The names of all folders in `place`, and of the packages in `target-packages`."""
    packages = (place / "target-packages").glob("*.dist-info")
    return sorted(path.name for path in (*place.iterdir(), *packages))


def expected() -> Iterator[str]:
    """What `found` is after an installation."""
    for requirement in install.requirements():
        yield requirement.replace("-", "_").replace("==", "-") + ".dist-info"
    yield "target-packages"


def test_the_plugin_has_jaxlibs_version_and_nvidias_compiler_is_pinned() -> None:
    plugin, compiler = install.requirements()[:2], install.requirements()[2:]
    assert plugin == [f"jax-cuda13-pjrt=={JAXLIB}", f"jax-cuda13-plugin=={JAXLIB}"]
    assert [re.sub(r"[\d.]+$", "", pin) for pin in compiler] == [
        "nvidia-cuda-nvcc==",
        "nvidia-nvvm==",
    ]


def test_it_installs_once(grader: Cli, offline: Environment, tmp_path: Path) -> None:
    place = tmp_path / "a place"
    first = grader("install-target", **offline)
    assert (first.returncode, first.stderr) == (0, "")
    doing, done = first.stdout.splitlines()
    assert doing.endswith(f"0.7 GB, into {place}/target-packages")
    assert found(place) == sorted(expected())
    again = grader("install-target", **offline | {"PIP_FIND_LINKS": ""})
    assert (again.returncode, again.stdout, again.stderr) == (0, f"{done}\n", "")


@pytest.mark.parametrize("left", ["half", "another version"])
def test_a_partial_or_older_installation_is_replaced(
    left: str, grader: Cli, offline: Environment, tmp_path: Path
) -> None:
    place = tmp_path / "a place"
    name = "target-packages.part" if left == "half" else "target-packages"
    old = place / name / "jax_cuda13_plugin-0.9.dist-info"
    old.mkdir(parents=True)
    (old / "METADATA").write_text("Name: jax-cuda13-plugin\nVersion: 0.9\n", "utf-8")
    ran = grader("install-target", **offline)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert found(place) == sorted(expected())


def test_a_failure_is_one_line_and_leaves_everything_as_it_was(
    grader: Cli, offline: Environment, tmp_path: Path
) -> None:
    old = tmp_path / "a place" / "target-packages" / "kept"
    old.mkdir(parents=True)
    lost = {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": NOWHERE, "PIP_RETRIES": "1"}
    ran = grader("install-target", **offline | lost | {"PIP_FIND_LINKS": ""})
    assert ran.returncode == 3
    assert ran.stderr == "grader: no network: pip cannot reach its package index\n"
    assert [path.name for path in (tmp_path / "a place").rglob("*")] == ["target-packages", "kept"]


def test_a_place_that_cannot_be_written_is_named(
    grader: Cli, offline: Environment, tmp_path: Path
) -> None:
    (tmp_path / "a place").write_text("a file", "utf-8")
    ran = grader("install-target", **offline)
    assert ran.returncode == 3
    assert ran.stderr.startswith(f"grader: cannot write {tmp_path}/a place/target-packages: ")
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("ERROR: Could not install: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: Operation cancelled by user", "interrupted; run it again to finish"),
        (
            "WARNING: Retrying after NameResolutionError\nERROR: No matching distribution for x",
            "no network: pip cannot reach its package index",
        ),
        (
            "ERROR: No matching distribution found for x==1\n",
            "pip finds no x==1: no network or package index, or no wheel for this Python",
        ),
        ("/bin/python: No module named pip", "there is no pip in this environment: "),
        ("ERROR: first\n  ERROR: something new", "pip failed: something new"),
        ("", "pip failed: no reason given"),
    ],
)
def test_what_pip_says_becomes_one_line(said: str, why: str) -> None:
    assert install.reason(said).startswith(why)


def test_a_plugin_in_the_environment_itself_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is so where JAX was installed for a GPU."""
    monkeypatch.setattr(targets, "import_path", list)
    monkeypatch.setattr(install, "_fill", lambda folder: pytest.fail("nothing is missing"))
    assert list(install.install()) == ["ready to compile for targets; `grader doctor` tries it"]


def test_elsewhere_than_on_linux_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install.sys, "platform", "darwin")
    (line,) = install.install()
    assert line.endswith("which is for Linux")
