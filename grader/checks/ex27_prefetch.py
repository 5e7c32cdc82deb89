"""ex27_prefetch: while a step runs, the next batch is copied and those after it are read.

What the loop does is written down by `grader.looping`. Only the timing depends on speed.
"""

import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from grader.checking import Exercise, Failure, LoopTiming, Observe, Result, unpack
from grader.evidence import (
    culprits,
    definition,
    differing_leaf,
    probe_gap,
    seen,
    timing_result,
    wanted,
)
from grader.looping import FLOATS, Book, Future, calls_of, indices, most_ahead, stalls, unjudged
from grader.record import Record
from grader.words import plural

PROMISE = "`train` returns (params, losses)"
RUNS = {"2 batches": (24, 2), "9 batches": (24, 9), "12 batches, stopped early": (40, 12)}
AHEAD = 4
READ_IN_STEPS = 3  # in the timed runs


def _parameters(rng: Any, width: int) -> dict[str, Any]:
    """float32 parameters of the two-layer network; (16, width), (width,), (width, 4)."""
    import jax
    import numpy as np

    shapes = {"w1": (16, width), "b1": (width,), "w2": (width, 4)}
    drawn = {k: (rng.standard_normal(s) / 8).astype(np.float32) for k, s in shapes.items()}
    placed: dict[str, Any] = jax.device_put(drawn, jax.devices()[0])
    return placed


def _batch(rng: Any, rows: int) -> tuple[Any, Any]:
    """One batch in NumPy: inputs (rows, 16), targets (rows, 4), float32."""
    import numpy as np

    inputs = rng.standard_normal((rows, 16)).astype(np.float32)
    return inputs, np.tanh(inputs[:, :4])


def _put(batch: Any) -> Any:
    import jax

    return jax.device_put(batch, jax.devices()[0])


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Train to the end, of few batches too, and until `stop` ends it somewhere in the middle."""
    early = int(rng.integers(4, 8))
    for name, (width, count) in RUNS.items():
        params = _parameters(rng, width)
        batches = [_batch(rng, width) for _ in range(count)]
        book = Book(observe, batches, submission.sgd_step, _put)
        stop = book.stopping(early if "stopped" in name else count)
        with observe.phase(name):
            trained = submission.train(book.step, params, count, book.ask, book.put, stop)
        params, losses = unpack(trained, 2, PROMISE)
        observe.value(f"params after {name}", params)
        observe.value(f"losses of {name}", losses)
        book.keep(name)


def _paced(submission: ModuleType, rng: Any) -> tuple[Callable[..., Any], Any, list[Any]]:
    """A step that takes some milliseconds, its parameters and NumPy batches."""
    import jax

    from grader.probes.staged_step import staged

    on_cpu = jax.default_backend() == "cpu"
    width, rows = (24, 32) if on_cpu else (32768, 8192)
    step = staged(submission.sgd_step) if on_cpu else submission.sgd_step
    return step, _parameters(rng, width), [_batch(rng, rows) for _ in range(2)]


def seconds_of_a_step(submission: ModuleType, rng: Any) -> float:
    """Seconds one step takes now, its batch copied and its loss read, and nothing else."""
    import jax

    step, params, batches = _paced(submission, rng)
    placed = _put(batches)
    jax.block_until_ready(step(params, placed[0]))
    start = time.perf_counter()
    for batch in placed:
        params, loss = step(params, batch)
        float(loss)
    return (time.perf_counter() - start) / len(placed)


def pace(submission: ModuleType, rng: Any, steps: int, unit: float) -> Callable[[], list[float]]:
    """A run of `steps` steps whose reads each take as long as three steps.

    A sleep stands for the disk or the bus: the host has nothing to do, and the device could
    work. Ahead of time, a run takes what its steps take; one by one, four times that. The
    first read is not counted: any loop waits for it.
    """
    step, params, batches = _paced(submission, rng)

    def ask(index: int) -> Future:
        now = time.perf_counter()
        return Future(batches[index % 2], now + READ_IN_STEPS * unit, lambda: None)

    def run() -> list[float]:
        given = step, params, steps, ask, _put, lambda _: False
        _, losses = submission.train(*given)
        return [float(loss) for loss in losses]

    return run


def naive(step: Any, params: Any, count: int, ask: Any, put: Any, stop: Any) -> Any:
    """The loop this exercise is about: read, copy, compute, one after the other."""
    losses: list[float] = []
    for index in range(count):
        params, loss = step(params, put(ask(index).result()))
        losses.append(float(loss))
        if stop(losses[-1]):
            break
    return params, losses


EXERCISE = Exercise(
    title="Have the next batch on its way",
    lesson="lessons/15-host-memory-and-pinned-transfers",
    anchor="the-order-of-lines-decides",
    edits=("train",),
    drive=drive,
    loop_timing=LoopTiming(
        at_most=1.75,
        pace=pace,
        unit=seconds_of_a_step,
        naive=naive,
        function="train",
        apart=lambda _: READ_IN_STEPS,
        window_seconds=0.042,
    ),
    hints=(
        "`ask`, `put` and `step` return before their work is done. `.result()` and float() "
        "wait. Which work is under way while the loop waits for a loss?",
        "Between the call of `step` and the read of its loss, the host is free: ask for one "
        "more batch there, and put the next one.",
        "Before the loop, ask for AHEAD batches and put the first. In the loop: step, ask for "
        "one more, put the oldest of those asked for, and only then float(loss).",
    ),
)


def _failure(record: Record, name: str, expected: str, observed: str) -> Failure:
    return Failure(expected, f"{observed} (run of {name})", definition(record, "train"))


@EXERCISE.check(ground="observed")
def stops_in_time(record: Record) -> Result:
    """`stop` gets the loss of each step, a float, before the next step begins."""
    found = next(filter(None, (unjudged(record, name) for name in RUNS)), None)
    return found and Failure(*found, definition(record, "train"))


@EXERCISE.check(
    ground="observed",
    after=("stops_in_time",),
    hints=("Towards the end nothing is left to ask for, but batches still wait their turn.",),
)
def same_results(record: Record) -> Result:
    """The losses and the parameters are the reference's."""
    for name in RUNS:
        for leaf in seen(record).values[f"losses of {name}"]:
            if leaf.type not in FLOATS:
                return Failure("losses are floats", f"`losses{leaf.path}` is a {leaf.type}")
        for what in ("losses of", "params after"):
            failure = differing_leaf(record, f"{what} {name}", rtol=1e-4, atol=1e-5)
            if failure:
                return _with_batches(record, failure, name)
    return None


def _with_batches(record: Record, failure: Failure, name: str) -> Failure:
    """Name the batches that got no step."""
    trained = indices(calls_of(record, name), "step")
    theirs = indices([(what, i) for what, i in wanted(record).facts[f"calls of {name}"]], "step")
    missing = [str(index) for index in theirs if index not in trained]
    if not missing or -1 in trained:
        return failure
    observed = f"{failure.observed}; no step was run on batch {', '.join(missing)}"
    return Failure(failure.expected, observed, definition(record, "train"))


@EXERCISE.check(
    ground="observed",
    after=("same_results",),
    hints=(
        "A NumPy batch is copied when the step is called: too late to overlap anything.",
        "Give `step` what `put` returned, and keep what you asked for until it is used.",
    ),
)
def each_batch_once(record: Record) -> Result:
    """Each batch is asked for once and put once, and its step gets what `put` returned."""
    for name in RUNS:
        calls = calls_of(record, name)
        for index, trained in enumerate(indices(calls, "step")):
            if trained != index:
                expected = f"step {index} gets what `put` returned for batch {index}"
                got = f"batch {trained}'s" if trained >= 0 else "a batch that `put` never returned"
                return _failure(record, name, expected, f"it got {got}")
        for what, verb in (("ask", "asked for"), ("put", "put")):
            found = indices(calls, what)
            again = next((i for i in found if found.count(i) > 1), None)
            if again is not None:
                observed = f"batch {again} is {verb} {found.count(again)} times"
                return _failure(record, name, f"each batch is {verb} once", observed)
    return None


@EXERCISE.check(
    ground="observed",
    after=("each_batch_once",),
    hints=(
        "Memory of the host is finite: a run of a million batches must not read them all first.",
        "Ask for one more batch each time that one has been trained on.",
    ),
    anchor="a-few-ahead",
)
def few_batches_are_held(record: Record) -> Result:
    """At most AHEAD batches are asked for and not yet trained on."""
    for name in RUNS:
        if (most := most_ahead(calls_of(record, name), "ask")) > AHEAD:
            return _failure(record, name, f"at most {AHEAD} at any time", f"{most} at one time")
    return None


@EXERCISE.check(
    ground="observed",
    after=("each_batch_once",),
    hints=(
        "One read takes as long as three steps. How many must be under way at the same time, "
        "so that one is done at each step?",
        "Before the first step, ask for the first AHEAD batches; keep the futures in a list.",
    ),
    anchor="a-few-ahead",
)
def reads_are_under_way(record: Record) -> Result:
    """When a step begins, at least two batches after its own have been asked for."""
    for name, (_, count) in RUNS.items():
        calls = calls_of(record, name)
        for place, (what, index) in enumerate(calls):
            needed = min(count, index + 3)
            found = len(indices(calls[:place], "ask"))
            if what == "step" and found < needed:
                expected = f"when step {index} begins, batches 0 to {needed - 1} are asked for"
                return _failure(record, name, expected, f"{found} of these {needed} are")
    return None


@EXERCISE.check(
    ground="observed",
    after=("reads_are_under_way",),
    hints=(
        "float(loss) waits for the step. What is not begun before it begins after the step.",
        "A generator runs only when it is asked for its next value: after the wait.",
        "Put the next batch on a line between `step(...)` and float(loss).",
    ),
)
def copied_before_the_wait(record: Record) -> Result:
    """The next batch sets out for the device before the loop waits for a loss."""
    found = [stall for name in RUNS for stall in stalls(record, name, RUNS[name][1])]
    if not found:
        return probe_gap(seen(record), "reads")
    steps = [step for step, event in found if event is None] or [step for step, _ in found]
    return Failure(
        f"batch {steps[0] + 1} is put before the loop waits for the loss of step {steps[0]}",
        f"it was put after it; so at {plural(len(steps), 'step')} of {len(RUNS)} runs",
        culprits(record, [event for _, event in found if event]) or definition(record, "train"),
    )


@EXERCISE.check(
    ground="timing",
    after=("copied_before_the_wait", "few_batches_are_held"),
    hints=(
        "A read takes as long as three steps. Does the loop ever wait for one from its start?",
        "Keep futures, not batches: .result() at once after `ask` waits out the whole read.",
    ),
    anchor="a-few-ahead",
)
def as_fast_as_the_reference(record: Record) -> Result:
    """Beyond the first read, the loop takes at most 1.75 times the reference's time."""
    return timing_result(record, "loop", "a step")
