"""ex07_quiet_loop: the loop runs ahead of the device, and losses are read at the end."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

from grader.checking import Exercise, Failure, LoopTiming, Misused, Observe, Result, unpack
from grader.evidence import (
    culprits,
    definition,
    differing_leaf,
    events,
    probe_gap,
    seen,
    timing_result,
)
from grader.record import Event, Record
from grader.words import plural

PROMISE = "`train` returns (params, losses)"
ONCE = "`train` calls `step` once for each batch"
HOST_IN_STEPS = 0.75
"""What a batch costs the host, in steps of the device."""
PREFETCHED = "after copy_to_host_async in an earlier step"


def _parameters(rng: Any, width: int) -> dict[str, Any]:
    """float32 parameters of the two-layer network; (16, width), (width,), (width, 4)."""
    import jax
    import numpy as np

    def draw(*shape: int) -> Any:
        return (rng.standard_normal(shape) / 8).astype(np.float32)

    placed: dict[str, Any] = jax.device_put(
        {"w1": draw(16, width), "b1": draw(width), "w2": draw(width, 4)}
    )
    return placed


def _batch(rng: Any, rows: int) -> tuple[Any, Any]:
    """One batch on the device: inputs (rows, 16), targets (rows, 4), float32."""
    import jax
    import numpy as np

    inputs = rng.standard_normal((rows, 16)).astype(np.float32)
    placed: tuple[Any, Any] = jax.device_put((inputs, np.tanh(inputs[:, :4])))
    return placed


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Train over two sizes, counting steps, so that a read can be told from a late read."""
    for width, rows, steps in ((24, 32, 7), (40, 20, 12)):
        params = _parameters(rng, width)
        batches, left = [_batch(rng, rows) for _ in range(steps)], iter(range(steps))

        def step(params: Any, batch: Any, left: Iterator[int] = left) -> Any:
            observe.mark()
            if next(left, None) is None:
                raise Misused(ONCE, "it was called more often than there are batches")
            return submission.sgd_step(params, batch)

        with observe.phase(f"{steps} steps"):
            params, losses = unpack(submission.train(step, params, iter(batches)), 2, PROMISE)
        observe.value(f"losses of {steps}", losses)
        observe.value(f"params after {steps}", params)


def _paced(submission: ModuleType, rng: Any) -> tuple[Callable[..., Any], Any, list[Any]]:
    """A step that keeps the device busy for some milliseconds, its parameters and batches."""
    import jax

    from grader.probes.staged_step import staged

    on_cpu = jax.default_backend() == "cpu"
    width, rows = (24, 32) if on_cpu else (32768, 8192)
    params, batches = _parameters(rng, width), [_batch(rng, rows) for _ in range(2)]
    step = staged(submission.sgd_step) if on_cpu else submission.sgd_step
    return step, params, batches


def seconds_of_a_step(submission: ModuleType, rng: Any) -> float:
    """Seconds one step takes now, on this machine under this load."""
    import jax

    step, params, batches = _paced(submission, rng)
    jax.block_until_ready(step(params, batches[0]))
    start = time.perf_counter()
    for batch in batches:
        params, loss = step(params, batch)
    jax.block_until_ready((params, loss))
    return (time.perf_counter() - start) / len(batches)


def pace(submission: ModuleType, rng: Any, steps: int, unit: float) -> Callable[[], list[float]]:
    """A run of `steps` steps, each with a batch that costs the host three quarters of a step.

    That time passes in any loop, and is not counted. What is left is the wait for the device:
    a quarter of a step where the two overlap, a whole step where they do not.
    """
    step, params, ready = _paced(submission, rng)

    taken = []

    def batches() -> Iterator[Any]:
        # Reading a file or a socket: the host waits, and the device could work.
        for index in range(steps):
            time.sleep(HOST_IN_STEPS * unit)
            taken.append(index)
            yield ready[index % 2]
        time.sleep(HOST_IN_STEPS * unit)  # that there is no more takes as long to find out

    def run() -> list[float]:
        _, losses = submission.train(step, params, batches())
        return [float(loss) for loss in losses] + [float(len(taken))]

    return run


def naive(step: Any, params: Any, batches: Any) -> Any:
    """The loop this exercise is about: one wait for each step."""
    losses = []
    for batch in batches:
        params, loss = step(params, batch)
        losses.append(float(loss))
    return params, losses


EXERCISE = Exercise(
    title="Report losses without stalling the loop",
    lesson="lessons/04-the-inner-loop",
    anchor="reading-stops-the-loop",
    edits=("train",),
    drive=drive,
    loop_timing=LoopTiming(
        at_most=2,
        pace=pace,
        unit=seconds_of_a_step,
        naive=naive,
        function="train",
        apart=lambda steps: HOST_IN_STEPS * (steps + 1),
        window_seconds=0.012,
    ),
    hints=(
        "A call of a jitted function returns before the device has finished. "
        "Which line of the loop makes Python wait for it?",
        "An array can be kept without being read. What if the list held arrays, not floats?",
        "Fill a list with the arrays; after the loop, one jax.device_get(list) reads them all, "
        "as NumPy arrays. float() of each comes last.",
    ),
)


@EXERCISE.check(
    ground="observed",
    hints=(
        "A report holds plain Python floats in a list, one for each batch. An array is none, of "
        "JAX or of NumPy.",
        "float() makes a number of an array, and waits for it. After the loop that costs nothing.",
    ),
)
def same_losses(record: Record) -> Result:
    """The losses are the reference's: floats, one for each batch, in order."""
    for steps in (7, 12):
        name = f"losses of {steps}"
        failure = _not_floats(record, name) or differing_leaf(record, name, rtol=1e-4, atol=1e-6)
        if failure:
            return replace(failure, culprits=definition(record, "train"))
    return None


def _not_floats(record: Record, name: str) -> Failure | None:
    for leaf in seen(record).values.get(name, ()):
        if leaf.kind == "jax":
            return Failure("losses are floats", f"`losses{leaf.path}` is still a jax.Array")
        if leaf.type not in ("float", "float32", "float64"):
            return Failure("losses are floats", f"`losses{leaf.path}` is of type `{leaf.type}`")
    return None


@EXERCISE.check(ground="observed")
def same_params(record: Record) -> Result:
    """The parameters after training are the reference's."""
    for steps in (7, 12):
        failure = differing_leaf(record, f"params after {steps}", rtol=1e-4, atol=1e-5)
        if failure:
            return failure
    return None


def _in_loop(found: Iterator[Event]) -> list[Event]:
    """Events after the first step and before the last: those a step had to wait for."""
    return [e for e in found if 0 < e.step < int(e.phase.split()[0])]


@EXERCISE.check(
    ground="observed",
    hints=(
        "float(), np.asarray(), .item(), print() and `if loss < x` all wait for the device.",
        "A loss may be read late: call loss.copy_to_host_async() after its step, and read it "
        "after the next step has been called.",
        "Or not at all in the loop: append the array itself, and read the list after the loop.",
    ),
)
def no_reads_in_loop(record: Record) -> Result:
    """No step waits for a device-to-host read."""
    gap = probe_gap(seen(record), "reads")
    reads = [e for e in _in_loop(events(seen(record), "d2h")) if e.detail != PREFETCHED]
    if not reads:
        return gap
    total = sum(event.count for event in reads)
    return Failure(
        "no read between the steps, except of an array whose copy_to_host_async was called "
        "a step before",
        f"{plural(total, 'read')} between the steps of two runs, of 7 and 12 steps",
        culprits(record, reads),
    )


@EXERCISE.check(
    ground="observed",
    after=("no_reads_in_loop",),
    hints=("block_until_ready is a wait like any other: it belongs after the loop, if anywhere.",),
)
def no_waits_in_loop(record: Record) -> Result:
    """No step waits for the device by block_until_ready."""
    gap = probe_gap(seen(record), "reads")
    waits = _in_loop(events(seen(record), "wait"))
    if not waits:
        return gap
    total = sum(event.count for event in waits)
    return Failure(
        "no wait between the steps",
        f"{plural(total, 'wait')} between the steps of two runs, of 7 and 12 steps",
        culprits(record, waits),
    )


@EXERCISE.check(
    ground="timing",
    hints=(
        "While the device works on a step, the host can prepare the next batch. What in your "
        "code keeps the two from overlapping?",
        "Take the batches one at a time, as they come: list(batches) prepares all of them "
        "before the first step.",
    ),
    anchor="read-one-step-late",
)
def as_fast_as_the_reference(record: Record) -> Result:
    """Beyond preparing the batches, the loop takes at most twice the reference's time."""
    return timing_result(record, "loop", "a step, beyond preparing its batch,")
