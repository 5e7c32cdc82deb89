"""Records a training loop under JAX's profiler, once for each state of "A step in time".

A program of its own, because it needs JAX: `moving` runs it. What the figure draws is what the
profiler noted here, on the CPU that builds the site: spans of Python's lines, and spans in which
the device worked. Nothing is modelled, and no time is typed.
"""

import importlib
import itertools
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

LESSONS = Path(__file__).resolve().parents[2] / "lessons"
sys.path.insert(0, str(LESSONS))
_trace = importlib.import_module("_trace")  # lies beside the lessons, in no package

READS = ("none", "each", "late", "block")
"""The loss is not read, read at each step, read one step late; or each step is waited for."""
STEPS, TRIES = 6, 3
SIDE, LAYERS = 512, 4
_GAP = 0.3  # milliseconds: operations of one step are that near to each other
_LINES = ("load", "step", "wait")


def step(weights: list[jax.Array], batch: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    """A step of lesson 04's network."""

    def loss_of(weights: list[jax.Array]) -> jax.Array:
        hidden = batch
        for layer in weights:
            hidden = jnp.tanh(hidden @ layer)
        return jnp.mean((hidden - batch) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(weights)
    return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)], loss


def jitted(donated: bool) -> Any:
    """The step compiled, with or without donation of the weights."""
    return jax.jit(step, donate_argnums=(0,) if donated else ())


def fresh() -> Any:
    """New weights, all there: nothing of their making is in a recording."""
    return jax.block_until_ready([jnp.eye(SIDE) * 0.5 for _ in range(LAYERS)])


def loop(run: Any, weights: Any, load: Any, reads: str, prefetch: bool) -> Any:
    """The loop that is recorded; each of its lines has a name in the trace."""
    named = jax.profiler.TraceAnnotation
    before = None
    batch = load(0) if prefetch else None
    for i in range(STEPS):
        if not prefetch:
            batch = load(i)
        with named("step"):
            weights, loss = run(weights, batch)
        if prefetch and i + 1 < STEPS:
            batch = load(i + 1)
        if reads == "late":
            loss.copy_to_host_async()
        waited = {"none": None, "each": loss, "late": before, "block": weights}[reads]
        if waited is not None:
            with named("wait"):
                jax.block_until_ready(waited) if reads == "block" else float(waited)
        before = loss
    return weights, before


def slow(batches: Sequence[Any], seconds: float) -> Callable[[int], Any]:
    """Reads a batch as a slow disk would, and puts it on the device."""

    def load(i: int) -> Any:
        with jax.profiler.TraceAnnotation("load"):
            time.sleep(seconds)
            return jax.device_put(batches[i % len(batches)])

    return load


def record(run: Any, load: Any, reads: str, prefetch: bool) -> dict[str, Any]:
    """The shortest of some recordings, in milliseconds from its first line."""
    loop(run, fresh(), load, reads, prefetch)  # compiles
    found = [
        spans(_trace.record(loop, run, fresh(), load, reads, prefetch)[1]) for _ in range(TRIES)
    ]
    return min(found, key=lambda one: one["total"])


def spans(noted: list[Any]) -> dict[str, Any]:
    """Spans of Python's lines, and of the device at work, from a trace."""
    lines = [one for one in noted if one.name in _LINES and not one.device]
    first = min(one.start for one in lines)
    host = [[one.name, one.start - first, one.length] for one in lines]
    device = joined([one for one in noted if one.device], first)
    ends = [start + length for _, start, length in host] + [s + n for s, n in device]
    return {
        "host": [[name, round(start, 2), round(length, 2)] for name, start, length in host],
        "device": [[round(start, 2), round(length, 2)] for start, length in device],
        "total": round(max(ends), 2),
    }


def joined(operations: list[Any], first: float) -> list[list[float]]:
    """Operations that overlap or nearly touch, as one span each: [start, length]."""
    found: list[list[float]] = []
    for one in sorted(operations, key=lambda one: one.start):
        start, end = one.start - first, one.start - first + one.length
        if found and start <= sum(found[-1]) + _GAP:
            found[-1][1] = max(sum(found[-1]), end) - found[-1][0]
        else:
            found.append([start, end - start])
    return found


def needs(run: Any, batch: Any) -> list[int]:
    """Bytes of arguments, of results, and of results that take an argument's place."""
    memory = run.lower(fresh(), batch).compile().memory_analysis()
    return [
        memory.argument_size_in_bytes,
        memory.output_size_in_bytes,
        memory.alias_size_in_bytes,
    ]


def table() -> dict[str, Any]:
    """`runs["reads prefetch donated"]`, and what each program needs in memory."""
    numbers = np.random.default_rng(0)
    batches = list(numbers.normal(size=(4, SIDE, SIDE)).astype(np.float32))
    steps = {donated: jitted(donated) for donated in (False, True)}
    placed, times = jax.device_put(batches[0]), []
    for _ in range(8):
        start = time.perf_counter()
        jax.block_until_ready(steps[False](fresh(), placed))
        times.append(time.perf_counter() - start)
    load = slow(batches, min(times))
    runs = {
        f"{reads} {prefetch:d} {donated:d}": record(steps[donated], load, reads, prefetch)
        for reads, prefetch, donated in itertools.product(READS, (False, True), (False, True))
    }
    return {
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "steps": STEPS,
        "runs": runs,
        "needs": {f"{donated:d}": needs(run, placed) for donated, run in steps.items()},
    }


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    print(json.dumps(table(), separators=(",", ":")))
