"""Checks of ex12_repair_trainer: each of the six faults by what it does, and the training."""

import ast
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import msgspec
from msgspec.structs import replace as replaced

from grader.checks.ex12_repair_trainer import EXERCISE
from grader.checks.ex12_repair_trainer.facts import (
    AGAIN,
    COMPILES,
    FILLED_AGAIN,
    HIDES,
    LAST_LOST,
    LONG,
    LOSS_AFTER,
    LOSS_MOVED,
    LOSS_OF_NAN,
    MANY,
    MODEL_OF_NAN,
    MOVES,
    OTHER,
    OTHER_ROWS,
    RUNS,
    WAITED,
    ManySteps,
    Run,
    through_host,
)
from grader.judging.arrays import compare
from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import (
    calls_of,
    culprits,
    definition,
    events,
    given,
    hidden_error,
    probe_gap,
    seen,
    waits_in_words,
    wanted,
)
from grader.judging.programs import compiled_program, not_jitted
from grader.judging.results import differing_leaf
from grader.judging.steps import change_ratio
from grader.judging.words import plural, where
from grader.records.record import PREFETCHED, UNWAITED, Event, EventKind, Measured, Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File

SCALAR = 8
"""Bytes of the largest single number. Every array of the model is larger."""
SLACK = 64
"""Bytes that a step may bring to the device beside its batch: counters, rates."""

OTHER_READS = 20
"""In so many steps, a run may read one number besides its losses, or one loss again."""

MOVED_IN_A_STEP = 2
"""How many arrays a step may bring from one device to another: a key, and a loss."""

RANDOM = (28.0, 36.0)
"""How many of 64 bits differ between two keys of jax.random: 32 on average, over many keys."""
ENOUGH = 50
"""From so many pairs of keys on, their average says something."""


def _run(record: Record, name: str) -> Run:
    return msgspec.convert(seen(record).facts[name], Run)


def _lengths(record: Record) -> dict[str, int]:
    """The steps of each run that trains, as the reference's side drew them."""
    return {name: msgspec.convert(wanted(record).facts[name], Run).steps for name in RUNS}


def _many(record: Record) -> dict[str, ManySteps]:
    """What each run did that trains nothing."""
    return {name: msgspec.convert(seen(record).facts[name], ManySteps) for name in MANY}


def _all_lengths(record: Record) -> dict[str, int]:
    """The steps of every run."""
    facts = wanted(record).facts
    many = {name: msgspec.convert(facts[name], ManySteps).steps for name in MANY}
    return {**_lengths(record), **many}


def _keys(run: Run) -> list[tuple[int, ...]]:
    """The keys of the steps of one run, in order."""
    return [tuple(call.key) for call in run.calls]


@EXERCISE.check(ground="observed", hints=("Put @jax.jit on `step`.",), anchor="no-jit-no-program")
def step_is_jitted(record: Record) -> Result:
    """`step` is one compiled program: a function that jax.jit made."""
    return not_jitted(record, "step")


def _differing(
    record: Record, starts: Sequence[str], why: str, program: str = "step"
) -> Failure | Unable | None:
    """How the outputs of `step` whose paths have these starts differ from the reference's.

    `why`, if known, is added to what was observed. `program` names the exported `step`.
    """
    mine, theirs = compiled_program(record, program), record.reference_measured.get(program)
    if not isinstance(mine, Measured):
        return mine
    if theirs is None:
        return Unable("the reference was not compiled")
    got, want = (
        [leaf for leaf in program.outputs if leaf.path.startswith(tuple(starts))]
        for program in (mine, theirs)
    )
    before = () if why else given(record, program)
    found = compare("step(...)", got, want, "", "", rtol=2e-4, atol=2e-5, before=before)
    if found is None:
        return None
    expected = _named(found.expected) + ", of what `step` returns"
    observed, place = f"{_named(found.observed)}{why}", definition(record, "step")
    return replace(found, expected=expected, observed=observed, culprits=place)


def _named(text: str) -> str:
    """A text in which the parts of what `step` returns have the names that its docstring gives."""
    for path, name in (
        ("[0][0]", "params"),
        ("[0][1]", "state"),
        ("[0][2]", "opt_state"),
        ("[1]", "loss"),
    ):
        text = text.replace(f"`step(...){path}", f"`{name}").replace(f"`{path}", f"`{name}")
    return text


@EXERCISE.check(
    ground="program",
    hints=(
        "With hk.transform_with_state, `apply` returns (output, state). What becomes of the state?",
        "Return the new state from `loss_fn` as its second value, and tell jax.value_and_grad "
        "has_aux=True.",
    ),
    anchor="state-that-is-thrown-away",
)
def state_is_kept(record: Record) -> Result:
    """`step` returns the state that the network made."""
    moves = seen(record).facts[MOVES]
    failure = _differing(record, ["[0][1]"], MOVED.get(moves, ""))
    if not isinstance(failure, Failure):
        return failure
    lost = statements.discarding(record, "step") if moves == 0 else []
    returned = lost or statements.result(record, "step", 0, 2)
    made = statements.assigned(record, "step", "state", "new_state")
    hint = {2: ONCE, -1: AS_MADE}.get(moves, failure.hint)
    return replace(failure, hint=hint, made=made if moves else returned)


AS_MADE = (
    "The state that `apply` returns is the new one as a whole: its mean has moved already. What "
    "does your code make of it?"
)
ONCE = "Which calls of the network move its mean, and which of the states do they get?"
MOVED = {
    0: ": this is the state that went in, and the new one is lost",
    2: ": in this state, the mean has moved twice",
}
"""What is said of a state by how often its mean has moved."""


_NEW_KEY = r"(\w+\.)*(split|fold_in)\("
LOSS = (
    "The loss is a mean over the rows of the batch, with the params that went in. The network gets "
    "the key as it is."
)
ADDED = (
    "The new optimizer state is right, and the params are not. What is added to the params: the "
    "updates that `optimizer.update` returns, to the params that went in?"
)
OPTIMIZED = (
    "The gradients and the optimizer's old state go into `optimizer.update`. What it returns is "
    "added to the params, and is the new state."
)


@EXERCISE.check(
    ground="program",
    hints=("The network gets the key that `step` was given.",),
    anchor="one-key-one-mask",
)
def same_step(record: Record) -> Result:
    """`step` gives the reference's loss, parameters and optimizer state."""
    losses = [seen(record).values[f"loss with key {i}"][0].data for i in range(2)]
    unused = losses[0] == losses[1]
    why = "; the loss is the same for any key: `key` does not reach the network" if unused else ""
    why = (
        why or AFTER * _is_known(record, LOSS_AFTER) or MOVED_FIRST * _is_known(record, LOSS_MOVED)
    )
    found = (
        _differing(record, ["[1]"], why)  # the loss first: what is wrong with it is wrong in all
        or _differing(record, ["[0][0]", "[0][2]"], why)
    )
    if found is None:
        return _other_in_training(record) or _other_with_other_rows(record) or _nan_left_out(record)
    if unused or not isinstance(found, Failure) or found.hint:
        return found
    if found.observed.endswith(AFTER):
        return replace(found, hint=LOSS, culprits=statements.result(record, "step", 1, 2))
    if found.observed.endswith(MOVED_FIRST):
        return replace(found, hint=OLD_STATE, made=statements.differentiated(record, "step"))
    if found.expected.startswith("`loss`"):
        if keys := statements.matching(record, "step", _NEW_KEY):
            observed = f"{found.observed}; `step` makes another key of `key`"
            return replace(found, observed=observed, culprits=keys)
        return replace(found, hint=LOSS, made=statements.differentiated(record, "step"))
    if _differing(record, ["[0][2]"], why) is None:
        observed = f"{found.observed}{OTHER_WAY * _goes_the_other_way(record)}"
        made = statements.call(record, "step", "apply_updates")
        return replace(found, observed=observed, hint=ADDED, made=made)
    return replace(found, hint=OPTIMIZED, made=statements.call(record, "step", "update"))


OTHER_WAY = "; the params change by as much, the other way"


def _goes_the_other_way(record: Record) -> bool:
    """Whether the params change by as much as the reference's, with the other sign."""
    mine, theirs = record.measured.get("step"), record.reference_measured.get("step")
    sides = (given(record, "step"), mine and mine.outputs, theirs and theirs.outputs)
    before, got, right = (
        [leaf for leaf in side or () if leaf.path.startswith("[0][0]")] for side in sides
    )
    ratio = change_ratio(before, got, right)
    return ratio is not None and abs(ratio + 1) < SIGN


SIGN = 0.01
"""By how much the ratio of two changes may differ from -1."""
AFTER = ": that is the loss with the new params, after the step"


MOVED_FIRST = ": that is the loss with the new state, whose mean has moved already"
OLD_STATE = (
    "The network centres a batch by the state that went in, and returns the new one. Which state "
    "does it get where the loss is computed?"
)


def _is_known(record: Record, name: str) -> bool:
    """Whether the loss is one that the reference's side keeps under a name."""
    mine, known = record.measured.get("step"), wanted(record).values[name]
    made = [leaf for leaf in mine.outputs if leaf.path == "[1]"] if mine else []
    pairs = ((leaf, replaced(one, path="[1]")) for leaf in made for one in known)
    return any(not compare("", [a], [b], "", "", rtol=1e-4, atol=1e-5) for a, b in pairs)


BY_THE_SIZE = "What decides what becomes of a batch: a number in your code, or the labels' dtype?"


def _other_with_other_rows(record: Record) -> Failure | Unable | None:
    """The failure where `step` is right for the usual batches, and not for others."""
    usual, rows = seen(record).facts[OTHER_ROWS]
    why = f"; this is with {plural(rows, 'row')} and labels of uint8, and with {usual} and int32 "
    why += "it is right"
    state = [] if _differing(record, ["[0][1]"], "") else ["[0][1]"]  # else `state_is_kept` fails
    found = _differing(record, ["[1]", "[0][0]", "[0][2]", *state], why, OTHER_ROWS)
    return replace(found, hint=BY_THE_SIZE) if isinstance(found, Failure) else found


def _nan_left_out(record: Record) -> Failure | None:
    """The failure where loss or model are numbers although a row of the inputs is none."""
    failure = differing_leaf(record, LOSS_OF_NAN, rtol=1e-3, atol=1e-3)
    if failure is None:
        return _model_of_nan(record)
    return Failure(
        "where a row of the inputs is NaN, the loss is NaN",
        f"it is {failure.observed}: such a row has no part in it",
        definition(record, "step"),
        OF_A_NAN,
        made=statements.differentiated(record, "step"),
    )


def _model_of_nan(record: Record) -> Failure | None:
    """The failure where the loss is NaN, and the step is not the reference's."""
    failure = differing_leaf(record, MODEL_OF_NAN, rtol=1e-3, atol=1e-3)
    if failure is None:
        return None
    expected = failure.expected.replace(MODEL_OF_NAN.removeprefix("model"), "")
    for index, part in enumerate(("params", "opt_state")):
        expected = expected.replace(f"`model[{index}]", f"`{part}")
    return replace(
        failure,
        expected=f"where a row of the inputs is NaN, {expected}",
        culprits=definition(record, "step"),
        hint=OF_A_NAN,
        made=statements.result(record, "step", 0, 2),
    )


OF_A_NAN = (
    "A loss of NaN says that something is wrong with a batch, or with the model. Which line keeps "
    "that quiet?"
)
OF_A_TRACE = (
    "jit traces a function once for each form of its arguments. What in `step` is not the same in "
    "every trace?"
)


def _other_in_training(record: Record) -> Failure | None:
    """The failure where a step of `train` gave other numbers than the exported `step`."""
    for name in RUNS:
        calls = _run(record, name).calls
        wrong = [index for index, call in enumerate(calls) if call.unlike_the_program]
        if wrong:
            return Failure(
                "`step` gives the same numbers for the same arguments, in whatever form and "
                "however often `train` calls it",
                f"{len(wrong)} of {plural(len(calls), 'step')} gave others, the first is step "
                f"{wrong[0]}",
                definition(record, "step"),
                OF_A_TRACE,
            )
    return None


EVERY_CALL = (
    "Every call of `step` is a step, also one whose result nobody keeps. Which call is one too "
    "many?"
)
FROM_STEP_TO_STEP = "The model that `step` returns is the one that the next step gets."
FOR_ANY_NUMBER = (
    "Nobody says how many batches come. Which number in your code stands for it, and which key do "
    "the steps beyond it get?"
)
EVERY_BATCH = (
    "Each batch gets a step, however many rows it has, and the last one, too. Which batch does "
    "your code leave out, and what does it still hold when the loop has ended?"
)
AS_GIVEN = (
    "Return a list with one float for each step: the loss that the step gave, also where there are "
    "hundreds of steps, and where the loss is no number."
)
LAST_HELD = "Whose loss does your code still hold when the loop has ended, and what becomes of it?"
ANEW = "Each call returns a list of its own. Where does your code make the one that it returns?"
_USING_UP = r"(sum|len|list|tuple|sorted|max|enumerate|deque)\(.*\bbatches\b"
USED_UP = (
    "An iterator gives each batch once. Which line goes over it before the loop does, and what is "
    "left for the loop?"
)
RETURNED = "Return the model that the last step gave, and a list with one float for each step."


@EXERCISE.check(
    ground="observed",
    hints=("Take one step for each batch, in the order of the batches.",),
)
def trains_on_every_batch(record: Record) -> Result:
    """`train` takes one step for each batch, from model to model, and returns what they gave."""
    place = definition(record, "train")
    for name, steps in _lengths(record).items():
        run = _run(record, name)
        if not run.calls and run.taken_first == steps:
            taken = f"no step: all {plural(steps, 'batch')} had been taken before the first one"
            used = statements.matching(record, "train", _USING_UP) or place
            return Failure(f"one step for each of {steps} batches", taken, used, USED_UP)
        if failure := _steps_taken(run, steps):
            if len(run.calls) > steps:
                calls = calls_of(record, ["step"])
                return Failure(*failure, calls if len(calls) > 1 else place, EVERY_CALL)
            if failure[1].endswith(LAST_MISSING):
                loop = _handing(record) or statements.rounds(record, "train") or place
                return Failure(*failure, loop, EVERY_BATCH)
            return Failure(*failure, place, FROM_STEP_TO_STEP if "model" in failure[0] else "")
        if run.problem:
            expected = "`train` returns (model, losses): what the steps gave"
            observed = f"{run.problem} (a run of {plural(steps, 'batch')})"
            index = 0 if run.problem.startswith("the model") else 1
            returned = statements.result(record, "train", index, 2)
            if run.problem.startswith("there are"):
                returned = _rounds_of_helper(record, returned) or returned
            hint = ANEW if run.problem == FILLED_AGAIN else RETURNED
            hint = LAST_HELD if run.problem.endswith(LAST_LOST) else hint
            return Failure(expected, observed, returned, hint)
    if found := _of_many(record):
        return found
    if hides := seen(record).facts[HIDES]:
        observed = "`train` returned, as if every batch had got its step"
        return hidden_error(record, "train", f"`{hides[0]}`", observed)
    return None


def _of_many(record: Record) -> Failure | None:
    """The failure of a run of many steps, the last of which has fewer rows, and a loss of NaN."""
    place = definition(record, "train")
    for many in _many(record).values():
        if many.other_batch is not None:
            expected = f"one step for each of {many.steps} batches, in their order"
            observed = f"step {many.other_batch}, counted from 0, got another batch than its own"
            return Failure(expected, observed, place)
        if many.left > 0:
            expected = f"one step for each of {many.steps + many.left} batches"
            observed = f"{plural(many.steps, 'step')}, and {plural(many.left, 'batch')} got none"
            if many.left == 1:
                observed += ": the last batch has fewer rows"
            counting = calls_of(record, ("islice", "range", "random.split"))[:1]
            hint = EVERY_BATCH if many.left == 1 else FOR_ANY_NUMBER
            return Failure(expected, observed, counting or place, hint)
        if many.problem:
            index = 0 if many.problem.startswith("the model") else 1
            expected = "`train` returns (model, losses): what the steps gave"
            batches = plural(many.steps, "batch")
            observed = f"{many.problem} (a run of {batches}, whose last loss is NaN)"
            returned = statements.result(record, "train", index, 2)
            return Failure(expected, observed, returned, AS_GIVEN)
    return None


def _handing(record: Record) -> list[Culprit]:
    """Where the file hands batches on, by the only `yield` in it; or nothing."""
    file = File(record.source)
    found = [node for node in ast.walk(file.tree) if isinstance(node, ast.Yield)]
    return [file.place(found[0])] if len(found) == 1 else []


def _rounds_of_helper(record: Record, place: Sequence[Culprit]) -> list[Culprit]:
    """What the only `for` goes over in the file's own function that a place calls; or nothing."""
    called = re.findall(r"\b\w+(?=\()", place[0].text if place else "")
    own = [name for name in called if name in File(record.source).names]
    return statements.rounds(record, own[0]) if own else []


LAST_MISSING = ": the last batch got none"


def _steps_taken(run: Run, steps: int) -> tuple[str, str] | None:
    """(expected, observed) if there is not one step for each batch, in order."""
    numbers = [call.batch for call in run.calls]
    wrong = next((i for i, number in enumerate(numbers) if number != i), None)
    if len(numbers) != steps:
        times = Counter(number for number in numbers if number is not None)
        often = next((number for number, many in times.items() if many > 1), None)
        got = f"{plural(len(numbers), 'step')} for {steps} batches"
        if numbers == [*range(steps - 1)]:
            got += LAST_MISSING
        elif often is not None:
            which = f"batch {often}, counted from 0," if often else "the first batch"
            got += f": {which} got {times[often]}"
    elif wrong is not None:
        got = "another batch" if numbers[wrong] is None else f"batch {numbers[wrong]}"
        got = f"step {wrong} got {got}, both counted from 0"
    else:
        lost = next((i for i, call in enumerate(run.calls) if not call.goes_on), None)
        expected = "each step starts with the model of the step before"
        return None if lost is None else (expected, f"step {lost} does not")
    return f"one step for each of {steps} batches, in their order", got


THE_SAME_UNITS = "steps with the same key drop the same units"
SPLIT = (
    "Write key, subkey = jax.random.split(key) once for each step. Give `subkey` to the step, and "
    "keep `key` for the next split."
)


@EXERCISE.check(
    ground="observed",
    hints=(
        "JAX has no hidden random state: the same key gives the same numbers in every call.",
        SPLIT,
    ),
    anchor="one-key-one-mask",
)
def a_new_key_for_each_step(record: Record) -> Result:
    """Each step gets a key of its own, made from `key`, so that it drops other units."""
    long = _run(record, LONG)
    keys, again, other = (_keys(_run(record, run)) for run in (LONG, AGAIN, OTHER))
    repeated = next(
        ((run, len(set(run))) for run in (keys, other) if len(set(run)) < len(run)), None
    )
    common = len(set(keys) & set(other))
    used = [
        index
        for index, call in enumerate(long.calls)
        if any(later.key in call.parts for later in long.calls[index + 1 :])
    ]
    runs, steps = [*_many(record).values()], len(keys)
    many = next((one for one in runs if one.keys < one.steps), runs[-1])
    if repeated:
        steps = len(repeated[0])
        observed = f"{plural(repeated[1], 'key')}: {THE_SAME_UNITS}"
    elif again != keys[: len(again)]:
        observed = (
            "called again with the same `key`, `train` makes other keys: they do not come from "
            "`key`"
        )
    elif common:
        observed = (
            f"called with another `key`, `train` makes {_part(common, len(other))} again: they do "
            "not come from `key` by jax.random"
        )
    elif used:
        observed = (
            f"step {used[0]} uses a key of which a later key is made, and Haiku splits the same "
            "key in that step"
        )
    elif not _random([*pairwise(keys), *zip(keys, other, strict=False)]):
        observed = (
            "the keys resemble one another: they are made from `key` by counting, not by jax.random"
        )
    elif many.keys < many.steps:
        steps = many.steps
        observed = f"{plural(many.keys, 'key')}: {THE_SAME_UNITS}; {_which_keys(many, len(keys))}"
    else:
        return None
    expected = (
        f"{steps} steps, {steps} keys, all made from `key`, and no key is split, or drawn "
        "with, after a step has used it"
    )
    hint = SPLIT if used and not (repeated or common or again != keys[: len(again)]) else ""
    if steps == many.steps:
        hint = OF_THE_BATCH if many.by_the_batch else FOR_ANY_NUMBER
    elif not (repeated or hint):
        hint = "jax.random.split and fold_in make new keys of `key`. Counting or NumPy do not."
    makers = (*MAKERS, "random.split") if steps == many.steps else MAKERS
    place = calls_of(record, makers)[:1]
    if not place and repeated:
        place = _splitting_again(record, keys, repeated[1])
        hint = NOT_PASSED_ON if place else hint
    place = place or statements.argument(record, "train", "step", 1)
    return Failure(expected, observed, place, hint)


def _which_keys(many: ManySteps, steps: int) -> str:
    """Which keys came again in a run of many steps, where none did in one of so many `steps`."""
    again = plural(many.steps - many.keys, "batch")
    return (
        f"each of {again} that came again got its key again"
        if many.by_the_batch
        else f"with {steps} steps, no key came twice"
    )


def _splitting_again(record: Record, keys: list[tuple[int, ...]], count: int) -> list[Culprit]:
    """What makes the keys, if so many come again and again: the only split of the file, mostly."""
    if count == 1:
        return statements.matching(record, "train", _NEW_KEY)
    splits, again = calls_of(record, ("split",)), (keys[:count] * len(keys))[: len(keys)]
    alone = len(splits) == 1 and not calls_of(record, ("fold_in",))
    return splits if alone and keys == again else []


OF_THE_BATCH = (
    "In each epoch, the batches come again, and a step is to drop other units than the last time. "
    "Of what does your code make a key?"
)
NOT_PASSED_ON = (
    "`split` makes new keys of the one that it gets, and always the same ones of the same key. "
    "Which key does it get the next time?"
)


MAKERS = ("random.key", "PRNGKey")
"""What makes a key of a number."""


def _part(count: int, total: int) -> str:
    """`3 of 14 keys`, or `the same 14 keys`."""
    return f"the same {total} keys" if count == total else f"{count} of {total} keys"


def _random(pairs: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> bool:
    """Whether two keys differ in half of their bits, on average, as keys of jax.random do."""
    differing = [sum((a ^ b).bit_count() for a, b in zip(*pair, strict=True)) for pair in pairs]
    return len(pairs) < ENOUGH or RANDOM[0] < sum(differing) / len(pairs) < RANDOM[1]


@EXERCISE.check(
    ground="observed",
    hints=("Which line names a device? The model is on the right one already.",),
    anchor="the-device-is-not-yours-to-name",
)
def runs_on_the_default_device(record: Record) -> Result:
    """Every step runs on the default device."""
    facts = wanted(record).facts
    ran = [
        (msgspec.convert(facts[name], Run).default, [c.place for c in _run(record, name).calls])
        for name in RUNS
    ]
    more = [
        (msgspec.convert(facts[name], ManySteps).default, run.places)
        for name, run in _many(record).items()
    ]
    for default, places in (*ran, *more):
        wrong = [place for place in places if place != default]
        if wrong:
            return Failure(
                f"where the default device is {default}, all steps run there",
                f"{len(wrong)} of {plural(len(places), 'step')} ran on {wrong[0]}, because their "
                "arrays were put there",
                calls_of(record, ("device_put",))[:1] or definition(record, "train"),
            )
    return None


def _between(record: Record, *kinds: EventKind) -> list[Event]:
    """Events after the first step of a run and before its last."""
    steps = _all_lengths(record)
    return [e for e in events(seen(record), *kinds) if 0 < e.step < steps.get(e.phase, 0)]


def _of_number(event: Event) -> bool:
    return (event.nbytes or 0) <= SCALAR


@EXERCISE.check(
    ground="observed",
    hints=("Every call of jax.jit makes a new function, for which nothing is compiled yet.",),
    anchor="no-jit-no-program",
)
def nothing_compiles_again(record: Record) -> Result:
    """From the third step to the last, nothing is compiled."""
    # Python iterates over an array, such as keys, by a program for each hundred of its elements.
    every = [e for e in _between(record, "compile") if e.step > 2]
    found = [e for e in every if e.phase in RUNS]
    if not found:
        return _on_and_on(record, every) or probe_gap(seen(record), "compiles")
    return Failure(
        "0 compiles from the third step to the last",
        f"{plural(sum(event.count for event in found), 'compile')} in "
        f"{sum(_lengths(record).values())} steps",
        culprits(record, found),
    )


def _on_and_on(record: Record, compiles: list[Event]) -> Failure | None:
    """The failure where a long run compiles again and again: it was stopped."""
    for name in MANY:
        found = [event for event in compiles if event.phase == name]
        total = sum(event.count for event in found)
        if total >= COMPILES:
            steps = max(event.step for event in found)
            said = f"{plural(total, 'compile')} in {steps} steps, and then the run was stopped"
            return Failure(
                "0 compiles from the third step to the last", said, culprits(record, found)
            )
    return None


@EXERCISE.check(
    ground="observed",
    after=("trains_on_every_batch", "nothing_compiles_again"),  # a compile waits, too
    hints=(
        "Is the number needed in the loop? The array can be kept, and read after the last step.",
        "To read a loss in the loop, call loss.copy_to_host_async() after its step, and read it "
        "one step later.",
    ),
    anchor="a-read-a-step",
)
def no_waits_for_the_loss(record: Record) -> Result:
    """No step waits until the loss of an earlier step has been read."""
    reads = [e for e in _between(record, "d2h") if _of_number(e) and e.detail not in UNWAITED]
    found = reads + _between(record, "wait")
    if found:
        return Failure(
            f"no wait between the steps, and no read except {PREFETCHED}",
            f"{waits_in_words(found)} in {_all_steps(record)} steps",
            culprits(record, found),
        )
    larger = [e for e in _between(record, "d2h") if not _of_number(e)]  # judged as the model's
    if (waited := seen(record).facts[WAITED]) and not larger:
        return Failure(
            "`train` calls the next step while the device is busy with this one",
            f"while step {waited[0]} was busy, `train` waited for it, and called no other",
            definition(record, "train"),
        )
    return probe_gap(seen(record), "reads")


def _all_steps(record: Record) -> int:
    return sum(_all_lengths(record).values())


AT_THE_END = "`train` returns the model that the last step gave, and leaves it where it is."


@EXERCISE.check(
    ground="observed",
    after=("trains_on_every_batch",),
    hints=(
        "The result of a step is the input of the next one. Is it needed on the host in between?",
        AT_THE_END,
    ),
    anchor="the-model-stays-where-it-is",
)
def model_stays_on_its_device(record: Record) -> Result:
    """The model is neither read to the host nor copied to a device, between steps or at the end."""
    steps = _all_lengths(record)
    batch = wanted(record).facts["batch bytes"]
    model = wanted(record).facts["model bytes"]
    every = list(events(seen(record), "d2h", "async_copy"))
    read = [e for e in _between(record, "d2h", "async_copy") if not _of_number(e)]
    for event in every:
        length, nbytes = steps.get(event.phase, 0), event.nbytes or 0
        losses = 4 * length  # a run that trains nothing may have as many bytes of them as an array
        if event.step >= length and ((nbytes in model and nbytes != losses) or nbytes > 2 * losses):
            read.append(event)
    sent = [e for e in events(seen(record), "h2d", "d2d") if e.step > 0 and e.phase in steps]
    # A batch goes to the device in its arrays, or in one piece.
    last = wanted(record).facts["bytes of the last batch"]
    known = (*batch, sum(batch), *last, sum(last))
    odd = [e for e in sent if _is_large(e) and e.nbytes not in known]
    if not (read or odd):
        return (
            _sent_too_often(record, sent, sum(batch) + SLACK)
            or _many_numbers(record)
            or _copied_in_place(record)
            or _through_the_host(record)
            or _moved_at_the_end(record)
            or probe_gap(seen(record), "reads", "transfers")
        )
    counts = (
        (sum(e.count for e in read), "read to the host"),
        (sum(e.count for e in odd), "other than the batches copied to a device"),
    )
    told = [f"{plural(count, 'array')} {what}" for count, what in counts if count]
    at_the_end = all(e.step >= steps.get(e.phase, 0) for e in read + odd)
    return Failure(
        "no array is read, and nothing larger than a number is copied to a device but the batches",
        f"{' and '.join(told)} in {_all_steps(record)} steps: the model is copied",
        culprits(record, read + odd),
        AT_THE_END if at_the_end else "",
    )


def _is_large(event: Event) -> bool:
    """Whether a copy to a device carries more than numbers of the host, or than a key."""
    return (event.nbytes or 0) > (SCALAR if event.kind == "d2d" else SLACK)


def _many_numbers(record: Record) -> Failure | None:
    """The failure where a run copies more numbers than losses and keys, however small each is."""
    for name, steps in _all_lengths(record).items():
        for kind in ("d2h", "async_copy"):
            found = list(events(seen(record), kind, phase=name))
            numbers, most = [e for e in found if _of_number(e)], steps + 3 + steps // OTHER_READS
            if (total := sum(event.count for event in numbers)) > most:
                return Failure(
                    f"in {steps} steps, the host reads {steps} losses, and no other numbers",
                    f"{total} reads of a number: the model is read, number by number",
                    culprits(record, numbers),
                )
            if (read := _bytes(found)) > most * SCALAR:
                return Failure(
                    f"in {steps} steps, the host reads {steps} losses, and nothing else",
                    f"{read:,} bytes are read: the model is read, piece by piece",
                    culprits(record, found),
                    AT_THE_END,
                )
        moved = [e for e in events(seen(record), "d2d", phase=name) if e.step > 0]
        if (total := sum(event.count for event in moved)) > MOVED_IN_A_STEP * steps:
            return Failure(
                "no array of the model is copied to another device",
                f"{total} copies from one device to another in {steps} steps: it is, in pieces",
                culprits(record, moved),
            )
    return None


def _bytes(found: Sequence[Event]) -> int:
    """The bytes of all copies."""
    return sum((event.nbytes or 0) * event.count for event in found)


def _sent_too_often(record: Record, sent: list[Event], limit: int) -> Failure | None:
    """The failure where a run copies more to a device than its batches."""
    for name, steps in _all_lengths(record).items():
        found = [e for e in sent if e.phase == name]
        if (each := _bytes(found) // steps) > limit:
            return Failure(
                f"at most {limit:,} bytes are copied for each step: its batch",
                f"{each:,} bytes copied for each step",
                culprits(record, found),
            )
    return None


COPIES = ("jnp.copy", "tree.map", "tree_map", "device_put")
"""What copies arrays on their device."""


def _copied_in_place(record: Record) -> Failure | None:
    """The failure where an array of the model was copied on its device, between two steps."""
    copied = [
        (index, plural(call.copied, "array"))
        for name in RUNS
        for index, call in enumerate(_run(record, name).calls)
        if call.copied
    ]
    copied += [(index, "its arrays") for run in _many(record).values() for index in run.copied]
    if not copied:
        return None
    index, arrays = copied[0]
    return Failure(
        "a step gets the arrays of the model that the step before returned",
        f"step {index} gets copies: {arrays} in other buffers",
        calls_of(record, COPIES)[:1] or definition(record, "train"),
    )


def _through_the_host(record: Record) -> Failure | None:
    """The failure where a program that `train` compiles puts arrays into the host's memory."""
    programs = sum(seen(record).facts[through_host(name)] for name in RUNS)
    if not programs:
        return None
    return Failure(
        "the arrays of the model stay in the memory of their device",
        f"{plural(programs, 'program')} that `train` compiles keep arrays in host memory",
        statements.call(record, "train", "jit"),
    )


def _moved_at_the_end(record: Record) -> Failure | None:
    """The failure where `train` returns a model that is not where its last step ran."""
    for name in RUNS:
        calls = _run(record, name).calls
        returned = map(where, seen(record).values[f"model of {name}"])
        if calls and (failure := _moved_from(record, calls[-1].place, *returned)):
            return failure
    for run in _many(record).values():
        if failure := _moved_from(record, run.default, run.end or run.default):
            return failure
    return None


def _moved_from(record: Record, ran: str, *places: str) -> Failure | None:
    """The failure where an array that `train` returns lies elsewhere than where its steps `ran`."""
    moved = [place for place in places if place != ran]
    if not moved:
        return None
    return Failure(
        f"the model is where the last step ran: {ran}",
        f"an array of the model that `train` returns: {moved[0]}",
        definition(record, "train"),
        AT_THE_END,
    )
