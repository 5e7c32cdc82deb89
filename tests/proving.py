"""Where the proofs of claims run: eight CPU devices in this process, or a process of its own.

A proof is a test marked `@pytest.mark.proves("S0-07: false")`. It stands on the page of its
document, so it is written to be read: few lines, plain names, and asserts that would fail if
the verdict were another. One that needs a GPU is marked `gpu` and runs in a fresh process.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

SECONDS = 120
STEERING = ("JAX_", "XLA_", "TF_", "CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Ended:
    """What a process left behind."""

    code: int
    out: str
    err: str


def fresh(program: str, *, gpu: bool = False, devices: int = 1, **environment: str) -> Ended:
    """Run `program` in a Python of its own, where nothing has touched JAX yet.

    It sees `devices` CPU devices, or with `gpu` what the machine has. Keywords are environment
    variables. Raises subprocess.TimeoutExpired after `SECONDS`.
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
    return Ended(ended.returncode, ended.stdout.strip(), ended.stderr.strip())


def bytes_held(array: jax.Array) -> int:
    """Bytes of device memory that an array takes, all its copies and pieces together."""
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
