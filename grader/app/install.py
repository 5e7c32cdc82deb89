"""`grader install-target`: installs what compiles for targets, beside this environment.

Everything goes into one folder (`targets.folder`), which is there whole or not at all: pip
fills a folder of another name, which then takes its place. JAX's CUDA plugin gets jaxlib's
version, and NVIDIA's compiler the version in `constraints.txt`. pip runs in a process of its
own, and what it says of a failure becomes one line. How the packages are found again is in
`grader.program.targets`.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grader.app.versions import unsupported
from grader.course import catalog
from grader.program import targets

JAX = ("jax-cuda13-pjrt", "jax-cuda13-plugin")
NVIDIA = ("nvidia-cuda-nvcc", "nvidia-nvvm")
"""XLA calls the files of these two. The plugin's other requirements only run programs."""

_PIP = ("-I", "-m", "pip", "--disable-pip-version-check", "install", "--no-input", "--no-deps")
_PIP_ELSEWHERE = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX")
_REASONS = {
    "No space left|Errno 28": "the disk is full",
    "Operation cancelled": "interrupted; run it again to finish",
    "NewConnectionError|NameResolution|ConnectTimeout|ReadTimeout|Max retries|Temporary failure"
    "|ProxyError|Network is unreachable": "no network: pip cannot reach its package index",
    r"No matching distribution found for (\S+)": r"pip finds no \1: no network or package index, "
    "or no wheel for this Python",
    "No module named pip": "there is no pip in this environment: `python -m ensurepip` adds it",
}


class NotInstalled(Exception):
    """The packages could not be installed; the message says why, in one line."""


def install() -> Iterator[str]:
    """Install the packages unless they are there already; yields lines that say what is done.

    Raises:
      NotInstalled: pip failed, the folder cannot be written, or JAX is not a supported one.
    """
    if not sys.platform.startswith("linux"):
        yield f"nothing installed: {targets.missing()}"
        return
    if problem := unsupported():
        raise NotInstalled(problem)
    folder = targets.folder()
    if targets.import_path() and not _is_ready(folder):
        yield f"installing what compiles for targets, 0.7 GB, into {folder}"
        try:
            with _alone(folder.parent):
                if not _is_ready(folder):
                    _fill(folder)
        except OSError as error:
            raise NotInstalled(f"cannot write {folder}: {error.strerror}") from error
    yield "ready to compile for targets; `grader doctor` tries it"


def requirements() -> list[str]:
    """What is to be installed, each package with its exact version."""
    jaxlib = targets.installed("jaxlib")
    constraints = (catalog.course_root() / "constraints.txt").read_text("utf-8")
    pins = dict(re.findall(r"^(\S+)==(\S+)$", constraints, re.MULTILINE))
    return [f"{name}=={jaxlib}" for name in JAX] + [f"{name}=={pins[name]}" for name in NVIDIA]


def _is_ready(folder: Path) -> bool:
    wanted = (requirement.split("==") for requirement in requirements())
    return all(targets.installed(name, [str(folder)]) == version for name, version in wanted)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """A block that one process enters at a time; another waits."""
    import fcntl  # here, since this module is loaded on Windows too

    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _fill(folder: Path) -> None:
    """Install into another folder beside `folder`, and then put it in its place."""
    part = folder.with_name(f"{folder.name}.part")
    old = folder.with_name(f"{folder.name}.old")
    _remove(part, old)  # left by an installation that was interrupted
    try:
        part.mkdir()
        _run_pip("--target", str(part), *requirements())
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
    finally:
        _remove(part, old)


def _remove(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _run_pip(*arguments: str) -> None:
    environment = {name: text for name, text in os.environ.items() if name not in _PIP_ELSEWHERE}
    done = subprocess.run(
        [sys.executable, *_PIP, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode:
        raise NotInstalled(reason(done.stdout))


def reason(said: str) -> str:
    """Why pip failed, in one line, from all that it said."""
    for pattern, why in _REASONS.items():
        if match := re.search(pattern, said):
            return match.expand(why)
    errors = re.findall(r"^ *ERROR: (.*)", said, re.MULTILINE)
    return f"pip failed: {errors[-1] if errors else 'no reason given'}"
