"""Times a Python loop that cannot leave its process: the clock is outside.

Submission, reference and naive version each wait in a worker of their own. For each
window this side sends fresh inputs, waits until they are ready, says go, and takes the
time until the results are back. The results of some windows, chosen at random, are
compared with the reference's on the same inputs: a loop that is fast because it is wrong
does not pass.
"""

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import msgspec

from grader.course.catalog import Entry
from grader.judging import timing
from grader.records.record import Timing
from grader.running.messages import Done, PaceJob, Turn
from grader.running.process import Failed, Worker
from grader.running.session import Session

CHECKED_WINDOWS = 3
TOLERANCE = 1e-3
LEAST = 1e-9
"""Seconds. A window counts as at least this long."""
UNITS = 5
"""The unit is the median of this many latest measurements."""


class Stumbled(Exception):
    """One side failed during a window."""


class Runner:
    """One side of the comparison: a `timing.Window` over a worker."""

    def __init__(self, worker: Worker, seconds: float, rng: random.Random) -> None:
        self._worker, self._seconds, self._rng = worker, seconds, rng
        self.results: list[tuple[int, int, Sequence[float | None]]] = []
        self.units: list[float] = []

    def begin(self, job: PaceJob) -> None:
        """Load the file."""
        self._ask(job)

    def measure(self) -> None:
        """Ask for the unit, in seconds, as this machine has it now."""
        seconds = self._ask(Turn("measure", self._seed())).values
        self.units += [one for one in seconds if one is not None]

    def window(self, seed: int, steps: int, unit: float) -> tuple[float, Sequence[float | None]]:
        """Prepare, then time one window; returns seconds and results."""
        self._ask(Turn("prepare", seed, steps, unit))
        start = time.perf_counter()
        done = self._ask(Turn("go"))
        return time.perf_counter() - start, done.values

    def against(self, reference: "Runner", apart: Callable[[int], float]) -> timing.Window:
        """Windows of this side, all scaled by the reference's latest units.

        `apart` is `LoopTiming.apart`: the time that is not counted. A window that is shorter
        than that left out work that every loop must do, and its results will be wrong.
        """

        def run(calls: int, /) -> float:
            if reference is self:
                self.measure()
            seed, unit = self._seed(), statistics.median(reference.units[-UNITS:])
            elapsed, values = self.window(seed, calls, unit)
            self.results.append((seed, calls, values))
            return max(elapsed - apart(calls) * unit, LEAST)

        return run

    def _seed(self) -> int:
        return self._rng.getrandbits(63)

    def _ask(self, message: msgspec.Struct) -> Done:
        try:
            done = msgspec.json.decode(self._worker.ask(message, self._seconds), type=Done)
        except (Failed, msgspec.DecodeError) as error:
            raise Stumbled(str(error)) from error
        if done.problem is not None:
            raise Stumbled(done.problem.outcome.message)
        return done


def duel(entry: Entry, mine: PaceJob, session: Session, platform: str, devices: int) -> Timing:
    """Time a submission's loop against the reference's, controls first."""
    wanted = entry.exercise.loop_timing
    assert wanted is not None
    rng = random.SystemRandom()
    mine = msgspec.structs.replace(mine, seed=rng.getrandbits(63))
    solution = entry.solution.read_text("utf-8")
    reference = PaceJob(entry.drive_module, entry.file_name, solution, seed=mine.seed)
    naive = msgspec.structs.replace(reference, naive=wanted.function)
    with ExitStack() as stack:

        def runner(job: PaceJob) -> Runner:
            hide = job is mine
            prepared = session.prepare(
                platform, devices, observe=False, hide=hide, timed=True, flops=entry.exercise.flops
            )
            stack.callback(session.release, prepared.worker)
            side = Runner(prepared.worker, session.options.timeout, rng)
            side.begin(job)
            return side

        try:
            with ThreadPoolExecutor(3) as pool:
                sides = list(pool.map(runner, (mine, reference, naive)))
            sides[1].measure()
            result = timing.with_controls(
                *(side.against(sides[1], wanted.apart) for side in sides),
                k=wanted.at_most,
                rng=rng,
                target_seconds=wanted.window_seconds,
            )
            return _with_results_checked(result, sides[0], sides[1], rng)
        except Stumbled as error:
            reason = f"a timed run ended early: {error}"
            return Timing("undecided", wanted.at_most, 0, 0, 0.0, (0.0, 0.0), reason=reason)


def _with_results_checked(
    result: Timing, mine: Runner, reference: Runner, rng: random.Random
) -> Timing:
    """A pass stands only if results of timed windows are right."""
    for seed, steps, got in rng.sample(mine.results, min(CHECKED_WINDOWS, len(mine.results))):
        _, expected = reference.window(seed, steps, 0.0)
        if not _same(got, expected):
            reason = f"a timed run of {steps} steps gave other results than the reference"
            return msgspec.structs.replace(result, verdict="fail", reason=reason)
    return result


def _same(got: Sequence[float | None], expected: Sequence[float | None]) -> bool:
    return len(got) == len(expected) and all(map(_near, got, expected))


def _near(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
