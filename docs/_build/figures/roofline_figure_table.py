"""Asks JAX for the FLOPs and bytes of matrix products, and measures a launch, for the roofline.

A program of its own, because it needs JAX. Ceilings are data-sheet figures of `machines.toml`,
where each has its source; the price of a launch is measured here, on the CPU that builds the site.
"""

import json
import tomllib
from pathlib import Path
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp

MACHINES = Path(__file__).resolve().parents[3] / "grader" / "program" / "machines.toml"
DTYPES = ("float32", "bfloat16")
SIDES = (64, 256, 1024, 4096, 16384)
ROWS = (1, 8, 64, 512, 4096, 32768)
_LAUNCHES, _ROUNDS = 500, 9


def cost(rows: int, side: int, dtype: str) -> list[int]:
    """FLOPs and bytes of (rows, side) times (side, side), by JAX's analysis of the program."""
    x, w = (jax.ShapeDtypeStruct((n, side), dtype) for n in (rows, side))
    said: Any = jax.jit(jnp.matmul).lower(x, w).cost_analysis()
    return [int(said["flops"]), int(said["bytes accessed"])]


def ceilings() -> list[dict[str, Any]]:
    """For each GPU and dtype with a data-sheet figure: FLOP/s, bytes/s, and their sources."""
    known = tomllib.loads(MACHINES.read_text("utf-8"))
    found = []
    for name, gpu in known["gpus"].items():
        if "speed" in gpu:
            source = gpu["speed"]["sources"]["flops"]
            found.append(_ceiling(gpu, "bfloat16", gpu["speed"]["flops"], source))
        paper = known["targets"].get(f"{name}x8", {}).get("paper")
        if paper:
            source = paper["sources"]["matmul_flops"]
            found.append(_ceiling(gpu, "float32", paper["matmul_flops"], source))
    return found


def _ceiling(gpu: dict[str, Any], dtype: str, flops: float, source: str) -> dict[str, Any]:
    bandwidth = gpu["config"]["memory_bandwidth"]
    sources = [source, gpu["source"]]
    title = gpu["device_kind"]
    return {
        "gpu": title,
        "dtype": dtype,
        "flops": flops,
        "bandwidth": bandwidth,
        "sources": sources,
    }


def launch() -> float:
    """Seconds for one launch of a program with nothing to do: the shortest of some rounds."""
    run = jax.jit(lambda x: x + 1)
    x = run(jnp.zeros(()))
    times = []
    for _ in range(_ROUNDS):
        start = perf_counter()
        for _ in range(_LAUNCHES):
            x = run(x)
        x.block_until_ready()
        times.append((perf_counter() - start) / _LAUNCHES)
    return min(times)


def table() -> dict[str, Any]:
    """`costs[dtype]["rows side"]`, the ceilings, and the launch in seconds."""
    costs = {
        dtype: {f"{rows} {side}": cost(rows, side, dtype) for rows in ROWS for side in SIDES}
        for dtype in DTYPES
    }
    return {
        "jax": jax.__version__,
        "sides": SIDES,
        "rows": ROWS,
        "costs": costs,
        "ceilings": ceilings(),
        "launch": round(launch(), 8),
    }


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    print(json.dumps(table(), separators=(",", ":")))
