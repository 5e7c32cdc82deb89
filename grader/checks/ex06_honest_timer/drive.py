"""Drives ex06_honest_timer: has staged programs timed, by a staged clock.

Program and clock are staged (`grader.stages.clock`), so that the costs are known, and the load
of this machine makes no difference. Each program stages what another mistake overlooks; see
`ProgramName` in `facts`.

Drawn: the order of the programs, for each the number of calls (4 to 9) and what it costs, and
how the work of the uneven one differs from call to call, so that no other figure than the mean
is near the mean.
"""

import math
from types import ModuleType
from typing import Any, get_args

import jax
import msgspec
import numpy as np

from grader.checks.ex06_honest_timer.facts import TIMINGS, ProgramName, TimedProgram
from grader.probes.observe import Misused, Observe
from grader.stages import clock

FAR = 0.08
"""How far all other figures are from the mean, as a share of it."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Have each staged program timed once."""
    with observe.unwatched():
        busy = clock.rounds()
    timings = []
    for name in rng.permutation(get_args(ProgramName)).tolist():
        calls = int(rng.integers(4, 10))  # of more, hardly any shares are far from all figures
        # One share for each call: only then is the mean over all calls the work.
        shares = _shares(rng, calls) if name == "uneven" else [1.0]
        staged = clock.Staged(_cost(name, rng), busy, shares, swapped=name == "swapped")
        args = staged.arguments(rng)
        with staged.counting_polls():
            figure = submission.seconds_per_call(staged.program, args, calls, staged.clock)
        timings.append(
            TimedProgram(name, staged.cost, shares, calls, _number(figure), *staged.history)
        )
    observe.fact(TIMINGS, msgspec.to_builtins(timings))


def _shares(rng: Any, calls: int) -> list[float]:
    """The work of each call: `calls` numbers whose mean is 1, and no other usual figure is."""
    while True:
        drawn = rng.uniform(0.3, 1.0, calls) + 2 * (rng.random(calls) < 0.3)
        shares: list[float] = (drawn / drawn.mean()).tolist()
        if all(abs(figure - 1) > FAR for figure in _other_figures(shares)):
            return shares


def _other_figures(shares: list[float]) -> list[float]:
    """What somebody takes for the mean: the median, a mean of some of the calls, one call."""
    ordered = sorted(shares)
    some = [ordered[1:], ordered[:-1], ordered[1:-1], shares[::2], shares[1::2]]
    for cut in range(1, len(shares)):
        some += [shares[:cut], shares[cut:]]
    middle = (ordered[0] + ordered[-1]) / 2
    root = math.exp(float(np.mean(np.log(shares))))
    means = [float(np.mean(part)) for part in some]
    return [*means, float(np.median(shares)), middle, root, ordered[0], ordered[-1]]


def _cost(name: ProgramName, rng: Any) -> dict[str, float]:
    """What a program costs, in seconds: its work, its dispatch, and what it is named for."""
    work = float(rng.uniform(0.02, 0.09))
    if name == "uneven":  # some microseconds and a half: a figure rounded to microseconds is wrong
        work = (int(rng.integers(2, 9)) + 0.5) * 1e-6
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
