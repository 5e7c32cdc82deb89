"""Counts a kernel's work in its jaxpr, and measures this machine's ceilings.

Ceilings are what a program can reach here and now: a product of large matrices for FLOP/s,
and a copy of a large array, or an addition to it, for bytes per second. These programs take
turns with the kernels that are compared with them, and a kernel that reaches more raises the
ceiling. No figure comes from a data sheet.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

REPEATS = 4


class Ceilings(NamedTuple):
    """The most FLOP/s and the most bytes/s that any program of a run reached."""

    flops: float
    bandwidth: float


class Kernel(NamedTuple):
    """A program with its arguments, and what one run of it does and moves."""

    flops: float
    nbytes: float
    program: Callable[..., Any]
    args: tuple[Any, ...]


def measure(kernels: Sequence[Kernel]) -> tuple[list[float], Ceilings]:
    """The shortest run of each kernel, in seconds, and both ceilings, on the default device."""
    programs = [*kernels, *_fast_ones()]
    spans = _side_by_side(programs)
    rates = [(k.flops / span, k.nbytes / span) for k, span in zip(programs, spans, strict=True)]
    return spans[: len(kernels)], Ceilings(*map(max, zip(*rates, strict=True)))


def _fast_ones() -> list[Kernel]:
    """Programs that come near the ceilings of most machines: a product, a copy, an addition."""
    side, length = (768, 1 << 22) if jax.default_backend() == "cpu" else (8192, 1 << 28)
    square = jnp.full((side, side), 1 / side, jnp.float32)
    line = jnp.ones(length, jnp.float32)
    return [
        Kernel(2 * side**3, 2 * square.nbytes, jax.jit(lambda x: x @ x), (square,)),
        Kernel(0, 2 * line.nbytes, jax.jit(jnp.copy), (line,)),
        Kernel(length, 2 * line.nbytes, jax.jit(lambda x: x + 1), (line,)),
    ]


def _side_by_side(programs: Sequence[Kernel]) -> list[float]:
    """The shortest run of each program, after one that compiles. Turns spread the noise."""
    for kernel in programs:
        jax.block_until_ready(kernel.program(*kernel.args))
    turns = [[_seconds(kernel) for kernel in programs] for _ in range(REPEATS)]
    return [min(spans) for spans in zip(*turns, strict=True)]  # noise only adds


def _seconds(kernel: Kernel) -> float:
    start = time.perf_counter()
    jax.block_until_ready(kernel.program(*kernel.args))
    return time.perf_counter() - start


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
