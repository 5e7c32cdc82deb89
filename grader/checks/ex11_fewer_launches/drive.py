"""Drives ex11_fewer_launches: counts launches, reads what is compiled, and times runs.

No program is exported here. An export makes one program of any function, even of the
loop that this exercise is about, so launches are counted where they happen: in the second
of two runs with the same number of steps, when the program should be compiled already. Three
numbers of steps tell a constant number of launches from one that grows. Two long runs, one
twice as long as the other, show whether the text of the program grows.

Drawn: the steps of the counted runs (5 to 9, 20 to 39, and 101 to 249, no multiple of 12), those
of the long ones (120 to 144, and twice as many), the number of pendulums and their starts. The runs
of a timed window have all lengths of TIMED_STEPS in turn, in an order that is drawn, so that every
window holds as much work as another.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from grader.checks.ex11_fewer_launches.facts import Length, Run, deleted_after, state_after
from grader.probes import launches
from grader.probes.observe import Observe, unpack

PROMISE = "`simulate` returns (angle, speed)"
PENDULUMS = (64, 128)
"""From how many pendulums on, and below how many, a run has."""
COUNTED = (range(5, 10), range(20, 40), [n for n in range(101, 250) if n % 12])
"""The steps that each counted run may have. The program of a long one must not be there before."""
TIMED_STEPS = range(25, 36)
"""The steps of timed runs: a part of those that counted runs may have."""


def _start(rng: Any, pendulums: int) -> tuple[Any, Any]:
    """Angles and speeds of the pendulums, float32 (pendulums,), on the device."""
    angle, speed = rng.uniform(-1, 1, (2, pendulums)).astype(np.float32)
    placed: tuple[Any, Any] = jax.device_put((angle, speed))
    return placed


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Make two runs for each of three numbers of steps, and two long runs."""
    with observe.unwatched():
        counter = launches.Counter()
        reader = launches.Reader()
    observe.fact("no counter", counter.problem)
    observe.fact("no text", reader.problem)
    runs, lengths, pendulums = [], [], int(rng.integers(*PENDULUMS))
    for steps in (int(rng.choice(numbers)) for numbers in COUNTED):
        with observe.phase("first"):
            submission.simulate(*_start(rng, pendulums), steps)
        with observe.phase("again"):
            counted = _run(submission, observe, _start(rng, pendulums), steps, counter.count)
        runs.append(Run(steps, *counted))
    # A multiple of 12: a loop that is unrolled by 2, 3, 4 or 6 has no remainder.
    long = 12 * int(rng.integers(10, 13))
    for steps in (long, 2 * long):
        with observe.phase("long"):
            start = _start(rng, pendulums)
            length = _run(submission, observe, start, steps, reader.read)
            lengths.append(Length(steps, length))
    observe.fact("runs", msgspec.to_builtins(runs))
    observe.fact("lengths", msgspec.to_builtins(lengths))


def _run(
    submission: ModuleType,
    observe: Observe,
    arrays: tuple[Any, Any],
    steps: int,
    watch: Callable[..., Any],
) -> Any:
    """What `watch`, of a `launches.Counter` or a `launches.Reader`, saw of one run."""
    start = dict(zip(("angle", "speed"), arrays, strict=True))
    _slips(observe, arrays, steps)
    state, seen = watch(lambda: submission.simulate(*start.values(), steps))
    angle, speed = unpack(state, 2, PROMISE)
    observe.value(state_after(steps), {"angle": angle, "speed": speed})
    deleted = [name for name, array in start.items() if array.is_deleted()]
    observe.fact(deleted_after(steps), deleted)
    return seen


def _slips(observe: Observe, arrays: tuple[Any, Any], steps: int) -> None:
    """Keep what one step too few, and one too many, would give."""
    with observe.unwatched():
        start = [np.asarray(array) for array in arrays]
        for count, words in ((steps - 1, "one step short"), (steps + 1, "one step too far")):
            angle, speed = start
            for _ in range(count):
                speed = speed - np.float32(0.01) * np.sin(angle)
                angle = angle + np.float32(0.01) * speed
            name = f"{state_after(steps)}, the state {words}"
            observe.value(name, {"angle": angle, "speed": speed})


def seconds_of_a_step(submission: ModuleType, rng: Any) -> float:
    """No time: a window here does not depend on how long a step takes."""
    return 0.0


def pace(submission: ModuleType, rng: Any, steps: int, unit: float) -> Callable[[], list[float]]:
    """`steps` simulations of TIMED_STEPS steps in turn, from at most 32 different starts."""
    # Always as many pendulums: one window must hold as much work as another.
    starts = [_start(rng, PENDULUMS[0]) for _ in range(min(steps, 32))]
    lengths = rng.permutation(TIMED_STEPS).tolist()
    for length in TIMED_STEPS:  # a program for each number of steps is compiled here
        jax.block_until_ready(submission.simulate(*starts[0], length))

    def run() -> list[float]:
        ends = [
            submission.simulate(*starts[index % len(starts)], lengths[index % len(lengths)])
            for index in range(steps)
        ]
        return [float(angle[0]) for angle, _ in ends[:: max(1, steps // 8)]]

    return run


def naive(angle: Any, speed: Any, steps: int) -> Any:
    """The loop that this exercise is about: each operation is a launch."""
    for _ in range(steps):
        speed = speed - 0.01 * jnp.sin(angle)
        angle = angle + 0.01 * speed
    return angle, speed
