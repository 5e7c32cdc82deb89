"""Drives ex06_honest_timer: has staged programs timed, by a staged clock.

Program and clock are staged (`grader.stages.clock`), so that the costs are known, and the load of
this machine makes no difference. A copy to the device that nobody waited for is made while the
clock runs, as a large one is on a GPU. Each program stages what another mistake overlooks; see
`ProgramName` in `facts`.

Drawn: the order of the programs, for each the number of calls (2 to 4, or 5 to 9; for three of them
10 to 19, 20 to 39 and 100 to 199), of inputs and of results (one program has a single one), their
dtypes (float32 and whole numbers, and for inputs float64, float16, bools and a drawn kind of small
or unsigned numbers as well, and complex64 for `copy`), and what it costs, which is a second and
more in `compiling`, and how the work of some of them differs from call to call. In two, of which
one gets 2 to 4 calls and the other 5 to 9, a drawn call takes most of the time, so that the mean of
fewer calls is never near the mean of all. Of two that get many, all calls of one take about as
long, and none takes the mean; of the other, which gets most, the first, the last and a drawn call
take a third of all the time. Each clock begins at a drawn time, some at 0. Compiling and copies
cost something in these, too, for few inputs and for many. Some inputs lie column by column in
memory, some of these with gaps, and in `copy`, one array is two of the inputs. One program is timed
twice, with the same inputs. Where the file names numbers, one program gets more calls, `copy` more
inputs, `swapped` more results and `uneven` a longer input than each of them, up to MOST_...; work
takes longer in `compiling` and less time in `varied`, and one clock begins later, than they say as
seconds. Calls and readings of the clock are marked, so that a wait between the last two is told
from a wait before.
"""

import math
from collections.abc import Sequence
from itertools import cycle
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
from grader.judging.words import plural
from grader.probes import dumped
from grader.probes.observe import Misused, Observe
from grader.stages import clock
from grader.stages.drawn import among, beside, beyond, far, named, some_by_columns

CALLS, MANY = ((2, 5), (5, 10)), ((10, 20), (20, 40), (100, 200))
"""How many calls a program gets, at least, and below which number."""
INPUTS, MORE, RESULTS = (1, 7), (4, 7), (2, 7)
"""How many inputs a program takes, how many `copy` does, and how many arrays they return."""
OF_EACH = ((1, 2), (2, 4), (4, 7))
"""How many inputs each of COSTLY takes, in a drawn order."""
DTYPES, MORE_DTYPES = (np.float32, np.int32), (np.float64, np.bool_, np.uint8, np.float16)
"""What results and inputs are, in turn, from a drawn one on, and what inputs may be, too."""
RARE = (np.uint8, np.int8, np.int16, np.uint16, np.uint32)
"""What inputs of a program may be in the place of np.uint8."""
MOST_CALLS, MOST_INPUTS, MOST_RESULTS, MOST_ROWS = 1000, 40, 40, 20_000
"""Up to where calls, inputs, results, and the rows of an input reach the numbers of the file."""
MOST_SECONDS, LEAST_SECONDS = 1e9, 1e-9
"""Up to where its numbers are reached by seconds, and down to where."""
ONE_ARGUMENT = "`function` was given all of `args` as one argument: is a `*` missing before it?"
IN_MEMORY = "the same numbers in another order, as they lie in the memory of the given array"
MANY_BUSY = 5
"""All calls of a program that gets many keep the device busy as long as so many of another."""
SINGLE: tuple[ProgramName, ...] = ("work", "often")
"""One of these returns a single array."""
NAMES = ("left", "middle", "right", "upper", "lower", "other")
"""What a program may call its results."""
TWICE, AGAIN = get_args(ProgramName)[0], get_args(ProgramName)[-1]
"""The program that is timed twice, and what it is called the second time."""
LATE: ProgramName = "compiling"
"""The program with the longest work, and whose clock may begin late."""
OFTEN: tuple[ProgramName, ...] = ("often", "varied", "outlier")
"""The programs that get many calls."""
UNEVEN: tuple[ProgramName, ...] = ("uneven", AGAIN)
"""The programs of which one call takes most of the time."""
COSTLY: tuple[ProgramName, ...] = ("uneven", "varied", "outlier")
"""The programs that are not named for compiling or copying, and cost it all the same."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Have each staged program timed once."""
    with observe.unwatched():
        busy = clock.rounds()
    timings, through = [], 0
    names = rng.permutation([name for name in get_args(ProgramName) if name != AGAIN]).tolist()
    names.insert(rng.integers(names.index(TWICE) + 1, len(names) + 1), AGAIN)
    few, many = (cycle(rng.permutation(spans).tolist()) for spans in (CALLS, MANY[:-1]))
    kept: dict[str, tuple[_Marked, Any, int]] = {}
    first, other = rng.permutation(CALLS).tolist()
    spans = {TWICE: first, "uneven": other, "outlier": MANY[-1]}
    inputs = dict(zip(COSTLY, rng.permutation(OF_EACH).tolist(), strict=True)) | {"copy": MORE}
    single = rng.choice(SINGLE)
    for name in names:
        often = name in OFTEN
        span = spans.get(name) or next(many if often else few)
        calls = kept[TWICE][2] if name == AGAIN else _calls(rng, span)
        # One share for each call: only then is the mean over all calls the work.
        shares = _shares(name, rng, calls)
        work = max(1, MANY_BUSY * busy // calls) if often else busy
        if name == AGAIN:
            marked, args, _ = kept[TWICE]
            marked.start_again(shares)
        else:
            swapped = name == "swapped"
            count = 1 if name == single else rng.integers(*RESULTS)
            results = rng.permutation(NAMES)[:count].tolist()
            more = beyond(rng, len(results), MOST_RESULTS) if swapped else 0
            results += [f"result_{number}" for number in range(len(results), more)]
            dtypes = rng.permutation(DTYPES).tolist()
            begins = float(rng.choice([0, rng.uniform(1, 1000)]))
            if name == LATE:
                begins = max(begins, far(rng, MOST_SECONDS))
            staged = clock.Staged(_cost(name, rng), work, shares, swapped, results, dtypes, begins)
            marked = _Marked(observe, staged)
            given, dtypes = int(rng.integers(*inputs.get(name, INPUTS))), [*DTYPES, *MORE_DTYPES]
            if name == "copy":
                given = beyond(rng, given, MOST_INPUTS)
            dtypes = rng.permutation(dtypes).tolist()
            apart = beside(rng)
            dtypes[dtypes.index(np.uint8)] = RARE[apart.integers(len(RARE))]
            if name == "copy":
                place = int(apart.integers(min(given, len(dtypes))))
                dtypes[place] = np.complex64
            rows = clock.SIDE
            if name == "uneven":
                rows = beyond(rng, rows, MOST_ROWS, each=clock.SIDE)
            args = some_by_columns(apart, staged.arguments(rng, given, dtypes, rows))
            if name == "copy":
                args = _with_one_twice(apart, args, place)
            kept[name] = marked, args, calls
        staged = marked.staged
        with (
            dumped.programs() as texts,
            staged.counting_polls(),
            observe.waits(marked.told),
            observe.phase(phase(name)),
        ):
            figure = _timed(submission, marked, args, calls)
        through += sum(map(dumped.uses_the_host, texts))
        timings.append(
            TimedProgram(
                name,
                staged.cost,
                shares,
                calls,
                _number(figure),
                len(args),
                [*staged.names],
                *staged.history,
                marked.last_call,
                marked.last_reading,
                sorted(marked.awaited),
                marked.after_it,
                marked.other_inputs(args),
            )
        )
    observe.fact(THROUGH_HOST, through)
    observe.fact(TIMINGS, msgspec.to_builtins(timings))


def _timed(submission: ModuleType, marked: "_Marked", args: Any, calls: int) -> Any:
    """What a timer returns; where it asks for a result that is not there, the error says so."""
    try:
        return submission.seconds_per_call(marked.function, args, calls, marked.clock)
    except KeyError as error:
        named = ", ".join(f"`{name}`" for name in marked.staged.names)
        error.add_note(f"this `function` names its results {named}; each has names of its own")
        raise


def _with_one_twice(rng: Any, args: Sequence[Any], one: int) -> tuple[Any, ...]:
    """The inputs, of which `one` stands in the place of another one, too."""
    other = rng.choice([number for number in range(len(args)) if number != one])
    return tuple(args[one] if number == other else x for number, x in enumerate(args))


def _calls(rng: Any, span: Sequence[int]) -> int:
    """How many calls a program gets: so many as the file names, or more if it gets most."""
    calls = among(rng, span)
    return beyond(rng, calls, MOST_CALLS) if span == MANY[-1] else calls


class _Marked:
    """A staged program and its clock, with a mark at each call and at each reading."""

    def __init__(self, observe: Observe, staged: clock.Staged) -> None:
        self._observe, self.staged = observe, staged
        self._start()

    def _start(self) -> None:
        self._step = self._call = self.last_call = self.last_reading = 0
        self._result: dict[str, Any] = {}
        self._inputs: dict[int, tuple[int, Any]] = {}
        """What the program was given: the place and the array, by its id."""
        self._counts: set[int] = set()
        """How many inputs it was given."""
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

    def function(self, *args: Any) -> dict[str, Any]:
        """Call the program."""
        self._call = self._mark()
        self._awaited, self._after_it = set(), False
        self._inputs |= {id(one): (place, one) for place, one in enumerate(args)}
        self._counts.add(len(args))
        try:
            result = self.staged.program(*args)
        except (AttributeError, TypeError) as error:
            if len(args) == 1 and isinstance(args[0], tuple | list):
                error.add_note(ONE_ARGUMENT)
            raise
        arrays = {k: x for k, x in result.items() if not isinstance(x, jax.core.Tracer)}
        self._result, self._older = arrays, jax.live_arrays()
        return result

    def other_inputs(self, args: Any) -> str:
        """What of the program's inputs was not as it is in `args`, in words, or ""."""
        if wrong := self._counts - {len(args)}:
            return f"it got {plural(min(wrong), 'input')}, not {len(args)}"
        with self._observe.unwatched():
            arrays = [(n, x) for n, x in self._inputs.values() if not _is_gone(x)]
            found = (_unlike(x, args[n], n + 1) for n, x in arrays if n < len(args))
            return next(filter(None, found), "")

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


def _is_gone(array: Any) -> bool:
    """Whether nothing can be said of an array: it was traced, or is deleted."""
    if isinstance(array, jax.core.Tracer):
        return True
    return isinstance(array, jax.Array) and array.is_deleted()


def _unlike(mine: Any, given: Any, number: int) -> str:
    """How an input differs from the one that was given, or "": `input 2 was float32, not bool`."""
    right = jax.dtypes.canonicalize_dtype(given.dtype)
    if getattr(mine, "dtype", None) not in (right, given.dtype):
        return f"input {number} was {getattr(mine, 'dtype', type(mine).__name__)}, not {right}"
    if mine.shape != given.shape:
        return f"input {number} was of shape {mine.shape}, not {given.shape}"
    same = np.array_equal(np.asarray(mine).astype(right), given.astype(right))
    if same:
        return ""
    in_memory = given.ravel("K").reshape(given.shape).astype(right)
    turned = np.array_equal(np.asarray(mine).astype(right), in_memory)
    return f"input {number} had " + (IN_MEMORY if turned else "other numbers")


def _shares(name: ProgramName, rng: Any, calls: int) -> list[float]:
    """The work of each call, as a share of their mean.

    In UNEVEN, one call takes most of the time, so that the mean of fewer calls, whichever they are,
    is at least 0.7 / (calls - 1) away from the mean of all. In `varied`, half of the calls
    take some more than the others, so that no single call takes the mean. In `outlier`, the first,
    the last and a drawn one take a third of the time, each another part of it.
    """
    if name in UNEVEN:
        shares = rng.uniform(0.1, 0.3, calls)
        shares[rng.integers(calls)] += calls - shares.sum()
    elif name == "varied":
        shares = rng.permutation(np.where(np.arange(calls) % 2, 1.0, rng.uniform(1.3, 1.7)))
        shares *= calls / shares.sum()
    elif name == "outlier":
        shares = np.full(calls, 0.67 * calls / (calls - 3))
        parts = rng.permutation([0.09, 0.11, 0.13])
        # After one call to warm up, the first of the timed calls takes the second share.
        shares[[1, rng.integers(2, calls), 0]] = parts * calls
    else:
        return [1.0]
    return [float(share) for share in shares]


UNITS: dict[ProgramName, float] = {"uneven": 1e-6, "varied": 1e-7}
SHORT, LONG = (0.02, 0.09), (1.5, 30.0)
"""Between which numbers of seconds the work of a program takes, and that of `compiling`."""
BETWEEN = (3e-5, 0.02)
"""From how many seconds on, and below how many, the work of `outlier` takes."""


def _cost(name: ProgramName, rng: Any) -> dict[str, float]:
    """What a program costs, in seconds: its work, its dispatch, and what it is named for."""
    work = float(rng.uniform(*(LONG if name == "compiling" else SHORT)))
    if name == "outlier":  # anything between the others
        work = math.exp(rng.uniform(*map(math.log, BETWEEN)))
    if name == LATE:
        work = max(work, far(rng, MOST_SECONDS / 1000))
    if name in UNITS:  # some units and a half: a figure that is rounded to units is wrong
        work = (int(rng.integers(2, 9)) + 0.5) * UNITS[name]
    if name == "varied":
        work = min([work, *(n / 1.5 for n in named(rng) if n > LEAST_SECONDS)])
    cost = {"work": work, "dispatch": work / 200, "compiling": 0.0, "copy": 0.0}
    if name in ("compiling", *COSTLY):
        cost["compiling"] = 30 * work
    if name in ("copy", *COSTLY):
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
