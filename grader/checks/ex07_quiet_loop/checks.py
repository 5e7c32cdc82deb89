"""Checks of ex07_quiet_loop: steps, numbers, reads and waits between steps, and the time."""

from collections.abc import Iterator
from dataclasses import replace
from math import copysign
from typing import Any

from grader.checks.ex07_quiet_loop import EXERCISE
from grader.checks.ex07_quiet_loop.facts import (
    AHEAD,
    ALTERED,
    CALLS,
    HIDES,
    MISSED,
    NOT_FED_BACK,
    RUNS,
    WAITED,
    gave,
    last,
    phase,
)
from grader.judging.arrays import FORM, compare, load
from grader.judging.checking import Failure, Result
from grader.judging.evidence import (
    calls_of,
    culprits,
    definition,
    events,
    hidden_error,
    probe_gap,
    seen,
    timing_result,
    waits_in_words,
    wanted,
    weight,
)
from grader.judging.loops import and_few_compile
from grader.judging.results import differing_leaf
from grader.judging.words import plural, typed
from grader.records.record import POLLED, UNWAITED, Event, Record
from grader.records.verdict import Culprit
from grader.source import statements

LOOKAHEAD = 2
"""How many batches after its own may have been taken when a step begins."""


def _lengths(record: Record) -> list[int]:
    """The steps of each watched run, as the reference's side drew them."""
    lengths: list[int] = wanted(record).facts[RUNS]
    return lengths


def _runs(record: Record) -> str:
    *others, final = map(str, _lengths(record))
    count = ("one run", "two runs", "three runs", "four runs")[len(others)]
    return f"{count}, of {', '.join(others)} and {final} steps"


def _counts(record: Record, name: str) -> Iterator[tuple[int, Any]]:
    """The steps of each run, and a count, or a list, that its drive took down."""
    yield from zip(_lengths(record), seen(record).facts[name], strict=True)


@EXERCISE.check(
    ground="observed",
    hints=(
        "`step` is the first argument of `train`. It is called once for each batch, and not for "
        "trial.",
    ),
)
def one_step_for_each_batch(record: Record) -> Result:
    """`train` calls `step`, which it was given, once for each batch."""
    counts = zip(_counts(record, CALLS), seen(record).facts[MISSED], strict=True)
    for ((steps, calls), missed), (_, ahead) in zip(counts, _counts(record, AHEAD), strict=True):
        if steps != calls:
            behind = missed == [steps - 1] and ahead > 1
            taken = calls_of(record, ["step"] if calls > steps else ["next", "islice"])
            if calls and missed == [*range(calls, steps)] and len(missed) > 1:
                return Failure(
                    f"{plural(steps, 'call')} of `step` in a run of {plural(steps, 'batch')}",
                    f"{plural(calls, 'call')}: the loop ended before the batches did",
                    statements.leaving(record, "train") or definition(record, "train"),
                    ENDED,
                )
            alternate = len(missed) > 1 and len({number % 2 for number in missed}) == 1
            if alternate and calls > 1 and abs(2 * calls - steps) <= 1:
                return Failure(
                    f"{plural(steps, 'call')} of `step` in a run of {plural(steps, 'batch')}",
                    f"{plural(calls, 'call')}: every second batch got none",
                    calls_of(record, ["next"]) or definition(record, "train"),
                    EVERY_SECOND,
                )
            return Failure(
                f"{plural(steps, 'call')} of `step` in a run of {plural(steps, 'batch')}",
                plural(calls, "call") + _left_out(missed, steps),
                taken if calls > steps or len(taken) == 1 else definition(record, "train"),
                LEFT if behind else "",
            )
    if hidden := seen(record).facts.get(HIDES):
        observed = "`train` returned losses, as if no batch had been left"
        return hidden_error(record, "train", f"`{hidden[0]}`", observed)
    return None


ENDED = "Each batch gets its step, whatever its loss is. Which line ends the loop, and when?"
EVERY_SECOND = "A `for` takes a batch for each round. Which other line takes one?"
LEFT = (
    "Each step of the loop gets the batch that was taken a round before. After the last round, one "
    "batch is left: which step gets it?"
)


def _left_out(missed: list[int], steps: int) -> str:
    """`: the last batch gets none`, where one batch or a few get no step."""
    named = {0: "the first batch", steps - 1: "the last batch"}
    words = [named.get(number, f"batch {number}, from 0,") for number in missed]
    return f": {' and '.join(words)} got none" if 0 < len(words) <= 2 else ""


@EXERCISE.check(
    ground="observed",
    hints=(
        "Take the batches one at a time, as they come: a list of them, or of a dozen, is prepared "
        "whole before its first step.",
    ),
)
def batches_as_they_come(record: Record) -> Result:
    """Batches are taken as the steps need them, and not all before the first step."""
    for steps, ahead in _counts(record, AHEAD):
        if ahead - 1 > LOOKAHEAD:
            return Failure(
                f"when a step begins, at most {LOOKAHEAD} batches after its own have been taken",
                f"in a run of {steps} batches, {ahead - 1} had been taken beyond that of the step "
                "that began",
                statements.taken(record, "train", "batches"),
            )
    return None


FLOATS = (
    "`losses` is a list of plain Python floats, one for each batch. An array is not a float, "
    "neither JAX's nor NumPy's."
)
NOT_CALLED = "`f` is the function, and `f()` what it returns."
GO_ON = "Each step starts from the params that the step before returned. Where do they go?"
NEWEST = (
    "`pop()` takes what was appended last. The loss that has waited longest stands first: pop(0) "
    "of a list takes it, and popleft() of a deque."
)
SCALED = "times as much everywhere"
"""The given `step` multiplies each loss of `sgd_step`: these are such losses, not multiplied."""


@EXERCISE.check(
    ground="observed",
    after=("one_step_for_each_batch",),
    hints=(
        "`losses[i]` is the loss that `step` returned with batch i. Which value stands there?",
        FLOATS,
        "float() waits for an array and turns it into a number. After the loop, waiting costs "
        "nothing.",
    ),
)
def same_losses(record: Record) -> Result:
    """The losses are the reference's: floats of Python or NumPy, one for each batch, in order."""
    for steps in _lengths(record):
        name = f"losses of {steps}"
        failure = _not_floats(record, name) or differing_leaf(record, name, rtol=1e-4, atol=1e-6)
        if failure and failure.observed.endswith(SCALED):
            observed = (
                f"{failure.observed}, as if another function than the given `step` had returned it"
            )
            failure = replace(failure, observed=observed)
        if failure and failure.observed.endswith(NOT_FED_BACK):
            failure = replace(failure, hint=GO_ON)
        if failure and (popped := _newest_first(record, steps)):
            return replace(_in_words(record, failure, steps), made=popped, hint=NEWEST)
        if failure or (failure := _rounded(record, steps)):
            return _in_words(record, failure, steps)
    return None


def _newest_first(record: Record, steps: int) -> list[Culprit]:
    """The `pop()` of `train`, where the losses are those of all steps, in another order."""
    popped = statements.call(record, "train", "pop")
    if not any(".pop()" in place.text for place in popped):
        return []
    found, given = (
        sorted(float(load(leaf.data or b"")) for leaf in seen(record).values[name])
        for name in (f"losses of {steps}", gave(steps))
    )
    return popped if found == given else []


def _rounded(record: Record, steps: int) -> Failure | None:
    """The failure for a loss that is near to the one that `step` returned, and not the same."""
    name = f"losses of {steps}"
    returned, own = seen(record).values[gave(steps)], seen(record).values[name]
    failure = compare(name, own, returned, "", "", rtol=0, atol=0)
    for leaf, right in () if failure else zip(own, returned, strict=True):
        mine, theirs = (float(load(one.data or b"")) for one in (leaf, right))
        if mine == theirs == 0 and copysign(1, mine) != copysign(1, theirs):
            failure = Failure(f"`losses{leaf.path}` is {theirs}", f"{mine}: the sign is lost")
    return failure and replace(failure, hint=ROUNDED)


ROUNDED = "The loss is returned as it is. Which line computes with it, or rounds it?"


def _in_words(record: Record, failure: Failure, steps: int) -> Failure:
    """The failure with the run it is of: `losses[3]`, in a run of 17 batches."""
    expected = f"{failure.expected}, in a run of {plural(steps, 'batch')}"
    index = int("`params" not in failure.expected)
    made = statements.result(record, "train", index, 2) if failure.hint != FORM else ()
    return replace(failure, expected=expected, culprits=definition(record, "train"), made=made)


def _not_floats(record: Record, name: str) -> Failure | None:
    if name in seen(record).values and seen(record).forms.get(name, [""])[0] == "mapping":
        return Failure("`losses` is a list of floats", "it is a dict, as `params` is", (), FORM)
    for leaf in seen(record).values.get(name, ()):
        if leaf.kind == "jax":
            observed = f"`losses{leaf.path}` is still a jax.Array"
            return Failure("losses are floats", observed, (), FLOATS)
        if leaf.type not in ("float", "float32", "float64"):
            told = typed(leaf.type)
            hint = NOT_CALLED if told.endswith("not called") else FLOATS
            return Failure("losses are floats", f"`losses{leaf.path}` is {told}", (), hint)
    return None


@EXERCISE.check(
    ground="observed",
    after=("one_step_for_each_batch", "same_losses"),
    hints=("The losses are right, so each step had the right params. Which does `train` return?",),
)
def same_params(record: Record) -> Result:
    """Each step gets, and training ends with, the parameters that the step before returned."""
    for steps, altered in _counts(record, ALTERED):
        name = f"params after {steps}"
        failure = differing_leaf(record, name, rtol=1e-4, atol=1e-6)
        if not failure and (theirs := seen(record).values.get(last(steps))):
            failure = compare(name, seen(record).values[name], theirs, "", "", rtol=0, atol=0)
        if failure:
            return _in_words(record, failure, steps)
        if read := [leaf for leaf in seen(record).values[name] if leaf.kind != "jax"]:
            expected = f"the last step returned `params{read[0].path}` as a jax.Array"
            observed = f"`train` returns {typed(read[0].type)}: it was copied to the host"
            made = statements.result(record, "train", 0, 2)
            return Failure(expected, observed, definition(record, "train"), ON_DEVICE, made)
        if altered:
            observed = f"in a run of {plural(steps, 'batch')}, step {altered[0] + 1} got others"
            made = statements.argument(record, "train", "step", 0)
            return Failure("each step gets what the step before returned", observed, made, GO_ON)
    return None


ON_DEVICE = "`params` stay where they are. Which call brings them to the host?"


def _in_loop(record: Record, found: Iterator[Event]) -> list[Event]:
    """Events after the first step and before the last: those a step had to wait for."""
    steps = {phase(length): length for length in _lengths(record)}
    return [e for e in found if 0 < e.step < steps.get(e.phase, 0)]


@EXERCISE.check(
    ground="observed",
    after=("one_step_for_each_batch",),
    hints=(
        "float(), np.asarray(), .item(), print() and `if loss < x` all wait for the device.",
        "A loss may be read late: call loss.copy_to_host_async() after its step, and read it "
        "after the next step has been called.",
        "Or read no loss in the loop: append the array itself, and read the list after the loop.",
    ),
)
def no_reads_in_loop(record: Record) -> Result:
    """No step waits for a device-to-host read, and only single numbers are read between steps."""
    gap = probe_gap(seen(record), "reads")
    found = _in_loop(record, events(seen(record), "d2h"))
    reads = [e for e in found if e.detail not in UNWAITED]
    if not reads:
        return _larger_than_losses(record, found) or gap
    total = sum(event.count for event in reads)
    started = "copy_to_host_async" in record.source
    places = culprits(record, reads)
    called_back = bool(places) and "callback" in places[0].text
    return Failure(
        "no read between the steps, except of an array whose copy_to_host_async was called "
        "a step before",
        f"{plural(total, 'read')} between the steps of {_runs(record)}",
        places,
        CALLED_BACK if called_back else STARTED if started else "",
    )


LOSS = 16
"""So many bytes of reads a step are single numbers: a loss, perhaps twice, or another one."""
OF_PARAMS = "A loss is a single number. Which line reads more, and who needs that on the host?"


def _larger_than_losses(record: Record, found: list[Event]) -> Failure | None:
    """The failure if a run reads more in its loop than the losses of its steps."""
    for steps in _lengths(record):
        reads = [event for event in found if event.phase == phase(steps)]
        if (nbytes := weight(reads)[1]) > LOSS * steps:
            expected = f"between the steps of a run of {steps}, nothing larger than a loss is read"
            observed = f"{nbytes:,} bytes are read there, {nbytes // steps:,} a step"
            return Failure(expected, observed, culprits(record, reads), OF_PARAMS)
    return None


CALLED_BACK = (
    "A callback gets its value on the host, in each step, and nothing says that the last one has "
    "come when `train` returns. Append the loss itself, and read it after the loop."
)
STARTED = (
    "A copy that has just started is not done: the read waits for it. Which loss is read here, and "
    "was the next step called after its copy had started?"
)


POLLING = "Asking an array again and again whether it is ready is a wait, too."


@EXERCISE.check(
    ground="observed",
    after=("no_reads_in_loop",),
    hints=(
        "block_until_ready is a wait like any other: it belongs after the loop, if anywhere.",
        POLLING,
    ),
)
def no_waits_in_loop(record: Record) -> Result:
    """No step waits for the device, by block_until_ready or by any other means."""
    gap = probe_gap(seen(record), "reads")
    waits = _in_loop(record, events(seen(record), "wait"))
    if waits:
        return Failure(
            "no wait between the steps",
            f"{waits_in_words(waits)} between the steps of {_runs(record)}",
            culprits(record, waits),
            POLLING if all(event.detail == POLLED for event in waits) else "",
        )
    if waited := seen(record).facts[WAITED]:
        return Failure(
            "`train` calls the next step while the device is busy with this one",
            f"while step {waited[0]} was busy, `train` waited for it, and called no other",
            definition(record, "train"),
        )
    return gap


@EXERCISE.check(
    ground="timing",
    hints=(
        "While the device works on a step, the host can prepare the next batch. What in your "
        "code keeps the two from overlapping?",
        "What else does the loop do for each batch, and could it be done after the last one?",
    ),
    anchor="read-one-step-late",
)
def as_fast_as_the_reference(record: Record) -> Result:
    """Apart from preparing batches, steps take at most twice the reference's time, and few compile.

    A timed run compiles nothing that another run compiled before, so compiles are counted, too.
    """
    timed = timing_result(record, "loop", "a step, apart from preparing its batch,")
    compiles = ((e.step, e) for e in _in_loop(record, events(seen(record), "compile")))
    return and_few_compile(record, timed, compiles, _runs(record))
