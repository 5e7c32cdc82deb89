"""Checks of ex27_prefetch: the numbers, the order of the loop's calls and waits, and the time."""

import ast
from dataclasses import replace

from grader.checks.ex27_prefetch import EXERCISE
from grader.checks.ex27_prefetch.facts import AHEAD, GIVEN_LAST, HIDES, READ_IN_STEPS, depths
from grader.judging.arrays import FORM
from grader.judging.checking import Failure, Result
from grader.judging.evidence import (
    culprits,
    definition,
    events,
    probe_gap,
    seen,
    timing_result,
    wanted,
)
from grader.judging.loops import (
    AS_IT_IS,
    FLOATS,
    NO_STEP_FOLLOWS,
    ROUNDED,
    WENT_ON,
    WHATEVER,
    and_few_compile,
    calls_of,
    disordered,
    ending_hint,
    hidden,
    indices,
    kept,
    left_out,
    misplaced,
    most_ahead,
    not_the_last,
    rounded,
    runs_of,
    stalls,
    stop_hint,
    uncalled,
    unjudged,
    went_on,
)
from grader.judging.memory import HELD, left
from grader.judging.results import differing_leaf
from grader.judging.words import plural, typed
from grader.records.record import Event, Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File

KEPT = "Each step starts with the params that the step before returned, and with the next batch."
"""The hint where every batch had its step, and the numbers are wrong."""
DROPPED = "`put` returns the device arrays: the next step needs them."
NEXT = "Batches are asked for, put and trained on in one order: 0, 1, 2 and so on."
ALL_ASKED = (
    "Every batch is asked for. Which condition decides whether one more is, and for the last?"
)
EACH_LOSS = "Each step has its loss, the last one too. Does the loop end before it keeps that one?"
LEFT_OVER = "Towards the end nothing is left to ask for, but batches still wait for their step."


def _failure(record: Record, name: str, expected: str, observed: str, called: str) -> Failure:
    """The failure of one run, at the call of `called`."""
    place = statements.every(record, "train", called)
    return Failure(expected, f"{observed} (run of {name})", place)


OF_PUT = "`put` is an argument of `train`, and places a batch. What stands in its place?"
AGAIN = "Each `ask` starts a read, and each `put` a copy. Keep what they return until it is used."
ONE_TOO_MANY = (
    "A batch that waits for its step counts, too. Is one more asked for before that step is called "
    "or after it?"
)
THE_STEP = "`step` is the first argument of `train`. Which step does your loop call?"


@EXERCISE.check(
    ground="observed",
    hints=("Between two steps, `stop` gets the loss of the first one, as a float.",),
)
def stops_in_time(record: Record) -> Result:
    """`stop` gets the loss of each step, as a float, before the next step begins."""
    for name in runs_of(record):
        if found := unjudged(record, name):
            other = "no step's loss" in found[1] and _by_hand(record)
            hint = THE_STEP if other or "calls the `step`" in found[0] else stop_hint(found[0])
            late = ("step",) if "ran first" in found[1] else ()
            place = statements.call(record, "train", "stop", *late)
            if "ran after" in found[1]:
                steps = statements.every(record, "train", "step")
                place = steps[-1:] if len(steps) > 1 else place
            if ROUNDED in found[1]:
                place, hint = statements.call(record, "train", "round", "stop"), AS_IT_IS
            return Failure(*found, place, hint)
    return None


def _by_hand(record: Record) -> bool:
    """Whether `train` calls `sgd_step`, which it is not given."""
    own = statements.every(record, "train", "sgd_step")
    return own != definition(record, "train")


@EXERCISE.check(
    ground="observed",
    after=("stops_in_time",),
    hints=(KEPT, LEFT_OVER),
)
def same_results(record: Record) -> Result:
    """The losses and the parameters are the reference's."""
    for name in runs_of(record):
        if seen(record).forms.get(f"losses of {name}", [""])[0] == "mapping":
            return Failure("`losses` is a list of floats", "it is a dict, as `params` is", (), FORM)
        for leaf in seen(record).values[f"losses of {name}"]:
            if leaf.type not in FLOATS:
                got = f"`losses{leaf.path}` is {typed(leaf.type)}"
                place = statements.result(record, "train", 1, 2)
                return Failure("losses are floats", got, place, FORM)
        for what in ("losses of", "params after"):
            failure = differing_leaf(record, f"{what} {name}", rtol=1e-5, atol=1e-6)
            if failure:
                return _taken_over_late(record, failure) or _with_batches(record, failure, name)
        if found := uncalled(record, name):
            return Failure(*found, definition(record, "train"))
        if found := rounded(record, name):
            return Failure(*found, statements.result(record, "train", 1, 2))
        if failure := not_the_last(record, name, f"params after {name}"):
            return replace(failure, culprits=statements.result(record, "train", 0, 2))
    return _recursion(record) or (hidden(record) if seen(record).facts[HIDES] else None)


MANY = 100
"""A run of so many steps shows whether a loop goes deeper with its steps."""
IN_A_LOOP = (
    "A call that has not returned takes room on Python's stack, which is full after about 1,000 of "
    "them. A `for` loop takes no more with each round."
)


def _recursion(record: Record) -> Failure | None:
    """The failure if a long run makes each step inside a call that the step before it made."""
    for name in runs_of(record):
        deep = seen(record).facts[depths(name)]
        if len(deep) < MANY or (more := deep[-1] - deep[0]) < len(deep) // 2:
            continue
        expected = "the last step is as few calls deep as the first: `count` has no upper limit"
        observed = f"after {len(deep)} steps, {more} more calls are under way (run of {name})"
        place = _calls_itself(record) or definition(record, "train")
        return Failure(expected, observed, place, IN_A_LOOP)
    return None


def _calls_itself(record: Record) -> list[Culprit]:
    """The calls by which a function of the file calls itself by its name."""
    file = File(record.source)
    functions = (one for one in ast.walk(file.tree) if isinstance(one, ast.FunctionDef))
    return [
        file.place(call)
        for function in functions
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == function.name
    ]


def _taken_over_late(record: Record, failure: Failure) -> Failure | None:
    """The failure where the params are those that the last step was given."""
    if not failure.observed.endswith(GIVEN_LAST):
        return None
    return replace(failure, culprits=statements.assigned(record, "train", "params"), hint=TOO_LATE)


def _with_batches(record: Record, failure: Failure, name: str) -> Failure:
    """The failure, with the batches that got no step if there are any."""
    place = statements.call(record, "train", "step")
    if went_on(record, name):
        observed = f"{failure.observed}: {WENT_ON}"
        stop = statements.call(record, "train", "stop")
        return replace(failure, observed=observed, culprits=stop, hint=ending_hint(stop))
    trained = indices(calls_of(record, name), "step")
    if (found := misplaced(record, name)) and found[0].startswith("step"):
        step = found[0].partition(" gets")[0]
        observed = f"{failure.observed}; {step} {found[1].removeprefix('it ')}"
        hint = KEPT
        if dropped := statements.dropped(record, "train", "put"):
            place, observed, hint = dropped, f"{observed}; what `put` returned is dropped", DROPPED
        elif other := disordered(record, name):
            calls = statements.every(record, "train", other[0])
            place = calls[:1] if other[1].endswith("batch 0 was next") else calls[-1:]
            observed, hint = f"{observed}; {other[1]}", NEXT
        elif (number := int(step.split()[1])) not in indices(calls_of(record, name), "ask"):
            place = statements.every(record, "train", "ask")[-1:]
            observed, hint = f"{observed}; batch {number} was never asked for", ALL_ASKED
        return replace(failure, observed=observed, culprits=place, hint=hint)
    if all(indices(calls_of(record, run), "step") == [0] for run in runs_of(record)):
        stop = statements.call(record, "train", "stop")
        observed = f"{failure.observed}: the loop ended after one step; `stop` had returned False"
        return replace(failure, observed=observed, culprits=stop, hint=NO_STEP_FOLLOWS)
    theirs = indices([(what, i) for what, i in wanted(record).facts[f"calls of {name}"]], "step")
    returned = len(seen(record).values[f"losses of {name}"])
    if trained == theirs and (failure.observed.endswith(" missing") or returned < len(trained)):
        observed = f"{failure.observed}, though {plural(len(trained), 'step')} ran"
        place, lost = statements.filled(record, "losses") or place, left_out(record, name)
        observed += f": {lost} are missing" * bool(lost)
        hint = WHATEVER if lost else EACH_LOSS
        return replace(failure, observed=observed, culprits=place, hint=hint)
    if len(theirs) - len(trained) > AHEAD and trained == theirs[: len(trained)]:
        ended = f"the loop ended after {plural(len(trained), 'step')}; `stop` had returned False"
        observed = f"{failure.observed}: {ended}"
        leaving = statements.leaving(record, "train") or place
        return replace(failure, observed=observed, culprits=leaving, hint=ONLY_STOP)
    missing = [str(index) for index in theirs if index not in trained]
    if not missing or -1 in trained:
        return replace(failure, hint=failure.hint or KEPT)
    observed = f"{failure.observed}; no step was run on these batches: {', '.join(missing)}"
    hint = LEFT_OVER if len(theirs) - 1 in map(int, missing) else failure.hint
    return replace(failure, observed=observed, culprits=place, hint=hint)


TOO_LATE = (
    "The step after which `stop` ends the loop was taken, too: what it returned comes last. When "
    "does your loop take it over?"
)
ONLY_STOP = "Nothing but `stop` ends the loop early, whatever a loss is. Which line ends it?"


@EXERCISE.check(
    ground="observed",
    after=("same_results",),
    hints=(
        "A NumPy batch is copied when the step is called: too late to overlap anything.",
        "Give `step` what `put` returned, and keep what you asked for until it is used.",
    ),
)
def each_batch_once(record: Record) -> Result:
    """Each batch is asked for once and put once, and its step gets what `put` returned."""
    for name in runs_of(record):
        if found := misplaced(record, name):
            if found[0].startswith("step") and not indices(calls_of(record, name), "put"):
                observed = f"{found[1]}: `put` was never called"
                other = _failure(record, name, found[0], observed, "device_put")
                return replace(other, hint=OF_PUT)
            if found[0].startswith("step"):
                return _failure(record, name, *found, "step")
            return replace(_failure(record, name, *found, ""), hint=AGAIN)
    return None


@EXERCISE.check(
    ground="observed",
    after=("each_batch_once",),
    hints=(
        "Memory of the host is finite: a run of a million batches must not read them all first.",
        "Ask for one more batch each time that one has been trained on.",
    ),
    anchor="a-few-ahead",
)
def few_batches_are_held(record: Record) -> Result:
    """At any time, at most AHEAD batches have been asked for and not yet trained on."""
    for name in runs_of(record):
        if (most := most_ahead(calls_of(record, name), "ask")) > AHEAD:
            expected = f"at most {AHEAD} batches have been asked for and not yet trained on"
            found = _failure(record, name, expected, f"at one time, {most} have", "ask")
            return replace(found, hint=ONE_TOO_MANY if most == AHEAD + 1 else "")
    return None


@EXERCISE.check(
    ground="observed",
    after=("few_batches_are_held",),
    hints=(
        "An array stays on the device as long as a name, a list or a closure holds it.",
        "Let the names of the batch and of the params take the new ones in place of the old.",
    ),
    anchor="a-few-ahead",
)
def nothing_old_is_kept(record: Record) -> Result:
    """A batch and its params leave the device when their step has run."""
    for name in runs_of(record):
        if found := kept(record, name):
            return Failure(*found, statements.piled(record, "train"))
        if more := left(seen(record).facts[f"left after {name}"], "train"):
            return Failure(*more, statements.piled(record, "train"), HELD)
    return None


@EXERCISE.check(
    ground="observed",
    after=("each_batch_once",),
    hints=(
        "One read takes as long as three steps. How many must be under way at the same time, "
        "so that one is done at each step?",
        "Before the first step, ask for the first AHEAD batches; keep the futures in a list.",
    ),
    anchor="a-few-ahead",
)
def reads_are_under_way(record: Record) -> Result:
    """When a step begins, at least two batches after its own have been asked for."""
    for name, count in runs_of(record).items():
        calls = calls_of(record, name)
        for place, (what, index) in enumerate(calls):
            needed = min(count, index + 3)
            found = len(indices(calls[:place], "ask"))
            if what == "step" and found < needed:
                expected = (
                    f"when step {index} begins, batches 0 to {needed - 1} have been asked for"
                )
                observed = f"{found} of these {needed} have"
                return _failure(record, name, expected, observed, "ask")
    return None


@EXERCISE.check(
    ground="observed",
    after=("reads_are_under_way",),
    hints=(
        "float(loss) waits for the step. Whatever stands after that line starts after the step.",
        "Put the next batch on a line between `step(...)` and float(loss).",
    ),
)
def copied_before_the_wait(record: Record) -> Result:
    """The next batch is on its way to the device before the loop waits for a loss."""
    runs = runs_of(record)
    found = [stall for name, count in runs.items() for stall in stalls(record, name, count)]
    waited = [step for name in runs for step in seen(record).facts[f"waited in {name}"]]
    if not found and not waited:
        return probe_gap(seen(record), "reads")
    steps = (
        [step for step, event in found if event is None] or [step for step, _ in found] or waited
    )
    failure = Failure(
        f"batch {steps[0] + 1} is put before the loop waits for the loss of step {steps[0]}",
        f"the loop waits first, at {plural(len(steps), 'step')} in the {len(runs)} runs",
        culprits(record, [event for _, event in found if event]) or definition(record, "train"),
        LAZY if "yield" in record.source else "",
    )
    asking = statements.every(record, "train", "done")
    known = asking != definition(record, "train")
    return replace(failure, culprits=asking, hint=NOT_DONE) if known else failure


NOT_DONE = (
    "A read may not be done yet when you ask. Put the next batch all the same, before the loop "
    "waits for a loss: `.result()` waits for the read, while the device works."
)
LAZY = "A generator runs only when it is asked for its next value. Is that before the wait?"


@EXERCISE.check(
    ground="timing",
    after=("copied_before_the_wait", "few_batches_are_held"),
    hints=(
        "A read takes as long as three steps. Does the loop ever wait for a whole read?",
        "Keep futures, not batches: .result() right after `ask` waits for the whole read.",
    ),
    anchor="a-few-ahead",
)
def as_fast_as_the_reference(record: Record) -> Result:
    """After the first read, steps take at most 1.75 times the reference's time, and few compile."""
    runs, timed = runs_of(record), timing_result(record, "loop", "a step")
    if waited := _waited_at_once(record):
        slow = f"; a step takes {timed.observed}" if isinstance(timed, Failure) else ""
        return replace(waited, observed=waited.observed + slow)
    found = [e for e in events(seen(record), "compile") if e.phase in runs]
    compiles = ((_steps_before(record, event), event) for event in found)
    return and_few_compile(record, timed, compiles, f"{len(runs)} runs")


def _steps_before(record: Record, event: Event) -> int:
    """How many steps of its run had begun when something happened."""
    return len(indices(calls_of(record, event.phase)[: event.step], "step"))


KEEP_FUTURES = "Keep what `ask` returns, and call .result() when its batch is the next to be put."
LEAST = 2
"""So many steps begin while a read is under way, in a loop that is fast enough."""


def _waited_at_once(record: Record) -> Failure | None:
    """The failure of a loop that waits for a read soon after it has asked for it.

    A timed window has a few steps. What was asked for before the first of them costs nothing.
    """
    for name in runs_of(record):
        begun, asked = 0, dict[int, int]()
        for what, index in calls_of(record, name):
            begun += what == "step"
            if what == "ask":
                asked[index] = begun
            elif what == "wait" and (at := asked.pop(index, 0)) and begun - at < LEAST:
                expected = (
                    f"at least {LEAST} steps begin between `ask({index})` and its `.result()`: "
                    f"a read takes as long as {READ_IN_STEPS} steps"
                )
                observed = f"{begun - at} of them begin (run of {name})"
                place = statements.every(record, "train", "result")[-1:]
                return Failure(expected, observed, place, KEEP_FUTURES)
    return None
