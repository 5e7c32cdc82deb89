"""Writes the HLO texts that `test_hlo` reads, for the jax and backend it runs on.

    python tests/golden/hlo/generate.py cpu
    PYTHONPATH=PACKAGES python tests/golden/hlo/generate.py gpu TARGET.textproto

The second form needs no GPU. PACKAGES is the folder into which `grader install-target` installed
(`.venv/lib/python3.*/target-packages`). TARGET.textproto describes a GPU, in the format of XLA's
`--xla_gpu_target_config_filename`; the golden texts are for 8 x H200.
Files are named CASE.BACKEND-VERSION.txt. Paths of source files are cut to their names.
"""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

P = PartitionSpec
Case = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def loss(weights: Any, batch: Any) -> Any:
    return jnp.mean((jnp.tanh(batch @ weights["first"]) @ weights["second"]) ** 2)


def step(weights: Any, batch: Any) -> Any:
    gradient = jax.grad(loss)(weights, batch)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradient)


def scanned(weights: Any, batch: Any) -> Any:
    return jax.lax.scan(lambda w, _: (step(w, batch), None), weights, None, length=5)[0]


def every_collective(x: Any) -> Any:
    return (
        jax.lax.psum(x, "x"),
        jax.lax.all_gather(x, "x"),
        jax.lax.ppermute(x, "x", [(0, 1), (1, 0)]),
        jax.lax.all_to_all(x, "x", 1, 0, tiled=True),
        jax.lax.psum_scatter(x, "x", scatter_dimension=1, tiled=True),
    )


def cases(devices: list[Any]) -> dict[str, Case]:
    """Name -> function, arguments, keywords of `jax.jit`."""
    mesh = Mesh(np.array(devices), ("x",), axis_types=(AxisType.Auto,))
    pairs = Mesh(np.array(devices).reshape(4, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    replicated, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("x"))

    def array(shape: tuple[int, ...], sharding: NamedSharding, dtype: Any = jnp.float32) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    weights = {
        "first": array((32, 16), replicated),
        "second": array((16, 8), replicated, jnp.bfloat16),
    }
    batch, plain = array((64, 32), rows), array((64, 32), rows)
    collectives = jax.shard_map(
        every_collective,
        mesh=mesh,
        in_specs=P("x"),
        out_specs=(P(), P("x"), P("x"), P("x"), P("x")),
        check_vma=False,
    )
    grouped = jax.shard_map(
        lambda x: jax.lax.psum(x, "b"), mesh=pairs, in_specs=P("a", "b"), out_specs=P("a")
    )
    return {
        "step": (step, (weights, batch), {"donate_argnums": 0}),
        "scan": (scanned, (weights, batch), {}),
        "gather": (lambda x: x * 2, (plain,), {"out_shardings": replicated}),
        "collectives": (collectives, (plain,), {}),
        "groups": (grouped, (array((64, 32), NamedSharding(pairs, P("a", "b"))),), {}),
        "to_host": (lambda x: jax.device_put(x * 2, jax.memory.Space.Host), (plain,), {}),
    }


def devices_of(backend: str, target: list[str]) -> list[Any]:
    if backend == "cpu":
        return jax.devices()
    description = topologies.get_topology_desc(
        platform="cuda",
        topology_name="h200",
        target_config=Path(target[0]).read_text(encoding="utf-8"),
        topology="1x1x8",
    )
    return description.devices


def main(backend: str, *target: str) -> None:
    platform = {"cpu": "cpu", "gpu": "cuda"}[backend]
    for name, (function, args, keywords) in cases(devices_of(backend, [*target])).items():
        traced = jax.jit(function, **keywords).trace(*args)
        text = traced.lower(lowering_platforms=(platform,)).compile().as_text() or ""
        text = re.sub(r'^(\d+) ".*/', r'\1 "', text, flags=re.MULTILINE)
        out = Path(__file__).with_name(f"{name}.{backend}-{jax.__version__}.txt")
        out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
