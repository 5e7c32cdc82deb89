"""Runs on a GPU node without network: GPU tests, all solutions, recordings of lessons and claims.

Needs a Python with jax (the node's own) and, for the rest, the wheels of `wheelhouse/`
(`make wheelhouse`). Every step runs, whatever became of the one before; the exit code is 0
when all of them passed. Imports nothing outside the standard library: it runs first.
"""

import argparse
import fnmatch
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "gpu-site"
# What belongs to the node and its driver: a wheel of ours must not stand before it.
NODES_OWN = ("jax", "jaxlib", "jax-cuda*", "ml-dtypes", "numpy", "nvidia-*", "scipy")
NO_GPU = 2
PROBE = """
import jax
device = jax.devices()[0]
if device.platform == "cpu":
    raise SystemExit("jax found no GPU (only %r)" % (jax.devices(),))
print("jax", jax.__version__, "on", jax.device_count(), "x", device.device_kind)
"""


def is_nodes_own(name: str) -> bool:
    """Whether the GPU node brings the package of this name."""
    normal = name.lower().replace("_", "-")
    return any(fnmatch.fnmatch(normal, pattern) for pattern in NODES_OWN)


def what_gpu() -> tuple[bool, str]:
    """Whether this Python's jax sees a GPU, and one line that says what it saw."""
    probe = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=False
    )
    said = (probe.stdout if probe.returncode == 0 else probe.stderr).strip().splitlines()
    return probe.returncode == 0, said[-1] if said else f"jax ended with {probe.returncode}"


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
    command += ["--no-index", "--no-deps", "--upgrade", "--target", str(SITE)]
    return subprocess.run(command + wheels, check=False).returncode


def steps(out: Path) -> dict[str, list[str]]:
    """Name and command of each step; all write into `out`."""
    python = sys.executable
    return {
        "tests": [python, "-m", "pytest", "-m", "gpu", f"--junitxml={out / 'tests.xml'}"],
        "solutions": [
            *[python, "-m", "grader", "check", "--all"],
            *["--submission", "solutions", "--device", "gpu"],
        ],
        "claims": [
            *[python, "docs/_build/record_claims.py"],
            *["--junit", str(out / "tests.xml"), "--out", str(out)],
        ],
        "lessons": [python, "docs/_build/notebooks.py", "record", "--out", str(out)],
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


def run_all(out: Path) -> dict[str, tuple[int, float]]:
    """Runs every step; exit code and seconds by name."""
    out.mkdir(parents=True, exist_ok=True)
    before = os.environ.get("PYTHONPATH")
    path = [str(SITE), str(ROOT), *([before] if before else [])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    results = {}
    for name, command in steps(out).items():
        started = time.monotonic()
        code = run(name, command, out / f"{name}.log", environment)
        results[name] = code, time.monotonic() - started
    return results


def main() -> int:
    """The whole run; 0 all passed, 1 a step failed, 2 no GPU or no jax."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--out", type=Path, required=True, help="folder for logs and recordings")
    out: Path = options.parse_args().out.resolve()
    found, said = what_gpu()
    if not found:
        print(f"gpu: nothing run: {said}", file=sys.stderr)
        return NO_GPU
    print(f"gpu: {said}", flush=True)
    if code := install_wheels():
        print(f"gpu: the wheels of wheelhouse/ could not be installed (pip: {code})")
        return 1
    results = run_all(out)
    for name, (code, seconds) in results.items():
        print(f"gpu: {name:<10} exit {code}  {seconds:6.1f} s  {out / f'{name}.log'}")
    return int(any(code for code, _ in results.values()))


if __name__ == "__main__":
    sys.exit(main())
