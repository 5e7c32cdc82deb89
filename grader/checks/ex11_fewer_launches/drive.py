"""Drives ex11_fewer_launches: counts launches, reads what is compiled, and times runs.

No program is exported here. An export makes one program of any function, even of the loop that this
exercise is about, so launches are counted where they happen: in each run. What the first run with
its number of steps compiles is read, too: it shows whether the text of the program grows with the
number of steps.

Drawn: the numbers of steps (8 short ones, of which one is 1, and 8 long, of which one is 100, 4
follow each other, and one is above 1000); how many runs each has, one that compiles and at least
one more, about 80 in all, in drawn order, and for which of them the second run follows the first at
once; the number of pendulums for each number of steps, whether their arrays are committed to their
device, and their starts: wide swings, small ones, and some that turn over and over, in both
directions, from any angle; one begins at 0, and one without speed. With one number of steps there
is a single pendulum, with another there are less than 64, and with a third as many as steps. Of the
runs with one number of steps, every second one gets the very arrays of the first; if there are so
many, the third one begins at rest, and the fifth with a pendulum that is lost. In the end, one
of the numbers has a run of more pendulums, which may compile again, and then one of as many as
before. With one of the short numbers, a run goes on from the state that another one returned, and
with one of them, angles and speeds are a single array. Where the file names numbers, one run has
the most steps that the page allows, another more pendulums than each of them that is below
MOST_PENDULUMS, and there are more runs, up to MOST_RUNS, and more numbers of steps, up to
MOST_NUMBERS; some runs have exactly a named number of steps, or of pendulums. A step of a timed
window is a run of each of two lengths, drawn as those of short runs are, once for all windows of a
comparison.
"""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from grader.checks.ex11_fewer_launches.facts import (
    AGAIN,
    AT_REST,
    BY_OLD_SPEED,
    COMMITTED,
    FEW,
    FIRST,
    GIVEN,
    GOING_ON,
    LOST,
    RETURNED,
    WEAK,
    Run,
    phase_of,
    state_after,
)
from grader.probes import launches
from grader.probes.observe import Misused, Observe, Stretch, unpack
from grader.stages.drawn import beside, beyond, named, one_of

PROMISE = "`simulate` returns (angle, speed)"
PARTS = ("angle", "speed")
IN_ONE = "and its caller launches programs to take that apart"
PENDULUMS, MORE_PENDULUMS, FEW_PENDULUMS = (64, 128), (128, 160), (2, 64)
"""From how many pendulums on, and below how many, a run has; one that has another number of
them than all others with its number of steps; and the runs with one number of steps."""
STEPS = (
    (range(2, FEW), 1),
    (range(FEW, 10), 1),
    (range(10, 100), 5),
    (range(160, 450), 1),
    (range(450, 1001), 1),
    (range(1001, 1501), 1),
)
"""Numbers of steps that a run may have, and how many of them are drawn. The last is
above what people write for a fixed number of rounds."""
MIDDLE, IN_A_ROW = (101, 150), 4
"""From how many steps on, and below how many, the first of some runs has. The next one has one more
each, so that no small period hides."""
ALWAYS = (1, 100)
"""Numbers of steps that are there in any case."""
SHORT = 100
"""Runs with fewer steps are made many times: they cost little."""
MOST_STEPS = 1500
"""The most steps that the page allows."""
MOST_PENDULUMS, MOST_RUNS, MOST_NUMBERS = 8192, 200, 40
"""Up to where runs, and how many of them there are, reach the numbers that the file names."""
TIMED = 2
"""How many lengths timed runs have; each is compiled for."""
SWING, SPEED = 2.4, 0.6
"""The largest angle and speed of a start that swings. With more, a pendulum may come to stand on
its head, where rounding decides what becomes of it."""
ODD = {3: AT_REST, 5: LOST}
"""Which runs with one number of steps begin otherwise than the others, and how."""
TURNING = 4
"""So many times the largest speed is added to that of a pendulum which turns over, and so many
times as large its angle may be."""
ENOUGH = 12
"""So many runs with more than one launch decide: no more are made, as each takes long."""
LOOKED_AT = 8
"""Timed runs of a window, at most, whose results are compared."""


def _start(
    rng: Any, pendulums: int, *, committed: bool = False, began: str = ""
) -> tuple[Any, Any]:
    """Angles and speeds of the pendulums, float32 (pendulums,), on the device.

    One in eight turns over and over, unless they begin as `began` says.
    """
    angle, speed = (rng.uniform(-most, most, pendulums) for most in (SWING, SPEED))
    if pendulums > 1:
        angle[int(rng.integers(pendulums))] = speed[int(rng.integers(pendulums))] = 0
    turning = (rng.permutation(pendulums) < pendulums // 8) & (speed != 0)
    angle *= np.where(turning, TURNING, 1)
    speed += np.sign(speed) * TURNING * SPEED * turning
    if began == AT_REST:
        speed[:] = 0
    if began == LOST:
        for array in (angle, speed):
            array[int(rng.integers(pendulums))] = np.nan
    arrays = tuple(x.astype(np.float32) for x in (angle, speed))
    placed: tuple[Any, Any] = jax.device_put(arrays, jax.devices()[0] if committed else None)
    return placed


class _Starts:
    """The start of each run: of its own, or, of every second run, the arrays of the first one."""

    def __init__(self, seed: int, sizes: dict[int, int], committed: set[int]) -> None:
        self._seed, self._sizes, self._committed = seed, sizes, committed
        self._first: dict[int, tuple[Any, Any]] = {}

    def of(self, run: Run) -> tuple[Any, Any]:
        """Angles and speeds; new arrays with the same numbers if `simulate` deleted the first."""
        number = run.number if run.number % 2 else 1
        run.began = ODD.get(number, "")
        first = self._first.get(run.steps)
        if number == 1 and first and not any(array.is_deleted() for array in first):
            return first
        rng = np.random.default_rng((self._seed, run.steps, number))
        committed = run.steps in self._committed
        start = _start(rng, self._sizes[run.steps], committed=committed, began=run.began)
        if number == 1:
            self._first[run.steps] = start
        return start


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Make a first run for each number of steps, and more runs in drawn order.

    After a program that holds each step, no longer one is asked for: to compile it takes too long.
    When enough runs have launched more than one program, no further one is made.
    """
    with observe.unwatched():
        counter = launches.Counter()
        reader = launches.Reader()
    observe.fact("no counter", counter.problem)
    observe.fact("no text", reader.problem)
    sizes, more = _plan(rng)
    runs: list[Run] = []
    at_once, committed = _some(rng, sizes), _some(rng, sizes)
    starts = _Starts(int(rng.integers(1 << 30)), sizes, committed)
    sizes |= {steps: int(rng.integers(*PENDULUMS)) for steps in ALWAYS}
    kept: list[dict[str, tuple[Any, Any]]] = []

    def run(
        steps: int, phase: str, starts: _Starts = starts, start: tuple[Any, Any] | None = None
    ) -> Run:
        made = Run(steps, sum(run.steps == steps for run in runs) + 1, phase)
        runs.append(made)
        name = state_after(steps, made.number)
        start = start or starts.of(made)
        made.pendulums = start[0].size
        if observe.reference and steps >= FEW:
            _slips(observe, start, steps, name)
        simulate = partial(submission.simulate, *start, steps)
        if phase == FIRST:
            simulate = partial(reader.read, simulate)
        with observe.phase(phase_of(phase, len(runs))):
            state, (made.launches, made.functions) = counter.count(simulate)
        if phase == FIRST:
            state, (made.operations, made.told) = state
        angle, speed = _both(state)
        observe.value(name, {"angle": angle, "speed": speed})
        made.deleted = _deleted(start)
        kept.append({GIVEN: start, RETURNED: (angle, speed)})
        return made

    first = _first_runs(run, sorted(sizes), at_once)
    for steps in filter(first.__contains__, [*more, *ALWAYS]):
        if sum(one.launches > 1 for one in runs) >= ENOUGH:
            break
        run(steps, AGAIN)
    else:
        with observe.unwatched():
            right = len(first) == len(sizes) and all(map(_is_right, runs, kept))
        some = rng.permutation([n for n in first if n < SHORT or not named(rng)])[:right]
        longer = {int(n): int(rng.integers(*MORE_PENDULUMS)) for n in some}
        longer = {n: beyond(rng, most, MOST_PENDULUMS, each=1) for n, most in longer.items()}
        for steps in longer:
            run(steps, FIRST, _Starts(int(rng.integers(1 << 30)), longer, committed))
            run(steps, AGAIN)
        if right:
            last = dict(zip((one.steps for one in runs), kept, strict=True))
            of_committed = {sizes[steps] for steps in committed}  # they have programs for these
            steps, other = _two_short(beside(rng), first, sizes, of_committed)
            state, (_, speed) = last[steps][RETURNED], last[other][GIVEN]
            run(steps, GOING_ON, start=state).came_back = _odd(state)
            run(other, AGAIN, start=(speed, speed))
    for made, arrays in zip(runs, kept, strict=True):
        gone = {word: _deleted(pair) for word, pair in arrays.items()}
        made.later = {word: names for word, names in gone.items() if names and not made.deleted}
    observe.fact("runs", msgspec.to_builtins(runs))


def _both(state: Any) -> tuple[Any, Any]:
    """Angle and speed, of what `simulate` returned.

    Raises:
      Misused: it is something else.
    """
    if isinstance(state, jax.Array) and state.ndim == 2:
        observed = f"it returned one array of shape {state.shape}, {IN_ONE}"
        raise Misused(PROMISE, observed)
    angle, speed = unpack(state, len(PARTS), PROMISE)
    return angle, speed


def _two_short(
    rng: Any, numbers: list[int], sizes: dict[int, int], apart: set[int]
) -> tuple[int, int]:
    """Two short numbers of steps, of which the first has a size that is not one of those apart."""
    short = [steps for steps in numbers if steps < SHORT]
    free = [steps for steps in short if sizes[steps] not in apart]
    return int(rng.choice(free or short)), int(rng.choice(short))


def _odd(state: tuple[Any, Any]) -> str:
    """What is odd about a state that came back for a start that was not committed; or ""."""
    arrays = [array for array in state if isinstance(array, jax.Array)]
    if any(array.committed for array in arrays):
        return COMMITTED
    return WEAK if any(array.weak_type for array in arrays) else ""


def _first_runs(run: Callable[[int, str], Run], numbers: list[int], at_once: set[int]) -> list[int]:
    """Make the first run with each number of steps, up to one whose program holds all its steps.

    Returns the numbers that had one. After some, the next run with that number follows `at_once`.
    """
    for count, steps in enumerate(numbers, 1):
        if run(steps, FIRST).is_unrolled:
            return numbers[:count]
        if steps in at_once:
            run(steps, AGAIN)
    return numbers


def _is_right(run: Run, arrays: dict[str, tuple[Any, Any]]) -> bool:
    """Whether the state of a short run is about right, so that other lengths may be asked for."""
    if run.steps >= SHORT:
        return True
    if any(map(_deleted, arrays.values())):
        return False
    state = tuple(map(np.asarray, arrays[GIVEN]))
    for _ in range(run.steps):
        state = _step(*state)
    return all(map(partial(_near, run.steps), arrays[RETURNED], state))


def _near(steps: int, mine: Any, right: Any) -> bool:
    """Whether an angle or a speed is that of a run of so many steps, but for rounding."""
    return np.shape(mine) == right.shape and np.allclose(
        mine, right, rtol=1e-3, atol=1e-5 * steps, equal_nan=True
    )


def _deleted(pair: tuple[Any, Any]) -> list[str]:
    """Which of an angle and a speed are deleted."""
    named = zip(PARTS, pair, strict=True)
    return [name for name, array in named if isinstance(array, jax.Array) and array.is_deleted()]


def _plan(rng: Any) -> tuple[dict[int, int], list[int]]:
    """The pendulums for each number of steps, in growing order, and the steps of all later runs."""
    some = {int(n) for numbers, many in STEPS for n in rng.choice(numbers, many, replace=False)}
    some |= {one_of(rng, n, range(1, MOST_STEPS + 1)) for n in sorted(some)} - {*ALWAYS}
    some |= {MOST_STEPS} if named(rng) else set()
    middle = int(rng.integers(*MIDDLE))
    some |= {*range(middle, middle + IN_A_ROW)}
    many = beyond(rng, len(some | {*ALWAYS}), MOST_NUMBERS) - len(some | {*ALWAYS})
    others = [n for n in range(2, MIDDLE[1]) if n not in some | {*ALWAYS}]
    some |= {int(n) for n in rng.choice(others, many, replace=False)} if many else set()
    sizes = {
        n: one_of(rng, int(rng.integers(*PENDULUMS)), range(1, MORE_PENDULUMS[1])) for n in some
    }
    few, same = middle + 1, middle + 2
    sizes |= {middle: 1, few: int(rng.integers(*FEW_PENDULUMS)), same: same}
    short = [steps for steps in sizes if steps < SHORT]
    more = [*sizes, *rng.choice(short, beyond(rng, int(rng.integers(40, 70)), MOST_RUNS))]
    return dict(sorted(sizes.items())), [int(steps) for steps in rng.permutation(more)]


def _some(rng: Any, sizes: dict[int, int]) -> set[int]:
    """Half of the numbers of steps."""
    return {int(n) for n in rng.permutation([*sizes])[: len(sizes) // 2]}


def _timed(rng: Any) -> list[tuple[int, int]]:
    """The steps and pendulums of timed runs."""
    lengths = rng.choice(range(10, SHORT), TIMED, replace=False)
    return [(int(steps), int(rng.integers(*PENDULUMS))) for steps in lengths]


def _slips(observe: Observe, arrays: tuple[Any, Any], steps: int, name: str) -> None:
    """Keep what known mistakes would give.

    They are a step too few, one too many, twice as many, no step, one step only, an exchange before
    or after each step or before the first, and an angle that moves by the speed before the step,
    where the speed changes by the old angle, or by the new one.
    """
    with observe.unwatched():
        angle, speed = map(np.asarray, arrays)
        start, turned = (angle, speed), (speed, angle)
        exchanged = "what comes of angle and speed that are exchanged "
        for words, begin, count, step in (
            ("the start: no step was made", start, 0, _step),
            ("the state one step short", start, steps - 1, _step),
            ("the state one step too far", start, steps + 1, _step),
            ("the state after twice as many steps", start, 2 * steps, _step),
            ("the state after a single step: each step gets the start", start, 1, _step),
            (f"{exchanged}in each step", start, steps, lambda a, s: _step(a, s)[::-1]),
            (f"{exchanged}where `step` is called", start, steps, lambda a, s: _step(s, a)),
            (f"{exchanged}at the start", turned, steps, _step),
            (BY_OLD_SPEED, start, steps, lambda a, s: (_moved(a, s), _step(a, s)[1])),
            (
                f"{BY_OLD_SPEED}, and a speed that changes by the new angle",
                start,
                steps,
                lambda a, s: (_moved(a, s), _step(_moved(a, s), s)[1]),
            ),
        ):
            angle, speed = begin
            for _ in range(count):
                angle, speed = step(angle, speed)
            observe.value(f"{name}, {words}", {"angle": angle, "speed": speed})


def _step(angle: Any, speed: Any) -> tuple[Any, Any]:
    """The file's step, in NumPy."""
    speed = speed - np.float32(0.01) * np.sin(angle)
    return _moved(angle, speed), speed


def _moved(angle: Any, speed: Any) -> Any:
    """Where a speed brings the angle in one step."""
    return angle + np.float32(0.01) * speed


def seconds_of_a_step(submission: ModuleType, rng: Any) -> float:
    """No time: a window here does not depend on how long a step takes."""
    return 0.0


def pace(submission: ModuleType, stretch: Stretch) -> Callable[[], list[float]]:
    """Simulations of all lengths in each step, from at most 32 different starts."""
    timed, rng = _timed(stretch.alike), stretch.rng
    steps = stretch.steps * len(timed)
    many = min(steps, 32)
    starts = [_start(rng, timed[index % len(timed)][1]) for index in range(many)]
    for index, (length, _) in enumerate(timed):  # a program for each length is compiled here
        jax.block_until_ready(submission.simulate(*starts[index], length))
    looked_at = rng.choice(steps, min(steps, LOOKED_AT), replace=False).tolist()

    def run() -> list[float]:
        ends = [
            submission.simulate(*starts[index % len(starts)], timed[index % len(timed)][0])
            for index in range(steps)
        ]
        states = {n: [np.asarray(part) for part in ends[n]] for n in looked_at}
        return [float(part[n % part.size]) for n, state in states.items() for part in state]

    return run


def naive(angle: Any, speed: Any, steps: int) -> Any:
    """The loop that this exercise is about: each operation is a launch."""
    for _ in range(steps):
        speed = speed - 0.01 * jnp.sin(angle)
        angle = angle + 0.01 * speed
    return angle, speed
