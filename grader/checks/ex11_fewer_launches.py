"""ex11_fewer_launches: a run of many steps is one program, launched once.

No program is exported here: exporting would make one program of any function, also of the
loop this exercise is about. The launches are counted where they happen.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import msgspec

from grader.checking import Exercise, Failure, LoopTiming, Observe, Result, Unable, unpack
from grader.evidence import (
    culprits,
    definition,
    differing_leaf,
    events,
    probe_gap,
    seen,
    timing_result,
)
from grader.record import Record
from grader.words import plural

PROMISE = "`simulate` returns (angle, speed)"
PENDULUMS = 96
TIMED_STEPS = 30


class Run(msgspec.Struct):
    """A run that was not the first of its kind: the programs it launched."""

    steps: int
    launches: int
    functions: list[str]


def _start(rng: Any, count: int = PENDULUMS) -> tuple[Any, Any]:
    """Angles and speeds of `count` pendulums, float32 (count,), on the device."""
    import jax
    import numpy as np

    angle, speed = rng.uniform(-1, 1, (2, count)).astype(np.float32)
    placed: tuple[Any, Any] = jax.device_put((angle, speed))
    return placed


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Run for two numbers of steps, twice each: of the second runs, launches are counted."""
    from grader.probes.launches import Counter

    runs = []
    with observe.unwatched():
        counter = Counter()
    observe.fact("no counter", counter.problem)
    for steps in (int(rng.integers(5, 10)), int(rng.integers(20, 30))):
        with observe.phase("first"):
            submission.simulate(*_start(rng), steps)
        start = _start(rng)
        with observe.phase("again"):
            state, seen = counter.count(lambda: submission.simulate(*start, steps))  # noqa: B023
        runs.append(Run(steps, *seen))
        angle, speed = unpack(state, 2, PROMISE)
        observe.value(f"state {len(runs)}", {"angle": angle, "speed": speed})
    observe.fact("runs", msgspec.to_builtins(runs))


def seconds_of_a_step(submission: ModuleType, rng: Any) -> float:
    """Nothing scales with the time of a step here."""
    return 0.0


def pace(submission: ModuleType, rng: Any, steps: int, unit: float) -> Callable[[], list[float]]:
    """`steps` simulations of TIMED_STEPS steps, each from a start of its own."""
    starts = [_start(rng) for _ in range(min(steps, 32))]

    def run() -> list[float]:
        ends = [
            submission.simulate(*starts[index % len(starts)], TIMED_STEPS) for index in range(steps)
        ]
        return [float(angle[0]) for angle, _ in ends[:: max(1, steps // 8)]]

    return run


def naive(angle: Any, speed: Any, steps: int) -> Any:
    """The loop this exercise is about: each operation is a launch."""
    import jax.numpy as jnp

    for _ in range(steps):
        speed = speed - 0.01 * jnp.sin(angle)
        angle = angle + 0.01 * speed
    return angle, speed


EXERCISE = Exercise(
    title="Many small launches become one",
    lesson="lessons/06-when-the-gpu-pays",
    anchor="many-launches-or-one",
    edits=("simulate",),
    drive=drive,
    loop_timing=LoopTiming(
        at_most=0.1, pace=pace, unit=seconds_of_a_step, naive=naive, function="simulate"
    ),
    hints=(
        "Outside jit, each operation is a program of its own. How many does a step launch?",
        "A loop can be a part of a program: jax.lax.fori_loop and jax.lax.scan.",
        "Write a body that makes one step, jax.lax.fori_loop(0, steps, body, (angle, speed)), "
        "and @jax.jit on the function that holds the loop.",
    ),
)


def _runs(record: Record) -> list[Run]:
    return msgspec.convert(seen(record).facts.get("runs", []), list[Run])


@EXERCISE.check(ground="observed")
def same_state(record: Record) -> Result:
    """Angles and speeds after the run are the reference's."""
    found = (differing_leaf(record, f"state {n}", rtol=1e-3, atol=1e-5) for n in (1, 2))
    return next((failure for failure in found if failure), None)


@EXERCISE.check(
    ground="observed",
    after=("same_state",),
    hints=(
        "A jitted step makes one launch of a step. And how many steps are there?",
        "The loop itself belongs into the jitted function.",
    ),
)
def one_launch(record: Record) -> Result:
    """A run launches one program, however many steps it has."""
    problem = seen(record).facts.get("no counter")
    if problem:
        return Unable(f"launches could not be counted: {problem}")
    for run in _runs(record):
        if run.launches != 1:
            return Failure(
                f"1 program is launched for a run of {plural(run.steps, 'step')}",
                _launched(run),
                definition(record, "simulate"),
            )
    return None


def _launched(run: Run) -> str:
    """`140 launches, 5 for each step: of add, multiply, sin, subtract`."""
    if not run.launches:
        return "none was launched: nothing was computed by the device"
    each = run.launches / run.steps
    often = f", {each:.3g} for each step" if each >= 1 else ""
    names = f": of {', '.join(run.functions[:6])}" if run.functions else ""
    return f"{run.launches} launches{often}{names}"


@EXERCISE.check(
    ground="observed",
    after=("one_launch",),
    hints=(
        "jax.jit keeps compiled programs by function. A function that is made anew on each call "
        "is unknown on each call.",
        "Make the jitted function once, at the top of the file: a decorator does. "
        "lax.fori_loop and lax.scan outside jit compile their body again when it is a new one.",
    ),
    anchor="compiled-once",
)
def compiled_once(record: Record) -> Result:
    """A second run of as many steps compiles nothing."""
    gap = probe_gap(seen(record), "compiles")
    found = list(events(seen(record), "compile", phase="again"))
    if not found:
        return gap
    names = sorted({event.detail for event in found if event.detail})
    return Failure(
        "a second run of as many steps finds its program compiled",
        f"{plural(sum(e.count for e in found), 'program')} compiled again: {', '.join(names)}",
        culprits(record, found),
    )


@EXERCISE.check(
    ground="timing",
    hints=(
        "One launch, and still slow: what does the program do in each step, besides the step?",
        "A callback leaves the device for Python in each step.",
    ),
)
def ten_times_faster(record: Record) -> Result:
    """A run takes at most a tenth of the time of a loop in Python."""
    return timing_result(record, "loop", "a run")
