"""Checks of ex06_honest_timer: what the timer timed, what it waited for, and its figures."""

import ast
import math
import statistics
from dataclasses import replace

import msgspec

from grader.checks.ex06_honest_timer import EXERCISE
from grader.checks.ex06_honest_timer.facts import (
    THROUGH_HOST,
    TIMINGS,
    ProgramName,
    TimedProgram,
    phase,
)
from grader.judging.checking import Failure, Result
from grader.judging.evidence import culprits, definition, events, probe_gap, seen, to_host, wanted
from grader.judging.words import plural
from grader.records.record import Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File, reached
from grader.source.slips import LAZY, begun_by_nothing
from grader.source.statements.search import calls_among, gets

EVEN: tuple[ProgramName, ...] = ("work", "swapped", "often")
"""The programs that cost little but their work, always as much."""
DIFFERING: tuple[ProgramName, ...] = ("uneven", "varied", "outlier", "again")
"""The programs whose calls take different times."""
NAME = "seconds_per_call"
BAND = 0.05
"""How far a figure may be from the work, as a share of the work: the starter says so."""
NEAR = 0.01
"""How near two figures are that are the same but for the dispatch: a two hundredth of the work."""


def _timings(record: Record, *names: ProgramName) -> list[TimedProgram]:
    """The timings of the programs `names`, in this order, or of all programs.

    What they cost, take and return, how their work differs, and how many calls were asked for, is
    the reference's word: all was drawn from one seed, and no learner's code ran in the reference's
    process.
    """
    found = msgspec.convert(seen(record).facts.get(TIMINGS, []), list[TimedProgram])
    theirs = msgspec.convert(wanted(record).facts.get(TIMINGS, []), list[TimedProgram])
    known = {timing.staged: timing for timing in theirs}
    mine = {timing.staged: timing for timing in found}
    return [_as_drawn(mine[n], known[n]) for n in names or mine if n in mine and n in known]


DRAWN = ("cost", "shares", "asked", "inputs", "results")


def _as_drawn(timing: TimedProgram, known: TimedProgram) -> TimedProgram:
    drawn = {name: getattr(known, name) for name in DRAWN}
    return msgspec.structs.replace(timing, **drawn)


def _failure(record: Record, expected: str, observed: str, hint: str = "") -> Failure:
    return Failure(expected, observed, definition(record, NAME), hint)


def _start(record: Record) -> list[Culprit]:
    """Where the clock is read first."""
    return statements.every(record, NAME, "clock")[:1]


def _stop(record: Record) -> list[Culprit]:
    """Where the clock is read last."""
    return statements.every(record, NAME, "clock")[-1:]


def _figure(record: Record) -> list[Culprit]:
    """Where the figure is worked out."""
    return statements.result(record, NAME)


def _time(seconds: float) -> str:
    """`72.5 ms`, `4.5 µs`: four digits, in the unit in which they are easy to read."""
    size = abs(seconds)
    factor, unit = (1, "s") if size >= 1 else (1e3, "ms") if size >= 1e-4 else (1e6, "µs")
    return f"{seconds * factor:.4g} {unit}" if seconds else "0 s"


def _wrong(
    record: Record, timing: TimedProgram, why: str, what: str = "", hint: str = ""
) -> Failure:
    """The failure for a figure that is not the work; `what` is said of the work."""
    expected = f"{_time(timing.cost['work'])} a call, the work of the program{what}"
    return _failure(record, expected, f"{_time(timing.figure)} a call: {why}", hint)


TIMED_TWICE = "One function is timed twice. What does your timer keep of the first time?"


@EXERCISE.check(ground="observed", hints=("Call clock() once before the calls, and once after.",))
def reads_the_clock(record: Record) -> Result:
    """The time is read from the clock that is given."""
    for timing in _timings(record):
        if timing.readings < 2:
            read = (
                f"it was read {plural(timing.readings, 'time')}"
                if timing.readings
                else "it was not read"
            )
            hint = TIMED_TWICE if timing.staged == "again" else ""
            return _failure(record, "`clock` is read before and after the calls", read, hint)
    return None


@EXERCISE.check(
    ground="observed",
    after=("reads_the_clock",),
    hints=("One call proves little: the next one may take twice as long. Time `calls` of them.",),
)
def times_all_calls(record: Record) -> Result:
    """While the clock runs, `function(*args)` is called at least `calls` times."""
    for timing in _timings(record):
        if timing.timed < timing.asked:
            expected = f"{timing.asked} calls between the first and the last reading of the clock"
            observed = plural(timing.timed, "call")
            if timing.traced:
                observed += ", and one with tracers: a jit around `function` compiles it anew"
            place = statements.call(record, NAME, *["jit"] * timing.traced, "range", "function")
            hint = ITSELF if timing.traced else BETWEEN if timing.timed > 1 else ""
            return Failure(expected, observed, place, hint)
        if timing.other_inputs:
            expected = "`function` gets the inputs that were given, with their numbers and dtypes"
            place = statements.assigned(record, NAME, "args")
            return Failure(expected, timing.other_inputs, place, OTHER_PROGRAM)
    return None


OTHER_PROGRAM = (
    "What a program costs may depend on the dtypes of its inputs, and on their numbers. Place them "
    "as they are: which line changes them?"
)
BETWEEN = "Which calls lie between the first and the last reading of the clock?"
ITSELF = "`function` compiles itself. What is timed when another program holds it?"


@EXERCISE.check(
    ground="observed",
    after=("times_all_calls",),
    hints=(
        "A call returns when the work is handed over. What makes Python wait for the result?",
        "jax.block_until_ready(result) waits for all arrays of a tree. The clock is read after it.",
        "If you wait for one array of the dict, the first or the last, the others may not be done "
        "yet.",
    ),
)
def waits_for_the_work(record: Record) -> Result:
    """The clock is stopped when the work is done, not when the call returns."""
    gap = probe_gap(seen(record), "reads")
    timings = _timings(record)
    if partial := None if gap else next(filter(_waits_for_a_part, timings), None):
        return _waited_for_a_part(record, partial)
    for timing in _timings(record, *EVEN):
        if timing.figure < (1 - BAND) * timing.cost["work"]:
            return _too_short(record, timing)
    for timing in timings:
        if timing.running:
            expected = "when the clock is read for the last time, all results are there"
            observed = f"the results of {plural(timing.running, 'call')} were not there yet"
            return Failure(expected, observed, _stop(record))
    if gap:
        return gap
    for timing in timings:
        if not _waits(record, timing):
            observed = "it did not wait: the result happened to be there when the clock was read"
            return Failure(WAITS, observed, _stop(record))
        if not _knows_of_all(timing):
            observed = "it waited for something else: that the result was there is chance"
            return Failure(WAITS, observed, _waited(record, timing) or _stop(record))
    return None


def _too_short(record: Record, timing: TimedProgram) -> Failure:
    """The failure for a figure that is less than the work."""
    why, what, hint = _short(timing)
    place = _figure(record) if hint else _stop(record)
    if not hint and (idle := _between_readings(record, "block_until_ready")[-1:]):
        returned = "all that" if timing.running and why != RETURNS else "what"
        place, why = idle, f"{why}. What is waited for here is not {returned} the calls return"
    tops = reached(File(record.source), NAME)
    if not hint and (lazy := [call for top in tops for call in begun_by_nothing(top)]):
        place, hint = [File(record.source).place(lazy[0])], LAZY
        why = RETURNS
    if not (hint or timing.awaited) and (keys := _waits_for_keys(record)):
        place, hint = keys, KEYS
    last = statements.kept_of_the_last_round(record, NAME, "clock")
    if hint == MEAN and last:
        place, why = last, "each round gives this name a new time: the last one is left"
    return replace(_wrong(record, timing, why, what, hint), culprits=place)


KEYS = "A loop over a dict goes over its keys, which are texts. What goes over its arrays?"


def _waits_for_keys(record: Record) -> list[Culprit]:
    """The loops over what may be a dict, of which each item is waited for: it holds no array."""
    file = File(record.source)
    loops = [n for top in reached(file, NAME) for n in ast.walk(top) if isinstance(n, ast.For)]
    return [
        file.place(loop.iter)
        for loop in loops
        if isinstance(loop.target, ast.Name) and isinstance(loop.iter, ast.Name)
        for call in calls_among(ast.walk(loop), "block_until_ready")
        if gets(call, loop.target.id)
    ]


def _between_readings(record: Record, name: str) -> list[Culprit]:
    """The calls of `name` between the two outer readings of the clock, or of what calls it."""
    read = [place.line for place in statements.every(record, NAME, "clock")]
    own = [one for one in File(record.source).names if statements.uses(record, one, name)]
    calls = [place for one in (name, *own) for place in statements.every(record, NAME, one)]
    return [place for place in calls if read and min(read) < place.line < max(read)]


def _times(ratio: float) -> str:
    return f"{ratio:,.0f} times" if ratio >= 100 else f"{ratio:.3g} times"


RETURNS = "that is how long the call takes to return"
WAITS = (
    "between the last call and the last reading of the clock, the timer waits for all arrays of "
    "the result"
)
PART = "The arrays of one result need not be done together. Which call waits for all of a tree?"


def _knows_of_all(timing: TimedProgram) -> bool:
    """Whether what a timer waited for last is there only when all of the last result is."""
    return timing.after_it or set(timing.awaited) == set(timing.results)


def _waits_for_a_part(timing: TimedProgram) -> bool:
    return bool(timing.awaited) and not _knows_of_all(timing)


def _waited_for_a_part(record: Record, timing: TimedProgram) -> Failure:
    """The failure of a timer that waits for one array of the last result.

    How much still ran when it read the clock is the machine's affair, and is not said.
    """
    awaited = " and ".join(f"`{name}`" for name in timing.awaited)
    observed = f"it waited for {awaited} alone: whether the rest was there is chance"
    return Failure(WAITS, observed, _waited(record, timing) or _stop(record), PART)


def _waited(record: Record, timing: TimedProgram) -> list[Culprit]:
    """Where a timer waits between its last call and its last reading."""
    found = events(seen(record), "wait", "d2h", phase=phase(timing.staged))
    return culprits(record, [e for e in found if e.step in _between(timing)])


MEAN = "What is the time of all calls, and by which number is it divided?"


def _waits(record: Record, timing: TimedProgram) -> bool:
    """Whether a timer waited, read or polled between its last call and its last reading."""
    found = events(seen(record), "wait", "d2h", phase=phase(timing.staged))
    return timing.polls > 0 or any(event.step in _between(timing) for event in found)


def _between(timing: TimedProgram) -> range:
    """The steps from the last call to the last reading."""
    return range(timing.last_call, timing.last_reading)


def _short(timing: TimedProgram) -> tuple[str, str, str]:
    """Why a figure is too small, or right by chance with work from before the clock started.

    Nothing is said of the work; last comes the hint, if that is not to wait.
    """
    if timing.figure < 0:
        why = "a time below zero. Was the later reading taken from the earlier one?"
        return why, "", "The clock goes forward: the last reading less the first is the time."
    if timing.figure == 0:
        return "no time at all", "", MEAN
    if timing.figure < 3 * timing.cost["dispatch"] and not _knows_of_all(timing):
        return RETURNS, "", ""
    if timing.running:
        why = f"{plural(timing.running, 'call')} still ran when the clock was last read"
        return why, "", ""
    if why := _part(timing) or _divided(timing):
        return why, "", MEAN
    if _knows_of_all(timing):  # the work was done, so the figure was worked out in another way
        times = timing.figure / timing.cost["work"]
        return f"that is {_times(times)} the work of a call", "", MEAN
    return "some of the work was not done when the clock was read", "", ""


def _part(timing: TimedProgram) -> str:
    """How many of the timed calls the figure tells of, if the clock was read between them; or "".

    A timer that reads it before and after each call knows the time of all.
    """
    calls = timing.figure * timing.asked / timing.cost["work"]
    if timing.readings in (2, 2 * timing.timed) or not _near(calls, round(calls)):
        return ""
    told = f"that is the time of {plural(round(calls), 'call')}, divided by {timing.asked}"
    return f"{told}: which calls lie between the two readings that it is made of?"


def _divided(timing: TimedProgram) -> str:
    """By which wrong number the time of all timed calls was divided, or ""."""
    divisor = timing.timed * timing.cost["work"] / timing.figure
    if not _near(divisor, round(divisor)) or round(divisor) == timing.timed:
        return ""
    if round(divisor) == 1:
        return f"that is the sum over {plural(timing.timed, 'call')}, not their mean"
    return f"{timing.timed} calls were timed, and their time was divided by {round(divisor)}"


WARM_UP = (
    "A call that you did not wait for before the clock started still runs while the clock does."
)


@EXERCISE.check(
    ground="observed",
    after=("waits_for_the_work",),
    hints=(
        "The figure is for one call. What is in it beside the work of one call?",
        WARM_UP,
        "Wait for the warm-up too: jax.block_until_ready(function(*args)).",
    ),
)
def tells_of_one_call(record: Record) -> Result:
    """The figure is what the work of one call takes."""
    for timing in _timings(record, *EVEN):
        if timing.figure > (1 + BAND) * timing.cost["work"]:
            why, what, hint = _long(timing)
            more = _between_readings(record, "function") if timing.timed > timing.asked else []
            place = _start(record) if hint == WARM_UP else more or _figure(record)
            place = _stop(record) if hint == FROM_THE_FIRST else place
            if hint in ("", MEAN) and (part := statements.divided_in_part(record, NAME)):
                place, hint = part, "A division comes before a subtraction. What is to be divided?"
            failure = _wrong(record, timing, why, what, hint)
            return replace(failure, culprits=place) if hint else failure
    return None


def _long(timing: TimedProgram) -> tuple[str, str, str]:
    """Why a figure is too large, for a program that costs little but its work.

    As from `_short`: the reason, what is said of the work, and the hint.
    """
    times = timing.figure / timing.cost["work"]
    if _near(times, 1000):
        why = "milliseconds? A figure in seconds is a thousandth of that"
        return why, "", "The clock counts seconds, and so does the figure."
    if _near(timing.figure * timing.cost["work"], 1):
        why = "that is how many calls fit into a second, not how long one takes"
        return why, "", MEAN
    if why := _one_call_more(timing):
        return why, "", WARM_UP
    if timing.readings == timing.timed + 1 and _near(2 * times, timing.timed + 1):
        counted = "each difference counts from the first reading on, and holds all calls before"
        return f"that is {_times(times)} the work of a call: {counted}", "", FROM_THE_FIRST
    if why := _divided(timing):
        return why, "", MEAN
    return f"that is {_times(times)} the work of a call", "", ""


FROM_THE_FIRST = (
    "The clock is read after each call. From which reading on does the difference count that is "
    "added there?"
)


def _one_call_more(timing: TimedProgram) -> str:
    """That the figure holds the work of the call before the clock started, in words, or ""."""
    calls, times = timing.asked, timing.figure / timing.cost["work"]
    if timing.timed != calls or not _near(times * calls, calls + 1):
        return ""
    counted = f"it holds the work of {calls + 1} calls, not of {calls}"
    return f"{counted}: the call before the clock started was still running"


def _near(number: float, whole: int) -> bool:
    """Whether `number` is `whole`, apart from what the dispatch adds."""
    return whole > 0 and abs(number / whole - 1) < NEAR


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
    what = f"; compiling it takes {timing.cost['compiling']:.3g} s"
    if why := _one_call_more(timing):
        return _placed(_unlike_the_work(record, timing, why, "", WARM_UP), _start(record))
    why = "the first call, which compiles, was timed"
    return _placed(_unlike_the_work(record, timing, why, what), _start(record))


@EXERCISE.check(
    ground="observed",
    after=("leaves_compiling_out",),
    hints=(
        "`args` are NumPy arrays. Where must they be when the program runs, and what brings them "
        "there?",
        "A copy that is made before the clock starts is not in the figure. Which function copies "
        "`args` there, and what do you then pass to `function`?",
    ),
    anchor="one-copy-for-each-batch",
)
def leaves_copies_out(record: Record) -> Result:
    """Copying the inputs to the device is not in the figure."""
    (timing,) = _timings(record, "copy")
    all_of_it = _time(timing.inputs * timing.cost["copy"])
    what = f"; copying its {plural(timing.inputs, 'input')} takes {all_of_it}"
    start, file = _start(record), File(record.source)
    running = [
        place
        for place in statements.every(record, NAME, "device_put")
        if place.line > start[0].line and _same_function(file, place, start[0])
    ]
    hint = "" if timing.in_numpy else UNDER_WAY
    if timing.in_numpy and not running and statements.uses(record, NAME, "partial"):
        running, hint = statements.every(record, NAME, "partial"), BOUND
    if late := _made_when_used(record):
        running, hint = late, WHEN_USED
    failure = _unlike_the_work(record, timing, COPIED, what, hint)
    return failure and replace(failure, culprits=running or failure.culprits, made=start)


def _same_function(file: File, place: Culprit, other: Culprit) -> bool:
    return file.function_at(place.line) == file.function_at(other.line)


COPIED = "inputs were copied while the clock ran"
BOUND = "functools.partial keeps the arguments of that moment. Were they on the device by then?"
WHEN_USED = (
    "A generator makes each item when something goes through it: here, while the clock runs. A "
    "list is made at once."
)


def _made_when_used(record: Record) -> list[Culprit]:
    """What makes inputs when they are used: a generator, or `map`, that has a name."""
    file = File(record.source)
    named = [
        node.value
        for top in reached(file, NAME)
        for node in ast.walk(top)
        if isinstance(node, ast.Assign)
    ]
    lazy = [one for one in named if isinstance(one, ast.GeneratorExp) or _maps(one)]
    return [file.place(one) for one in lazy if "device_put" in ast.unparse(one)]


def _maps(made: ast.expr) -> bool:
    return isinstance(made, ast.Call) and ast.unparse(made.func) == "map"


UNDER_WAY = (
    "A copy to the device is handed over, as a call is, and is done later. What waits for it "
    "before the clock starts?"
)


def _placed(failure: Failure | None, place: list[Culprit]) -> Failure | None:
    return failure and replace(failure, culprits=place)


def _unlike_the_work(
    record: Record, timing: TimedProgram, why: str, what: str, hint: str = ""
) -> Failure | None:
    """The failure if a figure is not the work; `why` explains it, `what` is said of the work."""
    close = abs(timing.figure - timing.cost["work"]) <= BAND * timing.cost["work"]
    return None if close else _wrong(record, timing, why, what, hint)


@EXERCISE.check(
    ground="observed",
    after=("leaves_compiling_out", "leaves_copies_out"),
    hints=(
        "Calls of one program do not all take the same time. Which of the calls does your figure "
        "describe?",
        "Divide the time of all calls by their number, and leave rounding to the code that prints "
        "the figure.",
    ),
)
def tells_of_all_calls(record: Record) -> Result:
    """The figure is the mean of all calls, however short they are."""
    found = (_not_the_mean(record, timing) for timing in _timings(record, *DIFFERING))
    return next((failure for failure in found if failure), None)


def _not_the_mean(record: Record, timing: TimedProgram) -> Result:
    if timing.figure in (round(timing.figure, 7), float(f"{timing.figure:.1e}")):
        hint = "A call may take less than a microsecond. Leave rounding to what prints the figure."
        found = _unlike_the_work(record, timing, "it was rounded", ", on average", hint)
    else:
        why = COPIED if timing.in_numpy else _which(timing)
        hint = IN_NUMPY if timing.in_numpy else ""
        found = _unlike_the_work(record, timing, why, ", on average", hint)
    return _placed(found, _figure(record))


IN_NUMPY = (
    "`args` are NumPy arrays. Which of them does `function` get as they came, while the clock runs?"
)


def _which(timing: TimedProgram) -> str:
    """Which of the calls the figure describes, for calls that take different times."""
    share = (timing.figure - timing.cost["dispatch"]) / timing.cost["work"]
    shares = sorted(timing.shares)
    named = {
        "the fastest call": shares[0],
        "the slowest call": shares[-1],
        "the median of the calls": statistics.median(shares),
        "the geometric mean of the calls": math.exp(statistics.fmean(map(math.log, shares))),
        "the mean without the fastest and the slowest call": statistics.fmean(
            shares[1:-1] or shares
        ),
    }
    found = " or ".join(name for name, one in named.items() if _alike(share, one))
    if not found and any(_alike(share, one) for one in shares):
        found = "one of the calls"
    low, high = (_time(one * timing.cost["work"]) for one in (shares[0], shares[-1]))
    return (
        f"that is {found}, not the mean of all"
        if found
        else f"single calls take {low} to {high}, and that is not their mean"
    )


def _alike(share: float, known: float) -> bool:
    return abs(share / known - 1) < NEAR


@EXERCISE.check(
    ground="observed",
    after=("times_all_calls",),  # what a jit closes over is read, too
    hints=("A timer needs no numbers. block_until_ready waits, and copies nothing.",),
)
def reads_no_result(record: Record) -> Result:
    """No result is copied to the host."""
    gap = probe_gap(seen(record), "reads")
    reads = to_host(seen(record))
    if not reads and (programs := seen(record).facts.get(THROUGH_HOST)):
        return Failure(
            "the timer waits for the result, which stays on the device",
            f"{plural(programs, 'program')} that it compiles keep arrays in host memory",
            statements.call(record, NAME, "jit"),
        )
    if not reads:
        return gap
    return Failure(
        "the timer waits for the result, which stays on the device",
        f"{plural(sum(e.count for e in reads), 'read')} of results: on a GPU, each is a copy to "
        "the host, and takes time",
        culprits(record, reads),
    )
