"""Runs on a GPU node without network: GPU tests, all solutions, figures, recordings of lessons.

Needs a Python with jax (the node's own) and, for the rest, the wheels of `wheelhouse/`
(`make wheelhouse`). Every step runs, whatever became of the one before; the exit code is 0
when all of them passed. Into the folder `--out` go a log of each step, `tests.xml`, the
recordings, the record of each solution (`grader judge` judges it again) and `steps.json`:

    {"machine": "jax 0.12 on 1 x ...", "steps": {"tests": {"exit": 0, "seconds": 81.2}, ...}}

Imports nothing outside the standard library: it runs first.
"""

import argparse
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "gpu-site"
# What belongs to the node and its driver: a wheel of ours must not stand before it.
NODES_OWN = ("jax", "jaxlib", "jax-cuda*", "ml-dtypes", "numpy", "nvidia-*", "scipy")
NOT_THERE = (
    "tests/site/test_before_after.py",
    "tests/site/test_in_a_browser.py",
    "tests/site/test_moving_figures.py",
    "tests/site/test_site.py",
)
"""Tests of the built site. They need no GPU, and the extras `pages` and `site`, which no node has:
collecting them would end the whole run."""
NO_GPU = 2
NONE_FOUND = "jax found no GPU"
PROBE = f"""
import jax
device = jax.devices()[0]
if device.platform == "cpu":
    raise SystemExit("{NONE_FOUND} (only %r)" % (jax.devices(),))
print("jax", jax.__version__, "on", jax.device_count(), "x", device.device_kind)
"""


@dataclass(frozen=True)
class Chosen:
    """What to run of each step; nothing named is all of it."""

    exercises: list[str] = field(default_factory=list)
    lessons: list[str] = field(default_factory=list)
    experiments: list[str] = field(default_factory=list)
    tests: str = ""
    """As pytest's `-k`."""


def is_nodes_own(name: str) -> bool:
    """Whether the GPU node brings the package of this name."""
    normal = name.lower().replace("_", "-")
    return any(fnmatch.fnmatch(normal, pattern) for pattern in NODES_OWN)


def what_gpu() -> tuple[bool, str]:
    """Whether this Python's jax sees a GPU, and what it saw in one line.

    Where it sees none, what JAX said while it looked follows: a plugin that failed says why.
    """
    probe = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=False
    )
    said = (probe.stdout if probe.returncode == 0 else probe.stderr).strip().splitlines()
    if not said:
        return False, f"jax ended with {probe.returncode}"
    looked = said[:-1] if said[-1].startswith(NONE_FOUND) else []
    return probe.returncode == 0, "\n".join([said[-1], *looked])


def count_in(said: str) -> int:
    """How many GPUs there are, by what `what_gpu` said: `jax 0.12.0 on 8 x NVIDIA H200`."""
    return int(said.partition(" on ")[2].partition(" x ")[0])


def install_wheels() -> int:
    """Unpacks the wheelhouse into `SITE`, without what is the node's own; pip's exit code."""
    wheels = [
        str(wheel)
        for wheel in sorted((ROOT / "wheelhouse").glob("*.whl"))
        if not is_nodes_own(wheel.name.split("-")[0])
    ]
    if not wheels:
        print("gpu: wheelhouse/ is empty; using what this Python has")
        return 0
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    command += ["--no-compile", "--no-index", "--no-deps", "--upgrade", "--target", str(SITE)]
    return subprocess.run(command + wheels, check=False).returncode


def steps(out: Path, chosen: Chosen, gpus: int) -> dict[str, list[str]]:
    """Name and command of each step on so many GPUs; all write into `out`."""
    python, marked = sys.executable, "gpu" if gpus > 1 else "gpu and not gpus"
    some = ["-k", chosen.tests] if chosen.tests else []
    return {
        "tests": [
            *[python, "-m", "pytest", "-m", marked, *(f"--ignore={path}" for path in NOT_THERE)],
            *[f"--junitxml={out / 'tests.xml'}", *some],
        ],
        "solutions": [
            *[python, "-m", "grader", "check", *(chosen.exercises or ["--all"])],
            *["--submission", "solutions", "--device", "gpu", "--save", str(out / "records")],
        ],
        "figures": [python, "docs/_build/gpu_figures.py", "--out", str(out), *chosen.experiments],
        "claims": [
            *[python, "docs/_build/record_claims.py"],
            *["--junit", str(out / "tests.xml"), "--out", str(out)],
        ],
        "lessons": [
            *[python, "docs/_build/notebooks.py", "record", "--out", str(out)],
            *chosen.lessons,
        ],
    }


def run(name: str, command: list[str], log: Path, environment: dict[str, str]) -> int:
    """Runs one step, its output on the screen and in `log`; returns its exit code."""
    print(f"gpu: {name}: {' '.join(command[1:])}", flush=True)
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for line in process.stdout or ():
            print(line, end="", flush=True)
            file.write(line)
        return process.wait()


def environment() -> dict[str, str]:
    """Ours, with the wheels and the checkout to import from."""
    before = os.environ.get("PYTHONPATH")
    path = [str(SITE), str(ROOT), *([before] if before else [])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path)}


def run_all(out: Path, chosen: Chosen, gpus: int) -> dict[str, tuple[int, float]]:
    """Runs every step; exit code and seconds by name."""
    out.mkdir(parents=True, exist_ok=True)
    results = {}
    for name, command in steps(out, chosen, gpus).items():
        started = time.monotonic()
        code = run(name, command, out / f"{name}.log", environment())
        results[name] = code, time.monotonic() - started
    return results


def wanted(arguments: list[str] | None) -> tuple[Path, Chosen]:
    """What the command line asks for: the folder, and what to run."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--out", type=Path, required=True, help="folder for logs and recordings")
    options.add_argument("--exercise", action="append", default=[], help="ex07; all by default")
    options.add_argument("--lesson", action="append", default=[], help="04; all by default")
    options.add_argument("--experiment", action="append", default=[], help="G6; all by default")
    options.add_argument("--tests", default="", help="as pytest's -k; all by default")
    found = options.parse_args(arguments)
    return found.out.resolve(), Chosen(found.exercise, found.lesson, found.experiment, found.tests)


def main(arguments: list[str] | None = None) -> int:
    """The whole run; 0 all passed, 1 a step failed, 2 no GPU or no jax."""
    out, chosen = wanted(arguments)
    found, said = what_gpu()
    if not found:
        print(f"gpu: nothing run: {said}", file=sys.stderr)
        return NO_GPU
    print(f"gpu: {said}", flush=True)
    gpus = count_in(said)
    if gpus == 1:
        print("gpu: not run: tests marked `gpus`, which need two GPUs or more", flush=True)
    if code := install_wheels():
        print(f"gpu: the wheels of wheelhouse/ could not be installed (pip: {code})")
        return 1
    results = run_all(out, chosen, gpus)
    for name, (code, seconds) in results.items():
        print(f"gpu: {name:<10} exit {code}  {seconds:6.1f} s  {out / f'{name}.log'}")
    ran = {name: {"exit": code, "seconds": seconds} for name, (code, seconds) in results.items()}
    (out / "steps.json").write_text(json.dumps({"machine": said, "steps": ran}, indent=1) + "\n")
    return int(any(code for code, _ in results.values()))


if __name__ == "__main__":
    sys.exit(main())
