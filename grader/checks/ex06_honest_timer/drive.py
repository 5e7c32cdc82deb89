"""Drives ex06_honest_timer: has staged programs timed, by a staged clock.

Program and clock are staged (`grader.stages.clock`), so that the costs are known, and the load of
this machine makes no difference. A copy to the device that nobody waited for is made while the
clock runs, as a large one is on a GPU. Each program stages what another mistake overlooks; see
`ProgramName` in `facts`.

Drawn: the order of the programs, for each the number of calls (5 to 9; for three of them, 20 to 39)
and what it costs, and how the work of three of them differs from call to call. In one, which gets
few calls, a drawn call takes most of the time, so that the mean of fewer calls is never near the
mean of all. Of two that get many, all calls of one take about as long, and none takes the mean; of
the other, a drawn call takes a fifth of the time of all others. One program is timed twice, with
other inputs. Calls and readings of the clock are marked, so that a wait between the last two is
told from a wait before.
"""

import math
from types import ModuleType
from typing import Any, get_args

import jax
import msgspec
import numpy as np

from grader.checks.ex06_honest_timer.facts import (
    THROUGH_HOST,
    TIMINGS,
    ProgramName,
    TimedProgram,
    phase,
)
from grader.probes import dumped
from grader.probes.observe import Misused, Observe
from grader.stages import clock

CALLS, MANY = (5, 10), (20, 40)
"""How many calls a program gets, at least, and below which number."""
TWICE, AGAIN = get_args(ProgramName)[0], get_args(ProgramName)[-1]
"""The program that is timed twice, and what it is called the second time."""
OFTEN: tuple[ProgramName, ...] = ("often", "varied", "outlier")
"""The programs that get many calls."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Have each staged program timed once."""
    with observe.unwatched():
        busy = clock.rounds()
    timings, through = [], 0
    names = rng.permutation([name for name in get_args(ProgramName) if name != AGAIN]).tolist()
    names.insert(rng.integers(names.index(TWICE) + 1, len(names) + 1), AGAIN)
    kept: dict[str, _Marked] = {}
    for name in names:
        often = name in OFTEN
        calls = int(rng.integers(*(MANY if often else CALLS)))
        # One share for each call: only then is the mean over all calls the work.
        shares = _shares(name, rng, calls)
        work = busy // 4 if often else busy
        if name == AGAIN:
            marked = kept[TWICE]
            marked.start_again(shares)
        else:
            staged = clock.Staged(_cost(name, rng), work, shares, swapped=name == "swapped")
            marked = kept[name] = _Marked(observe, staged)
        staged = marked.staged
        args = staged.arguments(rng)
        with (
            dumped.programs() as texts,
            staged.counting_polls(),
            observe.waits(marked.told),
            observe.phase(phase(name)),
        ):
            figure = submission.seconds_per_call(marked.function, args, calls, marked.clock)
        through += sum(map(dumped.uses_the_host, texts))
        timings.append(
            TimedProgram(
                name,
                staged.cost,
                shares,
                calls,
                _number(figure),
                *staged.history,
                marked.last_call,
                marked.last_reading,
                sorted(marked.awaited),
                marked.after_it,
            )
        )
    observe.fact(THROUGH_HOST, through)
    observe.fact(TIMINGS, msgspec.to_builtins(timings))


class _Marked:
    """A staged program and its clock, with a mark at each call and at each reading."""

    def __init__(self, observe: Observe, staged: clock.Staged) -> None:
        self._observe, self.staged = observe, staged
        self._start()

    def _start(self) -> None:
        self._step = self._call = self.last_call = self.last_reading = 0
        self._result: dict[str, Any] = {}
        self._older: list[Any] = []
        """The arrays that there were before the last call, and its results."""
        self._awaited: set[str] = set()
        self._after_it = self._reading = False
        self.awaited: set[str] = set()
        self.after_it = False

    def start_again(self, shares: list[float]) -> None:
        """Forget what was seen, and begin another timing of the same function."""
        self.staged.timed_again(shares)
        self._start()

    def function(self, left: Any, right: Any, other: Any) -> dict[str, Any]:
        """Call the program."""
        self._call = self._mark()
        self._awaited, self._after_it = set(), False
        result = self.staged.program(left, right, other)
        arrays = {k: x for k, x in result.items() if not isinstance(x, jax.core.Tracer)}
        self._result, self._older = arrays, jax.live_arrays()
        return result

    def told(self, arrays: list[Any]) -> None:
        """Note for what the timer waits: results of the last call, or what comes after them."""
        if self._reading:  # the clock asks, not the timer
            return
        arrays = [array for array in arrays if self.staged.is_there(array)]
        self.staged.arrived(arrays)
        done = {name for name, one in self._result.items() if self.staged.is_there(one)}
        self._awaited |= {n for n in done if any(self._result[n] is one for one in arrays)}
        new = any(all(one is not old for old in self._older) for one in arrays)
        self._after_it |= new and done == self._result.keys()

    def clock(self) -> float:
        """Read the clock."""
        self.last_call, self.last_reading = self._call, self._mark()
        self.awaited, self.after_it = set(self._awaited), self._after_it
        self._reading = True
        try:
            return self.staged.clock()
        finally:
            self._reading = False

    def _mark(self) -> int:
        self._observe.mark()
        self._step += 1
        return self._step


def _shares(name: ProgramName, rng: Any, calls: int) -> list[float]:
    """The work of each call, as a share of their mean.

    In `uneven`, one call takes most of the time, so that the mean of fewer calls, whichever they
    are, is at least 0.7 / (calls - 1) away from the mean of all. In `varied`, half of the calls
    take some more than the others, so that no single call takes the mean. In `outlier`, one takes a
    fifth of the time of all the others.
    """
    if name == "uneven":
        shares = rng.uniform(0.1, 0.3, calls)
        shares[rng.integers(calls)] += calls - shares.sum()
    elif name == "varied":
        shares = rng.permutation(np.where(np.arange(calls) % 2, 1.0, rng.uniform(1.3, 1.7)))
        shares *= calls / shares.sum()
    elif name == "outlier":
        shares = np.full(calls, 5 * calls / (6 * (calls - 1)))
        shares[rng.integers(calls)] = calls / 6
    else:
        return [1.0]
    return [float(share) for share in shares]


UNITS: dict[ProgramName, float] = {"uneven": 1e-6, "varied": 1e-7}


def _cost(name: ProgramName, rng: Any) -> dict[str, float]:
    """What a program costs, in seconds: its work, its dispatch, and what it is named for."""
    work = float(rng.uniform(0.02, 0.09))
    if name in UNITS:  # some units and a half: a figure that is rounded to units is wrong
        work = (int(rng.integers(2, 9)) + 0.5) * UNITS[name]
    cost = {"work": work, "dispatch": work / 200, "compiling": 0.0, "copy": 0.0}
    if name == "compiling":
        cost["compiling"] = 30 * work
    if name == "copy":
        cost["copy"] = work / 2
    return cost


def _number(figure: Any) -> float:
    """The figure as a float.

    Raises:
      Misused: it is not a number of Python's or NumPy's.
    """
    promise = "`seconds_per_call` returns a float"
    if isinstance(figure, float | int | np.floating) and not isinstance(figure, bool):
        try:
            number = float(figure)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise Misused(promise, f"it returned {number}, which is no time")
        return number
    if figure is None:
        raise Misused(promise, "it returned None")
    kind = "jax.Array" if isinstance(figure, jax.Array) else type(figure).__name__
    raise Misused(promise, f"it returned a {kind}")
