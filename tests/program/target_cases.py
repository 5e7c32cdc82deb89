"""Exports programs for a target's platform, as a learner's worker does; see `test_target`.

`python target_cases.py OUT` writes `dict[str, Program]` as JSON: functions of `program_cases`,
and a few whose arguments are too large for any machine at hand.
"""

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from program_cases import cases, mesh, step

from grader.program.export import TARGET_PLATFORM, export_program

P = PartitionSpec
TAKEN = """
step donated shard_map explicit pmap to_device pinned_single pinned_donated trees unused key
linear_algebra printing forged outside
"""
WIDE = 32768
"""Width of a square float32 matrix of 4 GiB."""


def struct(*spec: Any, kind: str = "device") -> Any:
    """The description of a float32 matrix of 4 GiB on all devices."""
    sharding = NamedSharding(mesh(), P(*spec), memory_kind=kind)
    return jax.ShapeDtypeStruct((WIDE, WIDE), jnp.float32, sharding=sharding)


def offloaded(momentum: Any, weights: Any) -> tuple[Any, Any]:
    """Momentum waits in host memory between two steps."""
    momentum = 0.9 * jax.device_put(momentum, jax.memory.Space.Device) + weights
    return weights - momentum, jax.device_put(momentum, jax.memory.Space.Host)


def main(out: Path) -> None:
    known = cases(np.random.default_rng(0))
    both = struct("data", kind="pinned_host"), struct("data")
    chosen = {name: known[name] for name in TAKEN.split()} | {
        "large": (jax.jit(step, donate_argnums=0), (struct(), struct("data"))),
        "offloaded": (jax.jit(offloaded, donate_argnums=(0, 1)), both),
    }
    found = {n: export_program(n, f, args, TARGET_PLATFORM) for n, (f, args) in chosen.items()}
    found["for_cpu"] = export_program("for_cpu", *known["step"])
    found["nonsense"] = msgspec.structs.replace(found["step"], blob=b"nonsense")
    out.write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
