"""`grader doctor`: shows what JAX finds here, and which environment variables steer it.

The backend is started in a process of its own, with the real environment, so that a plugin's
error is shown as it is. Nothing is changed, and nothing is judged.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import distributions

import click
import msgspec

from grader.app.excerpt import plain
from grader.app.next_door.borrowed import NoDevice, borrowed
from grader.app.versions import unsupported
from grader.device.options import Options
from grader.judging.words import plural
from grader.program import targets
from grader.running.session import FOR_TARGET

_EFFECTS = {
    "JAX_PLATFORMS": "which backends may start, in this order; `gpu` means all of cuda, rocm and "
    "oneapi at once and fails with one of them missing: write `cuda` or `cuda,cpu`",
    "JAX_PLATFORM_NAME": "deprecated; use JAX_PLATFORMS",
    "CUDA_VISIBLE_DEVICES": "which GPUs CUDA shows to JAX; empty means none",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "only `false`, `False` and `0` switch preallocation off",
    "XLA_PYTHON_CLIENT_MEM_FRACTION": "deprecated; use XLA_CLIENT_MEM_FRACTION, never both",
    "XLA_CLIENT_MEM_FRACTION": "share of GPU memory to preallocate, 0.75 unless set",
    "XLA_PYTHON_CLIENT_ALLOCATOR": "`platform` allocates on demand, slowly; `bfc` is the default",
    "XLA_FLAGS": "passed to XLA; a misspelt flag aborts the process",
    "LD_LIBRARY_PATH": "libraries found here come before those of the wheels",
    "JAX_NUM_CPU_DEVICES": "how many CPU devices to simulate",
    "JAX_ENABLE_X64": "64-bit types; without it float64 becomes float32",
    "JAX_DISABLE_JIT": "if set, nothing is compiled",
}

_PROBE = """
import json, traceback
try:
    import jax
    devices = jax.devices()
    backend, kind = jax.default_backend(), devices[0].device_kind
    found = {"backend": backend, "kind": kind, "devices": len(devices)}
except BaseException as error:
    where = traceback.extract_tb(error.__traceback__)[-1].line
    found = {"error": f"{type(error).__name__}: {str(error) or where}"}
print("\\n" + json.dumps(found))
"""


_TARGET_PROBE = """
import json, sys, jax
from jax.experimental import topologies
for name, config, topology in json.loads(sys.argv[1]):
    found = topologies.get_topology_desc(name, "cuda", target_config=config, topology=topology)
    with jax.default_device(found.devices[0]):
        traced = jax.jit(lambda x: x + 1).trace(jax.ShapeDtypeStruct((8,), "float32"))
        lowered = traced.lower(lowering_platforms=("cuda",))
        lowered.compile(device_assignment=(found.devices[0],))
"""


class Examination(msgspec.Struct, tag_field="version", tag=1):
    """What `doctor --format json` prints."""

    python: str
    versions: dict[str, str]
    environment: dict[str, str]
    backend: str = ""
    kind: str = ""
    devices: int = 0
    error: str = ""
    log: list[str] = []
    """What JAX and its plugins printed while they started."""
    targets: list[str] = []
    """The targets that can be compiled for."""
    target_problem: str = ""
    """Why nothing can be compiled for a target."""
    next_door_seconds: float = 0.0
    """How long a device next door took to be ready; 0 if it could not be started."""
    next_door_problem: str = ""
    """Why no device next door could be started."""


def examine(environment: dict[str, str] | None = None) -> Examination:
    """Start the backend in a process with `environment`, by default this process's own."""
    found = Examination(sys.version.split()[0], _versions(), _set_variables())
    found.error = unsupported()
    if not found.error:
        _start_backend(found, environment)
    return found


def _start_backend(found: Examination, environment: dict[str, str] | None) -> None:
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=120,
            env=environment,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        found.error = "the backend did not start within 120 s"
        return
    found.log = [line for line in done.stderr.splitlines() if line.strip()][-20:]
    try:
        told = msgspec.json.decode(done.stdout.splitlines()[-1])
    except (IndexError, msgspec.DecodeError):
        found.error = f"JAX {_end(done.returncode)} before it named a device"
        return
    found.backend, found.kind = told.get("backend", ""), told.get("kind", "")
    found.devices, found.error = told.get("devices", 0), told.get("error", "")


def _try_targets(found: Examination) -> None:
    """Compile a small program for each target."""
    found.target_problem = targets.missing()
    if found.target_problem:
        return
    path = [*targets.import_path(), *filter(None, [os.environ.get("PYTHONPATH")])]
    names = targets.names()
    about = [(n, targets.config(n), targets.topology(targets.find(n))) for n in names]
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _TARGET_PROBE, msgspec.json.encode(about)],
            capture_output=True,
            text=True,
            timeout=120,
            env={
                **os.environ,
                **FOR_TARGET,
                "JAX_PLATFORMS": "cpu",
                "PYTHONPATH": os.pathsep.join(path),
            },
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        found.target_problem = "JAX's CUDA plugin did not compile within 120 s"
        return
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"JAX {_end(done.returncode)}"]
        found.target_problem = f"JAX's CUDA plugin does not compile: {last[0]}"
    else:
        found.targets = names


def _try_next_door(found: Examination) -> None:
    """Start a device next door, and end it again."""
    begin = time.monotonic()
    try:
        with borrowed(Options(devices=1)):
            found.next_door_seconds = round(time.monotonic() - begin, 2)
    except NoDevice as error:
        found.next_door_problem = str(error)


def _end(code: int) -> str:
    """How a process ended, in words."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def _versions() -> dict[str, str]:
    wanted = ("jax", "jaxlib", "flax", "dm-haiku", "optax", "numpy")
    found = {d.name.lower(): d.version for d in distributions() if d.name}
    plugins = [name for name in found if name.startswith("jax-cuda") or name.startswith("jax-rocm")]
    return {name: found.get(name, "not installed") for name in (*wanted, *sorted(plugins))}


def _set_variables() -> dict[str, str]:
    return {name: os.environ[name] for name in _EFFECTS if name in os.environ}


def device_lines(device: str) -> Iterator[str]:
    """What JAX finds, in two lines at most."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"} if device == "cpu" else None
    found = examine(environment)
    versions = ", ".join(f"{name} {found.versions[name]}" for name in ("jax", "jaxlib"))
    if found.error:
        yield f"JAX found no device ({versions}): {found.error}"
    else:
        count = plural(found.devices, f"{found.kind} device")
        where = f"default backend {found.backend} ({versions}, Python {found.python})"
        yield f"JAX found {count}; {where}"
    if not found.error and found.backend == "cpu":
        yield "no GPU in use: exercises run on simulated CPU devices; `grader doctor` says more"


def run(form: str) -> int:
    """Print the examination; returns the exit code."""
    found = examine()
    _try_targets(found)
    _try_next_door(found)
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        for line in _text(found):
            click.echo(plain(line))
    return 3 if found.error else 0


def _text(found: Examination) -> Iterator[str]:
    yield f"Python    {found.python}"
    for name, version in found.versions.items():
        yield f"{name:<9} {version}"
    if found.error:
        yield f"backend   FAILED: {found.error}"
    else:
        yield f"backend   {found.backend}: {found.devices} x {found.kind}"
    yield f"targets   {found.target_problem or ', '.join(found.targets)}"
    ready = f"a device starts in {found.next_door_seconds:g} s; `grader run` uses it"
    yield f"next door {found.next_door_problem or ready}"
    yield from _log_lines(found.log)
    for name, value in found.environment.items():
        yield f"{name}={value}"
        yield f"          {_EFFECTS[name]}"
    if not found.environment:
        yield "no environment variable that steers JAX is set"


def _log_lines(log: list[str]) -> Iterator[str]:
    if log:
        yield "JAX printed while it started:"
    for line in log:
        yield f"  {line}"
