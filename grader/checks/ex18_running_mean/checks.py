"""Checks of ex18_running_mean: that it is jitted, its result, and the memory it needs.

A wrong result is compared with what known mistakes give, so that the failure can name one.
"""

import ast
import math
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from grader.checks.ex18_running_mean import EXERCISE
from grader.checks.ex18_running_mean.facts import (
    AS_MANY,
    AS_ROWS,
    BY_NUMBER,
    DIVIDED,
    DONATED,
    EXCHANGED,
    FEWER,
    FIRST,
    FIRST_RATE,
    HALVED,
    HUGE,
    KEPT,
    KEPT_BY_LOOPS,
    LAST,
    LENGTHS,
    LONG,
    MORE,
    NAME,
    NUMBERED,
    NUMBERS,
    OF_THE_SUM,
    ONE_MORE,
    RATES,
    REPEATED,
    REVERSED,
    SHORT,
    SIZES,
    SKIPPED,
    SLOW,
    SMOOTHED,
    STUCK,
    THOUSAND,
    UNKNOWN,
    WEIGHTED,
    WITHOUT_FIRST,
    X,
    grows,
)
from grader.judging.arrays import compare, load
from grader.judging.checking import Failure, Result, Unable
from grader.judging.differences import ALL_ZERO
from grader.judging.evidence import culprit, definition, seen, wanted
from grader.judging.memory import room
from grader.judging.programs import compiled_program, not_jitted
from grader.records.record import Measured, Memory, Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File

ROOM = 6
"""How many arrays like `x` the program may need beyond the reference."""
ABOUT_TEN = 12
"""How many of them one loop may keep."""
RTOL, ATOL = 2e-4, 1e-4
"""By how much two means may differ and count as the same."""
LONG_RTOL, LONG_ATOL = 3e-5, 1e-5
"""The same where one of a thousand states or more makes a difference of 1e-4."""


@EXERCISE.check(
    ground="observed",
    hints=("A loop in Python may keep an array for each update, and no program shows that.",),
)
def jitted(record: Record) -> Result:
    """`mean_of_updates` itself is a function that jax.jit made."""
    return not_jitted(record, NAME)


def _both(record: Record, name: str) -> tuple[Measured, Measured] | Failure | Unable:
    """The learner's program of a name, and the reference's."""
    mine = compiled_program(record, name, made_by=NAME)
    theirs = record.reference_measured.get(name)
    if not isinstance(mine, Measured):
        return _of_a_leak(record, mine) if isinstance(mine, Failure) else mine
    return (mine, theirs) if theirs else Unable("the reference was not compiled")


def _of_a_leak(record: Record, failure: Failure) -> Failure:
    """The failure, with its cause where the body of a loop writes to a variable outside of it."""
    file = File(record.source)
    top = file.doing(NAME)
    outer = [node for node in ast.walk(top) if isinstance(node, ast.Nonlocal)] if top else []
    if not outer or "safe_zip()" not in failure.observed:
        return failure
    observed = (
        "the body of a loop writes to a variable outside of it: what it left there was traced"
    )
    return replace(failure, observed=observed, culprits=[file.place(outer[0])], hint=IN_THE_CARRY)


IN_THE_CARRY = (
    "The body of a loop is traced once, and only what it returns comes out of it. Which of its "
    "results has to be part of the carry?"
)


@EXERCISE.check(
    ground="program",
    after=("jitted",),
    hints=(
        "Start at zero or with the state after the first update, count each update once, and "
        "divide by the number of updates.",
    ),
    anchor="one-is-not-1001",
)
def same_mean(record: Record) -> Result:
    """The result is the mean of the states after each update, without `x` itself."""
    found = []
    for name in _compared(record):
        if not isinstance(both := _both(record, name), tuple):
            return both
        if failure := _differing(name, *both):
            found.append((failure, name, *both))
    # What has grown beyond all numbers shows no reason; a program of fewer updates may.
    found.sort(key=lambda one: not _is_finite(one[2]))
    return _in_words(record, *found[0]) if found else None


def _is_finite(program: Measured) -> bool:
    """Whether the mean holds numbers alone, no NaN and nothing infinite."""
    data = [leaf.data for leaf in program.outputs[:1] if leaf.data is not None]
    return all(math.isfinite(float(abs(load(one)).max(initial=0))) for one in data)


NO_NUMBERS = (
    "Either the states grew until they were no numbers, or a round divides by 0. What does "
    "`update` get in each round: the last state, and one rate? And what is each result divided by?"
)
ONE_RATE, X_ALONE = (
    "each update takes the first rate",
    "this is `x` itself: no update has changed it",
)
RETURNED_EXCHANGED = "state and sum change places in each round"
UNPACKED_EXCHANGED = "state and sum are unpacked in the other order than they are returned"
OF_X, BACKWARDS = "each update starts from `x`", "the updates take the rates in reverse order"
OF_RATES = "each state is weighted by its rate, and the sum is divided by the sum of the rates"
BY_RATES = "the sum is divided by the sum of the rates, not by their number"
BY_THE_ROUNDS = "each update takes the number of its round as its rate"
ITSELF = "`update` gets the sum, not the state"
HALF = "in each round, half of the result is the new state: the early ones hardly count"
AVERAGES = tuple(f"each round keeps {kept} of the result: a moving average" for kept in KEPT)
EACH_TIME = "each round divides the sum by the number of updates"
FROM_X = ", which begins with `x`"
LAST_ALONE = "this is the last state alone"
SHIFTED = "the first rate is skipped, and the last one comes twice"
TWICE = "the first rate comes twice, and the last one never"
BY_ALL = "each state moves the mean by 1 part in the number of all updates"
LACKING, ONE_TOO_MANY = (
    "the sum lacks the last state",
    "there is one update too many, by the last rate again",
)
BY_ROWS = "there are as many updates as `x` has rows"
BEFORE = "the sum lacks the last state and contains `x`"
ROUNDS = frozenset((LACKING, ONE_TOO_MANY, "the first update is left out"))
"""What comes of another number of rounds."""
OF_UPDATE = frozenset((ONE_RATE, SHIFTED, BY_THE_ROUNDS, ITSELF, OF_X))
"""What comes of what `update` gets."""
TURNED = re.compile(r"\breverse\b|\bflip|::-1")
"""How a file turns the rates round, or the loop over them."""
IN_ORDER = (
    "The body returns the carry in the order in which it unpacks it. Which of the two is the first "
    "in each line?"
)
HINTS = {
    ONE_RATE: "jax.lax.scan gives each round one rate. Which rate does your update take?",
    RETURNED_EXCHANGED: IN_ORDER,
    UNPACKED_EXCHANGED: IN_ORDER,
    X_ALONE: "`update` changes nothing that it gets: it returns the new state. Where does that go?",
    OF_X: "Which state does `update` get in a round: the one in the carry, which the round before "
    "has returned there?",
    BACKWARDS: "The first update takes `rates[0]`. In which direction does your loop run?",
    BY_THE_ROUNDS: "The update of round i takes `rates[i]`: `i` is only where that rate stands.",
    ITSELF: "State and sum are two arrays of the carry. Which of them is made from the last state?",
    ALL_ZERO: "`update` makes 0 of 0. Does it get the state, which starts as `x`, or the sum?",
    **dict.fromkeys(
        (HALF, EACH_TIME, *AVERAGES, *(one + FROM_X for one in AVERAGES)),
        "Each state counts as much as another. Add them up, and divide once, after the loop.",
    ),
    **dict.fromkeys(
        (BY_ROWS, f"{BY_ROWS}, and the sum is divided by their number"),
        "There is one update for each rate. Which array says how many rounds your loop makes?",
    ),
    SHIFTED: "The update of round i takes `rates[i]`, counted from 0.",
    TWICE: "Which rates have been used before the first round, and which one does that round take?",
    BY_ALL: "The k-th state moves a running mean by 1/k of their difference. What is k in a round?",
    BEFORE: "Which state is added in each round: the one before the update, or the one it makes?",
    LAST_ALONE: "The mean needs the sum of all states. Where are they added up?",
}
"""The hints for known mistakes, where the check's own says less."""


RAN = (NAME, LONG, SHORT, FEWER, THOUSAND, AS_MANY)


def _compared(record: Record) -> tuple[str, ...]:
    """The programs that ran: of those that are written out, the short one alone."""
    return RAN if not grows(seen(record).facts[LENGTHS]) else (SHORT,)


BY_THE_SIZE = (
    "Whether the mean is right depends on the number of updates, or on the size of `x`. Which "
    "number in your code stands for one of them: a fixed count, the length of a piece, an `if`?"
)
OR_A_RATE = (
    "Whether the mean is right depends on the number of updates, on the size of `x`, or on a rate. "
    "Which number in your code stands for one of them: a fixed count, the length of a piece, an "
    "`if`, a limit?"
)
BY_THE_NUMBER = (
    "Whether the mean is right depends on the number of updates. Which number in your code stands "
    "for it: a fixed count, the length of a piece, an `if`, the dtype of a long sum?"
)


def _tolerances(name: str) -> tuple[float, float]:
    return (LONG_RTOL, LONG_ATOL) if name in (LONG, THOUSAND) else (RTOL, ATOL)


def _differing(name: str, mine: Measured, theirs: Measured) -> Failure | None:
    """How a mean differs from the reference's."""
    rtol, atol = _tolerances(name)
    return compare("mean", mine.outputs, theirs.outputs, "", "", rtol=rtol, atol=atol)


def _in_words(
    record: Record, failure: Failure, name: str, mine: Measured, theirs: Measured
) -> Failure:
    """The failure with its reason, or with the numbers of updates for which there is none."""
    place = statements.result(record, NAME)
    if failure.hint:  # it has another form
        return replace(failure, culprits=place)
    expected = f"{failure.expected}, for {_updates(record, name)}"
    expected += ", as many as `x` has rows" * (name == AS_MANY)
    both = {other: _both(record, other) for other in _compared(record)}
    right = {
        other: pair
        for other, pair in both.items()
        if isinstance(pair, tuple) and not _differing(other, *pair)
    }
    # Where the states hardly change, a mistake hardly shows: it must explain that, too. And it
    # must explain the other wrong means, where they are numbers; a long sum is rounded too often.
    judged = right | {
        other: pair
        for other, pair in both.items()
        if isinstance(pair, tuple) and other != LONG and _is_finite(pair[0])
    }
    known = {other: pair for other, pair in judged.items() if other not in UNKNOWN}
    explained = [_known_slips(record, other, *pair) for other, pair in known.items()]
    slips = _known_slips(record, name, mine, theirs)
    slip = next((one for one in slips if all(one in others for others in explained)), "")
    pieces = statements.remainder(record, NAME)
    in_pieces = pieces != definition(record, NAME)
    shown = any(_would_show(record, name, mine, theirs, other) for other in right)
    if not slip and (halved := _in_few_bits(record, mine, theirs)):
        return Failure(expected, f"{failure.observed}{NEARLY}", halved, FEW_BITS)
    if not slip and right and (in_pieces or shown):
        *most, last = (_updates(record, other) for other in right)
        numbers = f"{', '.join(most)} and {last}" if most else last
        observed = f"{failure.observed}; for {numbers}, the mean is right"
        odd = _by_parity(record, right, [other for other in both if other not in right])
        observed, hint = f"{observed}{odd}", BY_THE_SIZE if name == AS_MANY else BY_THE_NUMBER
        smaller = all(_bytes(record, name) > _bytes(record, other) for other in right)
        if smaller and not odd:
            observed, hint = f"{observed}, and `x` is smaller there", BY_THE_SIZE
        if name == SHORT and not odd:
            observed, hint = f"{observed}, and no rate is above 1", OR_A_RATE
        return Failure(expected, observed, pieces if in_pieces else place, hint)
    if not slip:
        place = statements.each_round(record, NAME) or place
        hint = BY_THE_NUMBER if name == LONG and len(right) == len(both) - 1 else ""
        hint = hint if _is_finite(mine) else NO_NUMBERS
        if failure.observed.endswith(ALL_ZERO):
            hint, place = HINTS[ALL_ZERO], statements.call(record, NAME, "update")
        return Failure(expected, failure.observed, definition(record, NAME), hint, place)
    plain = failure.observed.partition(": ")[0]
    return Failure(expected, f"{plain}: {slip}", _of_slip(record, slip), HINTS.get(slip, ""))


def _by_parity(record: Record, right: Iterable[str], wrong: Iterable[str]) -> str:
    """That right means have an even number of updates, and wrong ones an odd number; or ""."""
    sizes = wanted(record).facts[SIZES]
    even, odd = ({int(sizes[name][1]) % 2 for name in names} for names in (right, wrong))
    return OF_ODD * (even == {0} and odd == {1})


OF_ODD = ", and all of these numbers are even; where it is wrong, the number is odd"
NEARLY = ", by no more than rounding in half of the bits explains"
FEW_BITS = (
    "bfloat16 and float16 have few digits: what is added to a state in one update may be less than "
    "their last one. Which array does the marked line make of such numbers?"
)


def _in_few_bits(record: Record, mine: Measured, theirs: Measured) -> list[Culprit]:
    """The only line that names a dtype of 16 bits, where a mean is nearly right; or nothing."""
    lines = (line.partition("#")[0] for line in File(record.source).lines)
    named = [n for n, line in enumerate(lines, 1) if re.search(r"\bb?float16\b", line)]
    got, want = (load(one.outputs[0].data or b"").astype(float) for one in (mine, theirs))
    near = float(abs(got - want).max()) <= HALVED_BITS * float(abs(want).max())
    return [culprit(record, named[0])] if len(named) == 1 and near else []


HALVED_BITS = 2**-5
"""The part of its largest number by which a mean may be off where states have 8 bits."""


def _would_show(record: Record, name: str, mine: Measured, theirs: Measured, other: str) -> bool:
    """Whether what is wrong in the mean of `name` would show in the mean of `other`, if it were.

    Where one state is wrong, it counts for less, the more updates there are.
    """
    got, want = (load(one.outputs[0].data or b"").astype(float) for one in (mine, theirs))
    apart = float(abs(got - want).max()) / max(float(abs(want).max()), ATOL)
    sizes = wanted(record).facts[SIZES]
    fades = min(1.0, int(sizes[name][1]) / int(sizes[other][1]))
    return not apart * fades <= CLEAR * _tolerances(other)[0]


CLEAR = 10
"""So many times what rounding may do, a difference is seen."""


def _of_slip(record: Record, slip: str) -> list[Culprit]:
    """Where a known mistake is."""
    if slip == X_ALONE:  # a slip of the pen, which has its line
        return definition(record, NAME)
    if slip in OF_UPDATE or (slip == BACKWARDS and not TURNED.search(record.source)):
        return statements.call(record, NAME, "update")
    if "divided" in slip:
        return statements.division(record, NAME, "update") or statements.result(record, NAME)
    if "alone" in slip:
        return statements.result(record, NAME)
    loop = statements.call(record, NAME, "scan", "fori_loop", "while_loop")
    if slip in ROUNDS or slip.startswith(BY_ROWS):
        return statements.condition(record, NAME) or loop
    of_x = "`x`" in slip and slip != BEFORE and not slip.endswith(FROM_X)
    return loop if of_x else statements.each_round(record, NAME) or loop


def _bytes(record: Record, name: str) -> int:
    """How many bytes the `x` of a program has."""
    return int(wanted(record).facts[SIZES][name][0])


def _updates(record: Record, name: str) -> str:
    """`1,086 updates`: how many a program makes."""
    count = int(wanted(record).facts[SIZES][name][1])
    return f"{count:,} update{'s' * (count != 1)}"


def _known_slips(record: Record, name: str, mine: Measured, theirs: Measured) -> list[str]:
    """The known mistakes that give exactly these numbers; for some programs, none is known."""
    import numpy as np  # here: the command line starts without it

    if name in UNKNOWN:
        return []

    words = (
        X,
        FIRST,
        LAST,
        WEIGHTED,
        HALVED,
        DIVIDED,
        RATES,
        WITHOUT_FIRST,
        FIRST_RATE,
        ONE_MORE,
        BY_NUMBER,
        OF_THE_SUM,
        STUCK,
        REVERSED,
        *EXCHANGED,
        SKIPPED,
        REPEATED,
        SLOW,
        AS_ROWS,
        *SMOOTHED,
    )
    known = [leaf for word in words for leaf in wanted(record).values[f"{word} of {name}"]]
    leaves = [*mine.outputs[:1], *theirs.outputs[:1], *known]
    if any(leaf.data is None or leaf.shape != leaves[-1].shape for leaf in leaves):
        return []
    loaded = (load(leaf.data or b"").astype(float) for leaf in leaves)
    found, mean, x, first, last, weighted, halved, divided, *more = loaded
    rates, shortened, *sums = more
    updates = int(wanted(record).facts[SIZES][name][1])
    rtol, atol = _tolerances(name)
    scale = min(1.0, float(abs(mean).max()))
    slips = _slips(mean * updates, x, last, shortened, sums, updates)
    slips |= {
        "each state is multiplied by its rate, and the sum is not divided": weighted,
        "in each round, the sum is halved; then it is divided by the number of updates": halved
        / updates,
        OF_RATES: weighted / rates,
        "each state is weighted by its rate": weighted / updates,
        BY_RATES: mean * updates / rates,
        HALF: halved,
        EACH_TIME: divided,
        "the sum lacks the first state": mean - first / updates,
        "the first state is left out, of the sum and of the number": (mean * updates - first)
        / max(updates - 1, 1),
    }
    with np.errstate(invalid="ignore"):  # some sums are infinite
        return [
            said
            for said, value in slips.items()
            if (abs(found - value) <= atol * scale + rtol * abs(value)).all()
        ]


def _slips(
    total: Any, x: Any, last: Any, shortened: Any, sums: list[Any], updates: int
) -> dict[str, Any]:
    """What known mistakes make of `total`, the sum of the states; all arrays are like `x`.

    `shortened` is the sum without the first update. Of `sums`, the first takes one rate alone, the
    second has an update more, by the last rate again, the third takes numbers as rates, the fourth
    updates itself, the fifth updates `x` each time, the sixth takes the rates in reverse, in the
    next two state and sum change places, and then one skips the first rate, one takes it twice, one
    is no sum, but a mean that moves too slowly, and one has an update for each row of `x`. The last
    are moving averages.
    """
    first_rate, longer, numbered, of_itself, stuck, reversed_, *exchanged = sums[:8]
    skipped, repeated, slow, of_rows, *smoothed = sums[8:]
    others = max(updates - 1, 1)
    return {
        "the first update is left out": shortened / updates,
        "the first update is left out, of the sum and of the number": shortened / others,
        ONE_RATE: first_rate / updates,
        BY_THE_ROUNDS: numbered / updates,
        ITSELF: of_itself / updates,
        OF_X: stuck / updates,
        BACKWARDS: reversed_ / updates,
        RETURNED_EXCHANGED: exchanged[0] / updates,
        UNPACKED_EXCHANGED: exchanged[1] / updates,
        SHIFTED: skipped / updates,
        TWICE: repeated / updates,
        BY_ALL: slow,
        BY_ROWS: of_rows / updates,
        f"{BY_ROWS}, and the sum is divided by their number": of_rows / len(x),
        **dict(zip(AVERAGES, smoothed, strict=True)),
        **{
            words + FROM_X: mean + kept**updates * x
            for words, kept, mean in zip(AVERAGES, KEPT, smoothed, strict=True)
        },
        LAST_ALONE: last,
        X_ALONE: x,
        "this is the last state alone, divided by the number of updates": last / updates,
        "the changes of the state are added up, not the states": (last - x) / updates,
        "this is `x` alone, divided by the number of updates": x / updates,
        ONE_TOO_MANY: longer / updates,
        "this is the sum, not divided by the number of updates": total,
        "this is the sum with `x` in it, and it is not divided": total + x,
        "`x` is counted as one state more": (total + x) / (updates + 1),
        "`x` is in the sum, but not in the number of states": (total + x) / updates,
        BEFORE: (total + x - last) / updates,
        LACKING: (total - last) / updates,
        "the last state is left out, of the sum and of the number": (total - last) / others,
        "the sum is divided by one too few": total / others,
        "the sum is divided by one too many": total / (updates + 1),
        "the sum is divided by 1000, not by the number of updates": total / 1000,
        "the sum is divided by the number of updates twice": total / updates**2,
        "the sum is divided by the rows of `x`, not by the number of updates": total / len(x),
    }


@EXERCISE.check(
    ground="observed",
    after=("same_mean",),
    hints=("A donated array is deleted by the call. Who else uses `x`?",),
)
def arguments_stay(record: Record) -> Result:
    """The call leaves `x` and `rates` to its caller."""
    if not seen(record).facts[DONATED]:
        return None
    expected = "`x` and `rates` belong to the caller, who may call the function with them again"
    place = statements.matching(record, NAME, r".*\bdonate_arg") or definition(record, NAME)
    return Failure(expected, "`mean_of_updates` donates an argument, and so deletes it", place)


WRITTEN_OUT = (
    "A loop of Python is written out when the function is traced: each round becomes operations of "
    "the program, and each array in a list is kept. A loop of jax.lax stands there once."
)


@EXERCISE.check(
    ground="program",
    after=("same_mean",),
    hints=(
        "Which array grows with the number of updates? The second result of a scan does: it is "
        "stacked, one array for each round. vmap stacks, too.",
        "Keep the sum in the carry, and return None beside it.",
    ),
)
def constant_memory(record: Record) -> Result:
    """The program needs a few arrays like `x`, not one for each update."""
    lengths = seen(record).facts[LENGTHS]
    if grows(lengths):
        (few, some), (many, more) = ((lengths[n], _updates(record, n)) for n in (NAME, LONG))
        observed = f"{few:,} operations are written out for {some}, and {many:,} for {more}"
        expected = "as many operations for many updates as for few"
        loop = statements.rounds(record, NAME)
        loop = loop or statements.call(record, NAME, "reduce", "accumulate")
        return Failure(expected, observed, loop, WRITTEN_OUT)
    most = (HUGE,) if not seen(record).facts[NUMBERED] else ()
    for name in (*RAN, *MORE, *most):
        array, updates = map(int, wanted(record).facts[SIZES][name])
        expected = f"room for a few arrays like `x`, for {updates:,} updates"
        if not isinstance(both := _both(record, name), tuple):
            return both if isinstance(both, Unable) else replace(both, expected=expected)
        mine, theirs = both
        if mine.memory is None or theirs.memory is None:
            return Unable("this backend does not say how much memory a program needs")
        need, reference = (_room(memory) - 4 * updates for memory in (mine.memory, theirs.memory))
        if need > reference + ROOM * array + NUMBERS * 4 * updates:
            arrays = reference // array + ROOM
            return Failure(
                f"room for at most {arrays} arrays like `x`, for {updates:,} updates",
                f"room for {need // array:,} of them: {need:,} bytes",
                _keeping(record),
            )
    return _kept_by_a_loop(record)


def _kept_by_a_loop(record: Record) -> Failure | None:
    """The failure where a loop of many updates carries or stacks more than a few arrays."""
    kept = seen(record).facts[KEPT_BY_LOOPS]
    if kept <= ABOUT_TEN:
        return None
    return Failure(
        f"a loop over millions of updates keeps at most {ABOUT_TEN} arrays like a small `x`",
        f"it keeps as much as {kept:,} of them",
        _keeping(record),
    )


def _keeping(record: Record) -> list[Culprit]:
    """Where arrays are kept: what a scan stacks, else the loop."""
    loop = statements.call(record, NAME, "scan", "vmap", "map", "fori_loop")
    return statements.stacked(record, NAME) or loop


def _room(memory: Memory) -> int:
    """Bytes that a program needs, in the memory of the device or of the host."""
    return room(memory) + memory.host_outputs + memory.host_temporaries
