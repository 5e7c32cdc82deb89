"""ex06_honest_timer: a timer's figures for programs whose costs are known.

Programs and clock are staged (`grader.probes.staged_clock`), so that no load of this
machine has a say.
"""

from types import ModuleType
from typing import Any

import msgspec

from grader.checking import Exercise, Failure, Misused, Observe, Result
from grader.evidence import culprits, definition, events, probe_gap, seen
from grader.record import Record
from grader.words import plural

BAND = 0.05
UNEVEN = (1.6, 0.7, 1.6, 0.7, 0.7, 0.7)
"""Shares of the work, call after call. Their mean is 1. No single call is like it, nor is
the median, nor a mean that leaves the slowest out, the fastest, or both."""


class Seen(msgspec.Struct):
    """How a timer fared.

    `timed` counts calls between the first and the last reading of the clock, `running`
    those that were not done at the last one; `polls` are calls of `is_ready`.
    """

    staged: str
    cost: dict[str, float]
    wanted: int
    figure: float
    readings: int
    timed: int
    running: int
    traced: bool
    polls: int


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Have programs timed, each of which stages what another mistake overlooks."""
    from grader.probes.staged_clock import Staged, rounds

    with observe.unwatched():
        busy = rounds()
    found = []
    for name in ("work", "swapped", "uneven", "compiling", "copy"):
        shares = UNEVEN if name == "uneven" else (1.0,)
        staged = Staged(_cost(name, rng), busy, shares, swapped=name == "swapped")
        # As many calls as there are shares: whoever counts them all finds their mean.
        calls = len(UNEVEN) if name == "uneven" else int(rng.integers(4, 8))
        args = staged.arguments(rng)
        with staged.counting_polls():
            figure = submission.seconds_per_call(staged.program, args, calls, staged.clock)
        found.append(Seen(name, staged.cost, calls, _number(figure), *staged.history))
    observe.fact("timings", msgspec.to_builtins(found))


def _cost(name: str, rng: Any) -> dict[str, float]:
    """What a program costs, in seconds; beside its work, only what it is named for."""
    work = float(rng.uniform(0.02, 0.09))
    if name == "uneven":  # microseconds, and half of one: a rounded figure is far from them
        work = (int(rng.integers(2, 9)) + 0.5) * 1e-6
    cost = {"work": work, "dispatch": work / 200, "compiling": 0.0, "copy": 0.0}
    return cost | {"compiling": {"compiling": 30 * work}, "copy": {"copy": work / 2}}.get(name, {})


def _number(figure: Any) -> float:
    import jax
    import numpy as np

    if isinstance(figure, float | int | np.floating) and not isinstance(figure, bool):
        return float(figure)
    kind = "jax.Array" if isinstance(figure, jax.Array) else type(figure).__name__
    raise Misused("`seconds_per_call` returns a float", f"it returned a {kind}")


EXERCISE = Exercise(
    title="Time a program honestly",
    lesson="lessons/04-the-inner-loop",
    anchor="a-call-returns-before-the-work-is-done",
    edits=("seconds_per_call",),
    drive=drive,
    hints=(
        "What happens in the first call, and in no other? What happens in every call, and is "
        "no work of the program?",
        "Before the clock starts: place the inputs, call once, and wait. While it runs: call, "
        "and wait for the result.",
        "args = jax.device_put(args), then jax.block_until_ready(function(*args)), then the "
        "clock, and the same line in the loop.",
    ),
)


def _timings(record: Record, *names: str) -> list[Seen]:
    """All timings, or those of some programs."""
    found = msgspec.convert(seen(record).facts.get("timings", []), list[Seen])
    return [timing for timing in found if timing.staged in (names or (timing.staged,))]


def _failure(record: Record, expected: str, observed: str) -> Failure:
    return Failure(expected, observed, definition(record, "seconds_per_call"))


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.4g} ms"


def _wrong(record: Record, timing: Seen, why: str, what: str = "") -> Failure:
    """A figure that is not the work, and what the program costs besides."""
    expected = f"{_ms(timing.cost['work'])} a call, the work of the program{what}"
    return _failure(record, expected, f"{_ms(timing.figure)} a call: {why}")


@EXERCISE.check(ground="observed", hints=("Call clock(), once before the calls and once after.",))
def reads_the_clock(record: Record) -> Result:
    """The time is read from the clock that is given."""
    for timing in _timings(record):
        if timing.readings < 2:
            read = f"it was read {plural(timing.readings, 'time')}"
            return _failure(record, "`clock` is read before and after the calls", read)
    return None


@EXERCISE.check(
    ground="observed",
    after=("reads_the_clock",),
    hints=("One call proves little: the next one may take twice as long. Time `calls` of them.",),
)
def times_all_calls(record: Record) -> Result:
    """While the clock runs, `function` is called at least `calls` times."""
    for timing in _timings(record):
        if timing.timed < timing.wanted:
            expected = f"{timing.wanted} calls between the first and the last reading of the clock"
            observed = plural(timing.timed, "call")
            if timing.traced:
                observed += ", and one with tracers: a jit around it made it a part of a program"
            return _failure(record, expected, observed)
    return None


@EXERCISE.check(
    ground="observed",
    after=("times_all_calls",),
    hints=(
        "A call returns when the work is handed over. What makes Python wait for the result?",
        "jax.block_until_ready(result) waits for all arrays of a tree. The clock is read after it.",
        "Whoever waits for one array of the dict, the first or the last, knows nothing of the "
        "others.",
    ),
)
def waits_for_the_work(record: Record) -> Result:
    """The clock is stopped when the work is done, not when the call returns."""
    for timing in _timings(record, "work", "swapped"):
        if timing.running or timing.figure < (1 - BAND) * timing.cost["work"]:
            return _wrong(record, timing, _short(timing))
    gap = probe_gap(seen(record), "reads")
    waited = any(timing.polls for timing in _timings(record))
    if waited or gap or any(events(seen(record), "wait", "d2h")):
        return None if waited else gap
    return _failure(
        record,
        "the result is waited for",
        "nothing waited: the result happened to be there when the clock was read",
    )


def _short(timing: Seen) -> str:
    """Why a figure is too small, or right by chance: what ran before the clock started is in it."""
    if timing.figure < 3 * timing.cost["dispatch"]:
        return "that is how long the call takes to return"
    if timing.running:
        return f"{plural(timing.running, 'call')} still ran when the clock was read last"
    return "some of the work was not done when the clock was read"


@EXERCISE.check(
    ground="observed",
    after=("waits_for_the_work",),
    hints=(
        "The figure is of one call. And what is not waited for before the clock starts still "
        "runs while it counts.",
        "Wait for the warm-up too: jax.block_until_ready(function(*args)).",
    ),
)
def tells_of_one_call(record: Record) -> Result:
    """The figure is the work of one call."""
    for timing in _timings(record, "work", "swapped"):
        if timing.figure > (1 + BAND) * timing.cost["work"]:
            return _wrong(record, timing, _long(timing))
    return None


def _long(timing: Seen) -> str:
    """Why a figure is too large, where only the work is dear."""
    calls, times = timing.wanted, timing.figure / timing.cost["work"]
    divided = timing.timed / times  # by what it was, if all that was timed was counted once
    if _near(times, 1000):
        return "milliseconds? A figure in seconds is a thousandth of that"
    if timing.timed == calls and _near(times * calls, calls + 1):
        counted = f"the work of {calls + 1} calls is in it, not of {calls}"
        return f"{counted}: what was called before the clock started was still running"
    if _near(divided, 1):
        return f"the sum over {plural(timing.timed, 'call')}, not their mean"
    if _near(divided, round(divided)):
        return f"{timing.timed} calls were timed, and their time divided by {round(divided)}"
    return f"that is {times:.3g} x the work of a call"


def _near(number: float, whole: int) -> bool:
    """Whether a number is a whole one, but for what the dispatch adds."""
    return whole > 0 and abs(number / whole - 1) < BAND / 5


@EXERCISE.check(
    ground="observed",
    after=("tells_of_one_call",),
    hints=(
        "Calls of one program do not all take the same time. Which of them does the figure tell "
        "of?",
        "Divide the time of all calls by their number, and leave rounding to whoever prints it.",
    ),
)
def tells_of_all_calls(record: Record) -> Result:
    """The figure is the mean of all calls, however short they are."""
    (timing,) = _timings(record, "uneven")
    low, high = (_ms(share * timing.cost["work"]) for share in (min(UNEVEN), max(UNEVEN)))
    why = f"single calls take {low} to {high}, and that is not their mean"
    if timing.figure == round(timing.figure, 6):
        why = "it was rounded"
    return _without(record, timing, why, ", on average")


@EXERCISE.check(
    ground="observed",
    after=("tells_of_one_call",),
    hints=(
        "What does the first call do that no other does?",
        "Call the function once before the clock starts, and wait for it.",
    ),
)
def leaves_compiling_out(record: Record) -> Result:
    """Compiling is not in the figure."""
    (timing,) = _timings(record, "compiling")
    what = f"; it compiles for {timing.cost['compiling']:.3g} s"
    return _without(record, timing, "the first call, which compiles, was timed", what)


@EXERCISE.check(
    ground="observed",
    after=("tells_of_one_call",),
    hints=(
        "`args` are NumPy arrays. Where are they when the program runs, and who brings them there?",
        "A copy that is made before the clock starts is not in the figure. Who is to make it then, "
        "and what do the calls have to be given?",
    ),
    anchor="one-copy-for-each-batch",
)
def leaves_copies_out(record: Record) -> Result:
    """Copying the inputs to the device is not in the figure."""
    (timing,) = _timings(record, "copy")
    what = f"; copying its two inputs takes {_ms(2 * timing.cost['copy'])}"
    return _without(record, timing, "inputs were copied while the clock ran", what)


def _without(record: Record, timing: Seen, why: str, what: str) -> Failure | None:
    """The failure where a figure holds more than the work."""
    close = abs(timing.figure - timing.cost["work"]) <= BAND * timing.cost["work"]
    return None if close else _wrong(record, timing, why, what)


@EXERCISE.check(
    ground="observed",
    hints=("A timer needs no numbers. block_until_ready waits, and copies nothing.",),
)
def reads_no_result(record: Record) -> Result:
    """No result is copied to the host."""
    gap = probe_gap(seen(record), "reads")
    reads = list(events(seen(record), "d2h"))
    if not reads:
        return gap
    return Failure(
        "the result is waited for, and stays on the device",
        f"{plural(sum(e.count for e in reads), 'read')} of results: on a GPU, each is a copy to "
        "the host, and takes its time",
        culprits(record, reads),
    )
