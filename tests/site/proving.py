"""Where the proofs of claims run: eight CPU devices in this process, or a process of its own.

A proof is a test marked `@pytest.mark.proves("S0-07: false")`. The page of its document shows
it, so it is written to be read: few lines, plain names, and asserts that would fail if the verdict
were another. A proof that needs a GPU is marked `gpu` and runs its program in a fresh process.

What a proof is about (a function of JAX, a program, a machine) is a parameter of it, and the
default is the real one. Each mark `@pytest.mark.unless("arrays of NumPy, which lie on no device",
make=np.asarray)` puts a subject in its place of which the verdict is false: a counter-example. It
speaks for all claims of the proof, or for those that its sentence names ("S2-04, S2-06: ...").
`test_counterexamples` runs each one, and demands that the proof fails.
"""

import ast
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from grader.device.options import Options
from grader.device.start import start
from grader.judging.timing import decide
from grader.program import targets
from grader.records.book import Link

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

SECONDS = 120
ALPHA, MOST_TRIALS = 1e-3, 200
STEERING = ("JAX_", "XLA_", "TF_")

type Machine = Callable[..., str]
"""What runs a program, with environment variables as keywords, and returns what it prints."""


class ProgramError(Exception):
    """A program that should have run to its end did not: it proves nothing, either way."""


@dataclass(frozen=True)
class Ended:
    """What a process left behind."""

    code: int
    out: str
    err: str


def fresh(
    program: str, *, gpu: bool = False, devices: int = 1, may_fail: bool = False, **environment: str
) -> Ended:
    """Run `program` in a fresh Python, where nothing has touched JAX yet.

    It sees `devices` CPU devices, or with `gpu` what the machine has. Keywords are environment
    variables. Raises ProgramError if the program fails, unless it may, and
    subprocess.TimeoutExpired after `SECONDS`.
    """
    kept = {name: text for name, text in os.environ.items() if not name.startswith(STEERING)}
    platform = {} if gpu else {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**kept, **platform, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if ended.returncode and not may_fail:
        raise ProgramError(ended.stderr)
    return Ended(ended.returncode, ended.stdout.strip(), ended.stderr.strip())


def on_gpu(program: str, **environment: str) -> str:
    """The machine of a proof that needs a GPU: a fresh Python that sees what there is here.

    A counter-example puts another machine in its place: one of the following.
    """
    return fresh(program, gpu=True, **environment).out


def on_cpu(program: str, **environment: str) -> str:
    """Two CPU devices, and no GPU."""
    return fresh(program, devices=2, **environment).out


def next_door(program: str, **environment: str) -> str:
    """A device in another process, with 64 MiB of memory and a link of 1 GiB/s and 1 ms."""
    link = Link(bandwidth=float(1 << 30), latency=1e-3)
    with start(Options(devices=1, memory=64 << 20, host_link=link)) as device:
        return fresh(program, gpu=True, **(dict(device.environment) | environment)).out


def showing(machine: Machine, *readings: int) -> Machine:
    """The machine, with an `nvidia-smi` that prints these MiB: one a call, the last for ever."""

    def run(program: str, **environment: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            left, command = Path(folder, "left"), Path(folder, "nvidia-smi")
            left.write_text("".join(f"{reading}\n" for reading in readings))
            command.write_text(f"#!/bin/sh\nhead -1 {left}\nsed -i '1{{$!d}}' {left}\n")
            command.chmod(0o755)
            path = f"{folder}{os.pathsep}{os.environ['PATH']}"
            return machine(program, PATH=path, **environment)

    return run


def changed(machine: Machine, texts: Mapping[str, str]) -> Machine:
    """The machine, running a program in which each of these texts is replaced by another."""

    def run(program: str, **environment: str) -> str:
        for old, new in texts.items():
            if old not in program:
                raise ProgramError(f"the program has no {old!r}")
            program = program.replace(old, new)
        return machine(program, **environment)

    return run


def places(tree: Any) -> set[jax.Device]:
    """The devices on which the JAX arrays of a tree lie; what is no such array lies on none."""
    arrays = (leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array))
    return {device for array in arrays for device in array.devices()}


def refused(function: Callable[..., Any], *arguments: Any) -> str:
    """What JAX says if it refuses a call; nothing if it does not."""
    try:
        function(*arguments)
    except (RuntimeError, TypeError, ValueError) as error:
        return str(error)
    return ""


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function in a JAX that copies nothing unasked."""

    def call(*arguments: Any) -> Any:
        with jax.transfer_guard("disallow"):
            return function(*arguments)

    return call


def usually(holds: Callable[[], bool]) -> bool:
    """Whether a comparison of times holds, on a machine that does other work too.

    One sample proves nothing there. So the comparison is repeated until a sequential test
    decides whether it holds more often than not: the test by which the grader judges times
    (`grader.judging.timing.decide`). The answer is also False if the test does not decide.
    """
    wins = losses = 0
    while (verdict := decide(wins, losses, ALPHA)) is None and wins + losses < MOST_TRIALS:
        held = holds()
        wins, losses = wins + held, losses + (not held)
    return verdict == "pass"


def cuda_plugin() -> str:
    """The source with which JAX's CUDA plugin registers itself, from its own wheel.

    The wheel lies where programs are compiled for targets; no GPU is needed to read it. Raises
    ModuleNotFoundError where it is not installed (`grader install-target`).
    """
    places = [*targets.import_path(), *sys.path]
    for name in ("xla_cuda13", "xla_cuda12"):
        for place in places:
            source = Path(place, "jax_plugins", name, "__init__.py")
            if source.is_file():
                return source.read_text("utf-8")
    raise ModuleNotFoundError(f"no CUDA plugin in {places}: {targets.REMEDY}")


def cuda_priority() -> int:
    """The priority that the CUDA plugin asks for, as its source has it."""
    for node in ast.walk(ast.parse(cuda_plugin())):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("register_plugin"):
            for keyword in node.keywords:
                if keyword.arg == "priority":
                    return int(ast.literal_eval(keyword.value))
    raise AssertionError("the CUDA plugin names no priority")


NEXT_TO_THE_CPU = """
import jax, jax.numpy as jnp
from jax.extend import backend
from jaxlib import xla_client
def connect():
    {connect}
backend.register_backend_factory("rocm", connect, priority={priority}, fail_quietly=False)
"""
"""A program's start: a backend beside the CPU. Three devices tell it from the CPU with its one. It
has the name of AMD's, for which "gpu" stands too: for "cuda", JAX would first look at `/dev`."""
WORKS = "return xla_client.make_cpu_client(num_devices=3)"
FAILS = "raise RuntimeError('the driver is too old')"


def beside_the_cpu(
    program: str,
    *,
    priority: int | None = None,
    connect: str = WORKS,
    platforms: str = "",
    may_fail: bool = False,
) -> Ended:
    """Run `program` in a fresh process, where a backend is registered: with the priority of the
    CUDA plugin, if no other is given.

    JAX chooses the platforms itself there, unless `platforms` is given: it is JAX_PLATFORMS.
    """
    priority = cuda_priority() if priority is None else priority
    start = NEXT_TO_THE_CPU.format(priority=priority, connect=connect)
    return fresh(start + program, may_fail=may_fail, JAX_PLATFORMS=platforms)


def bytes_held(array: jax.Array) -> int:
    """Bytes of device memory that an array takes, with all its shards and replicas."""
    return sum(shard.data.nbytes for shard in array.addressable_shards)


@contextmanager
def compiled() -> Iterator[list[str]]:
    """The names of the programs that XLA compiles inside the block, as they are compiled."""
    names: list[str] = []

    def note(event: str, seconds: float, **about: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(str(about.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield names
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
