"""Counts a kernel's work in its jaxpr, and measures this machine's ceilings.

Ceilings are what a program can reach here and now: products of large matrices for FLOP/s,
a copy of a large array, or an addition to it, for bytes per second. No figure comes from a
data sheet.
"""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

REPEATS = 4


class Ceilings(NamedTuple):
    """FLOP/s of float32 matrix products, and bytes/s of a copy or an addition, both ways."""

    flops: float
    bandwidth: float


def seconds(program: Callable[..., Any], *args: Any) -> float:
    """The shortest of some runs, each waited for, after one that compiles."""
    jax.block_until_ready(program(*args))
    spans = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(program(*args))
        spans.append(time.perf_counter() - start)
    return min(spans)  # noise only adds


def measure() -> Ceilings:
    """Both ceilings, on the default device."""
    side, length = (768, 1 << 22) if jax.default_backend() == "cpu" else (8192, 1 << 28)
    square = jnp.full((side, side), 1 / side, jnp.float32)
    line = jnp.ones(length, jnp.float32)
    product, copy, add = jax.jit(lambda x: x @ x), jax.jit(jnp.copy), jax.jit(lambda x: x + 1)
    moving = min(seconds(copy, line), seconds(add, line))
    return Ceilings(2 * side**3 / seconds(product, square), 2 * line.nbytes / moving)


def count_bytes(closed: Any) -> int:
    """Bytes of the arguments and results of a closed jaxpr, each read or written once."""
    return sum(a.size * a.dtype.itemsize for a in (*closed.in_avals, *closed.out_avals))


def count_flops(jaxpr: Any) -> int:
    """Multiplications and additions in a jaxpr of products, sums and inner jits."""
    total = 0
    for equation in jaxpr.eqns:
        size = math.prod(equation.outvars[0].aval.shape)
        match equation.primitive.name:
            case "add" | "mul":
                total += size
            case "dot_general":
                (contracted, _), _ = equation.params["dimension_numbers"]
                sides = [equation.invars[0].aval.shape[axis] for axis in contracted]
                total += 2 * size * math.prod(sides)
            case "jit" | "pjit":
                total += count_flops(equation.params["jaxpr"].jaxpr)
    return total
