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
from typing import Literal

import msgspec

from grader.course.catalog import Entry
from grader.judging import timing
from grader.records.record import Outcome, Timing
from grader.running.messages import Done, PaceJob, Turn
from grader.running.process import Failed, Worker
from grader.running.session import Session

CHECKED_WINDOWS = 3
TOLERANCE = 1e-3
LEAST = 1e-9
"""Seconds. A window counts as at least this long."""
UNITS = 5
"""The unit is the median of this many latest measurements."""
WINDOW_SECONDS = 15.0
"""A window is meant to take some hundredths of a second. One that takes this long is given up."""
_ITS_OWN = ("raised", "exited", "unusable", "timeout", "flooded", "garbled")
"""Ends that a submission brings about itself. What was killed may have been short of memory."""


class Stumbled(Exception):
    """One side failed during a window."""

    def __init__(self, side: "Runner", outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.side, self.outcome = side, outcome


class Runner:
    """One side of the comparison: a `timing.Window` over a worker."""

    def __init__(
        self, worker: Worker, seconds: float, rng: random.Random, *, is_mine: bool
    ) -> None:
        self.is_mine = is_mine
        """Whether it is the submission's."""
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
        done = self._ask(Turn("go"), WINDOW_SECONDS)
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

    def _ask(self, message: msgspec.Struct, most: float = math.inf) -> Done:
        try:
            answer = self._worker.ask(message, min(self._seconds, most))
            done = msgspec.json.decode(answer, type=Done)
        except Failed as error:
            raise Stumbled(self, error.outcome) from error
        except msgspec.DecodeError as error:
            raise Stumbled(self, Outcome("garbled", str(error))) from error
        if done.problem is not None:
            raise Stumbled(self, done.problem.outcome)
        return done


def duel(entry: Entry, mine: PaceJob, session: Session, platform: str, devices: int) -> Timing:
    """Time a submission's loop against the reference's, controls first.

    A submission that ends a timed run, and ended none that was watched, is not as fast.
    """
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
            side = Runner(prepared.worker, session.options.timeout, rng, is_mine=hide)
            side.begin(job)
            return side

        try:
            with ThreadPoolExecutor(3) as pool:
                # In this order: where all stumble, no submission is to blame.
                theirs, slow, own = pool.map(runner, (reference, naive, mine))
            theirs.measure()
            result = timing.with_controls(
                *(side.against(theirs, wanted.apart) for side in (own, theirs, slow)),
                k=wanted.at_most,
                rng=rng,
                target_seconds=wanted.window_seconds,
            )
            return _with_results_checked(result, own, theirs, rng)
        except Stumbled as error:
            return _ended_early(error, wanted.at_most)


def _ended_early(error: Stumbled, k: float) -> Timing:
    """What a comparison says that one side has ended."""
    is_its_own = error.side.is_mine and error.outcome.kind in _ITS_OWN
    verdict: Literal["fail", "undecided"] = "fail" if is_its_own else "undecided"
    frames = error.outcome.frames
    line = f" (line {frames[-1].line})" if frames else ""
    reason = f"a timed run ended early: {error}{line}"
    return Timing(verdict, k, 0, 0, 0.0, (0.0, 0.0), reason=reason)


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
