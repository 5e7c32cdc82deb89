"""Reads the calls of a training loop: the order of its reads, copies, steps and stops.

Pure functions of records, for the checks of exercises with such a loop. The calls were
written down by `grader.stages.loop`.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from grader.judging.arrays import compare, label, load
from grader.judging.checking import Failure, Result
from grader.judging.evidence import culprits, events, hidden_error, probe_gap, seen, wanted
from grader.judging.words import plural, typed, where
from grader.records.record import Event, Record
from grader.records.verdict import Culprit

Call = tuple[str, int]
"""What was called, and the index of the batch or loss it was called with."""
FLOATS = ("float", "float32", "float64")
"""Types of numbers on the host, Python's and NumPy's."""


def calls_of(record: Record, name: str) -> list[Call]:
    """The calls of one run, as `Book.keep` left them: fact `calls of {name}`."""
    return [(what, index) for what, index in seen(record).facts[f"calls of {name}"]]


def calls_of_the_reference(record: Record, name: str) -> list[Call]:
    """The same calls of the reference."""
    return [(what, index) for what, index in wanted(record).facts[f"calls of {name}"]]


def runs_of(record: Record) -> dict[str, int]:
    """The name of each run that was driven, and its number of batches.

    They are drawn; the reference's process, which drew the same, is asked.
    """
    return {str(name): int(count) for name, count in wanted(record).facts["runs"].items()}


def uncalled(record: Record, name: str) -> tuple[str, str] | None:
    """(expected, observed) if the loop did not call `step` as often as the reference's did."""
    theirs = [what for what, _ in wanted(record).facts[f"calls of {name}"]].count("step")
    mine = [what for what, _ in calls_of(record, name)].count("step")
    if mine == theirs:
        return None
    expected = f"`train` calls the `step` it is given {plural(theirs, 'time')}"
    return expected, f"it calls it {plural(mine, 'time')} (run of {name})"


NO_STEP_FOLLOWS = "`stop` returns True or False. Where it returns True, the loop has to end."
OF_NUMPY = (
    "NumPy's True equals True, but it is another object. `is` asks for the object, and `if "
    "stop(loss):` for the value."
)
WENT_ON = "the loop went on after `stop` had returned True"


def ending_hint(place: Sequence[Culprit]) -> str:
    """The hint where a loop took the answer of `stop` wrongly, at this place."""
    asked = re.compile(r"\bis (not )?(True|False)\b")
    return OF_NUMPY if any(asked.search(one.text) for one in place) else NO_STEP_FOLLOWS


def went_on(record: Record, name: str) -> bool:
    """Whether `stop` was asked again after it had ended the reference's loop."""
    mine, theirs = (
        len(indices(calls(record, name), "stop")) for calls in (calls_of, calls_of_the_reference)
    )
    return any(when in name for when in ("stopped early", "stopped later")) and mine > theirs


def indices(calls: list[Call], what: str) -> list[int]:
    """The index of the batch in each call of one kind, in order."""
    return [index for kind, index in calls if kind == what]


def most_ahead(calls: list[Call], what: str) -> int:
    """The most batches that were ever ahead: asked for, read or put, with no step yet."""
    changes = ((kind == what) - (kind == "step") for kind, _ in calls)
    return max(accumulate(changes), default=0)


NAMED = 1, 2
"""So many batches that had their step, and so many times the params, may be on the device when a
step begins: the params that the step gets, and what one more name holds of the step before."""


def kept(record: Record, name: str) -> tuple[str, str] | None:
    """(expected, observed) if batches or params stayed on the device after their step.

    What is alive is held against the batches that wait for their step, and what names may hold.
    """
    batch, params = wanted(record).facts["bytes of a batch and of params"][name]
    allowed = NAMED[0] * batch + NAMED[1] * params
    waiting, over = 0, list[tuple[int, int]]()
    alive = iter(seen(record).facts[f"alive in {name}"])
    for what, index in calls_of(record, name):
        waiting += what == "put"
        if what == "step":
            over.append((next(alive) - waiting * batch, index))
            waiting -= 1
    most, step = max(over, default=(0, 0))
    expected = "batches and params leave the device when their step has run"
    if most <= allowed:
        aged = next(iter(seen(record).facts[f"aged in {name}"]), None)
        return aged and (
            expected,
            f"when step {aged[0]} begins, something that step {aged[1]} was given is still there "
            f"(run of {name})",
        )
    return expected, (
        f"when step {step} begins, {most:,} bytes are there besides the batches that wait for "
        f"their step; a batch is {batch:,} bytes, what a step updates {params:,} (run of {name})"
    )


def early_step(calls: list[Call]) -> int | None:
    """The first step that began before `stop` was asked about the loss of the step before."""
    turns = [what for what, _ in calls if what in ("step", "stop")]
    for place, pair in enumerate(pairwise(turns), 1):
        if pair == ("step", "step"):
            return turns[:place].count("step")
    return None


def unjudged(record: Record, name: str, *, all_steps: bool = True) -> tuple[str, str] | None:
    """(expected, observed) if `stop` did not get each loss, as a float, before the next step.

    Of the last step, too, if `all_steps` is asked.
    """
    if "step" not in (what for what, _ in calls_of(record, name)):
        return uncalled(record, name)
    if (early := early_step(calls_of(record, name))) is not None:
        expected = f"`stop` judges the loss of step {early - 1} before step {early}"
        if not indices(calls_of(record, name), "stop"):
            return expected, f"`stop` was never called (run of {name})"
        return expected, f"step {early} ran first (run of {name})"
    losses = _losses(record, name)
    for step, kind, value in seen(record).facts[f"told in {name}"]:
        same = [i for i, loss in enumerate(losses) if _alike(loss, float(value))]
        if kind not in FLOATS or step not in same:
            got = f"the loss of step {same[0]}" if same else "a number that is no step's loss"
            so_far = losses[: step + 1]
            if not same and so_far and _alike(sum(so_far) / len(so_far), float(value)):
                got = "the mean of the losses so far"
            if not same and so_far and (digits := digits_kept(so_far[-1], float(value))):
                got = f"{ROUNDED} at digit {digits} after the point"
            got += "" if kind in FLOATS else f", as {typed(kind)}"
            expected = f"after step {max(step, 0)}, `stop` gets its loss, a float"
            return expected, f"it got {got} (run of {name})"
    return _without_the_last(record, name, len(losses)) if all_steps else None


ROUNDED = "that loss, rounded"
AS_IT_IS = "`stop` gets each loss as it is, and so does `losses`. Which line cuts digits off?"


def digits_kept(loss: float, value: float) -> int:
    """To how many digits after the point a loss was rounded; 0 if it was not."""
    found = (digits for digits in range(1, 8) if value and value == round(loss, digits))
    return next(found, 0)


THE_LAST = "The last step has a loss, too. Which step is followed by no call of `stop`?"


ONE_MORE = (
    "A batch that is on its way when `stop` ends the loop gets no step. Which line calls `step` "
    "once more?"
)


def stop_hint(expected: str) -> str:
    """The hint for what `unjudged` expected, where it is about the last step; else ""."""
    if expected.startswith("no step follows"):
        return ONE_MORE
    return THE_LAST if expected.endswith("the last one") else ""


def _without_the_last(record: Record, name: str, steps: int) -> tuple[str, str] | None:
    """(expected, observed) if `stop` was not called after the last of so many steps."""
    told = {step for step, *_ in seen(record).facts[f"told in {name}"]}
    last = steps - 1
    if last in told:
        return None
    if ran_on(record, name):
        expected = "no step follows once `stop` has returned True"
        return expected, f"step {len(told)} ran after that (run of {name})"
    ended = f"it was called after {plural(len(told), 'step')} of {steps}"
    observed = ended if told else "`stop` was never called"
    return f"`stop` judges the loss of step {last}, the last one", f"{observed} (run of {name})"


def left_out(record: Record, name: str) -> str:
    """That the losses which are no finite numbers are not among those returned, if that is all."""
    losses = _losses(record, name)
    returned = [float(load(leaf.data or b"")) for leaf in seen(record).values[f"losses of {name}"]]
    finite = [loss for loss in losses if math.isfinite(loss)]
    pairs = zip(returned, finite, strict=False)
    if len(returned) == len(finite) < len(losses) and all(_alike(*pair) for pair in pairs):
        return f"the {plural(len(losses) - len(finite), 'loss')} that are NaN or infinite"
    return ""


WHATEVER = "Each step has its loss, whatever it is. Which condition keeps some of them out?"


def ran_on(record: Record, name: str) -> bool:
    """Whether a step ran after `stop` had ended the loop, and nobody asked `stop` about it."""
    if "stopped" not in name:
        return False
    mine = calls_of(record, name)
    stops = len(indices(mine, "stop"))
    theirs = indices(calls_of_the_reference(record, name), "stop")
    return 0 < stops == len(theirs) < len(indices(mine, "step"))


def rounded(record: Record, name: str) -> tuple[str, str] | None:
    """(expected, observed) for the first loss that was returned and is not the step's own number.

    Losses are as many as the steps, and nearly theirs: that was compared before.
    """
    losses = _losses(record, name)
    returned = seen(record).values[f"losses of {name}"]
    for step, (loss, leaf) in enumerate(zip(losses, returned, strict=False)):
        got = float(load(leaf.data or b""))
        if not _alike(got, loss):
            expected = f"`losses{leaf.path}` is what step {step} returned, {loss:.9g}"
            return expected, f"{got:.9g} (run of {name})"
    return None


def _losses(record: Record, name: str) -> list[float]:
    """The loss of each step of a run."""
    return [float(loss) for loss in seen(record).facts[f"losses in {name}"]]


def _alike(one: float, other: float) -> bool:
    """Whether two numbers are one, but for rounding to float32; NaN is NaN."""
    return math.isclose(one, other, rel_tol=1e-6) or (math.isnan(one) and math.isnan(other))


def not_the_last(record: Record, name: str, kept: str) -> Failure | None:
    """The failure where what a run returned, kept as `kept`, is not what its last step returned."""
    values = seen(record).values
    mine, last = values[kept], values[f"last in {name}"]
    failure = compare(kept, mine, last, "", "", rtol=0, atol=0)
    for leaf, right in zip(mine, last, strict=True) if failure is None else ():
        if where(leaf) != where(right):
            expected = f"{label(kept, leaf.path)} is on {where(right)}"
            return Failure(expected, f"it is on {where(leaf)}", (), HANDED_ON)
    return failure and replace(failure, hint=HANDED_ON)


HANDED_ON = (
    "`train` returns what the last step returned, as it is. Which line makes it another one?"
)


def hidden(record: Record) -> Failure:
    """The failure of a loop that returned though a batch could not be read."""
    observed = "`train` returned, though a batch could not be read"
    return hidden_error(record, "train", "a read", observed)


def misplaced(record: Record, name: str) -> tuple[str, str] | None:
    """(expected, observed) if a step did not get what `put` returned for its batch, or if a batch
    was asked for or put more than once."""
    calls = calls_of(record, name)
    for step, batch in enumerate(indices(calls, "step")):
        if batch != step:
            theirs = f"what `put` returned for batch {batch}"
            got = theirs if batch >= 0 else "a batch that `put` did not return"
            return f"step {step} gets what `put` returned for batch {step}", f"it got {got}"
    for what, verb in (("ask", "asked for"), ("put", "put")):
        found = indices(calls, what)
        again = next((batch for batch in found if found.count(batch) > 1), None)
        if again is not None:
            named = f"batch {again}" if again >= 0 else "something that was not read"
            return f"each batch is {verb} once", f"{named} is {verb} {found.count(again)} times"
    return None


def disordered(record: Record, name: str) -> tuple[str, str] | None:
    """The function that got another batch than the next one, `ask` or `put`, and that in words."""
    calls = calls_of(record, name)
    for what in ("ask", "put"):
        for following, index in enumerate(indices(calls, what)):
            if index != following:
                got = f"batch {index}" if index >= 0 else "something that was not read"
                return what, f"`{what}` got {got} where batch {following} was next"
    return None


def stalls(record: Record, name: str, count: int) -> Iterator[tuple[int, Event | None]]:
    """Steps whose loss was waited for before the next of `count` batches was put.

    Each comes with the read that waited; None if only the call of `stop` shows that.
    """
    calls = calls_of(record, name)

    def stalled(place: int) -> int | None:
        before = calls[:place]
        steps = len(indices(before, "step"))
        return steps - 1 if 0 < steps < count and steps not in indices(before, "put") else None

    reads = [e for e in events(seen(record), "d2h", "wait") if e.phase == name]
    places: list[tuple[int, Event | None]] = [(e.step, e) for e in reads]
    places += [(place, None) for place, (what, _) in enumerate(calls) if what == "stop"]
    for place, event in places:
        if (step := stalled(place)) is not None:
            yield step, event


FIRST_COMPILES = 2
"""Up to this step, a loop that compiles nothing anew may compile."""
NOW_AND_THEN = 8
"""So many later steps may compile: what is done now and then, and not at each step."""
ANEW = (
    "A compile takes longer than a step. Nothing is compiled yet for the function that a call of "
    "jax.jit makes, or for an array of a shape that is new."
)


def and_few_compile(
    record: Record, timed: Result, compiles: Iterable[tuple[int, Event]], runs: str
) -> Result:
    """What the timing of a loop gave, or the failure of one that compiles on and on.

    A timed run compiles nothing that another run compiled before, so compiles are counted, too:
    each of them comes with the number of steps before it. `runs` says in which runs that is.
    """
    late = [(step, event) for step, event in compiles if step > FIRST_COMPILES]
    again = [event for _, event in late]
    total = plural(sum(event.count for event in again), "compile")
    observed = f"{total} between the steps of {runs}"
    if isinstance(timed, Failure) and again:
        observed = f"{timed.observed}; {observed}"
        return Failure(timed.expected, observed, culprits(record, again), ANEW)
    if len({(event.phase, step) for step, event in late}) > NOW_AND_THEN:
        return Failure("only the first steps compile", observed, culprits(record, again), ANEW)
    return timed or probe_gap(seen(record), "compiles")
