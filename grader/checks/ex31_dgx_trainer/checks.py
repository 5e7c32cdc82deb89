"""Checks of ex31_dgx_trainer: the places, the step as a program, the loop, and the target.

A part that is wrong fails its own checks alone: each part was driven on what the drive placed.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from math import prod

from grader.checks.ex31_dgx_trainer import EXERCISE, facts
from grader.checks.ex31_dgx_trainer.facts import FEW, PLACED, STEP, block_shapes, told
from grader.judging.arrays import FORM
from grader.judging.checking import Failure, Result, Unable
from grader.judging.differences import ANOTHER_ORDER, AT_ITS_INDEX
from grader.judging.evidence import (
    SENT_WHOLE,
    culprit,
    culprits,
    definition,
    of_programs,
    probe_gap,
    seen,
    sent_beyond,
    target_of,
    wanted,
)
from grader.judging.loops import (
    ONE_MORE,
    WENT_ON,
    WHATEVER,
    calls_of,
    ending_hint,
    hidden,
    indices,
    kept,
    left_out,
    misplaced,
    most_ahead,
    not_the_last,
    ran_on,
    rounded,
    runs_of,
    stalls,
    stop_hint,
    uncalled,
    unjudged,
    went_on,
)
from grader.judging.memory import (
    BATCH_STAYS,
    HELD,
    OF_A_NUMBER,
    OF_ITS_OWN,
    OF_THE_BATCH,
    bringing,
    counts_alone,
    left,
    moved_result,
    not_in_place,
    shared,
    state_at_once,
    weak,
)
from grader.judging.programs import (
    beyond_own_rows,
    compiled_program,
    exchanged,
    not_jitted,
    target_program,
    target_reference,
)
from grader.judging.results import differing_leaf, differing_output, other_order, other_parts
from grader.judging.said import in_words
from grader.judging.steps import (
    NO_GRADIENT,
    SCALED,
    gradient_ratio,
    lost_states,
    other_output_moment,
    other_output_step,
    output_step_ratio,
    step_in_words,
    waits_alone,
)
from grader.judging.words import exchanges, plural, where
from grader.records.record import PINNED, Leaf, Measured, Record
from grader.records.verdict import Culprit
from grader.source import statements

MOST_AHEAD = {"put": 4, "read": 5}
"""How many batches may be put, or read, before their step: as many put as `train` allows, and one
more that is read and waits on the host. All runs but one have more batches than that."""
ASKED = "After each step and before the next one, call `stop` with the loss of that step, a float."
SCALARS = 16
"""Bytes that may be exchanged besides gradients and activations: the loss, a count."""


def _placed(record: Record) -> range:
    """The calls of `place` and `place_batch`, by their numbers."""
    return range(int(wanted(record).facts[PLACED]))


def _misplaced(record: Record, name: str, function: str) -> Failure | None:
    """The first array that is sharded otherwise than the reference's, or in another memory."""
    tree = name.partition(" of ")[0]
    for mine, theirs in zip(seen(record).values[name], wanted(record).values[name], strict=True):
        if _lies(mine) != _lies(theirs):
            expected = f"`{tree}{mine.path}`, of shape {theirs.shape}, is {_lies(theirs)}"
            return Failure(expected, f"it is {_lies(mine)}", _placing(record, function, mine))
        if exchanged := other_parts(mine, theirs):
            expected = f"each device holds its own part of `{tree}{mine.path}`, as the mesh says"
            return Failure(expected, exchanged, _placing(record, function, mine))
    failure = differing_leaf(record, name, rtol=0, atol=0)
    if failure and failure.observed.endswith(ANOTHER_ORDER):
        return replace(failure, hint=AT_ITS_INDEX)
    return failure


PARTS_ALONE = "each device gets its own part of each array from the host"


def _parts_alone(record: Record, function: str, *values: Callable[[int], str]) -> Result:
    """Nothing if the host sent no device more than its own parts of what is kept as `values`."""
    for names in ([value(n) for value in values] for n in _placed(record)):
        if found := sent_beyond(record, names[0], names):
            return Failure(PARTS_ALONE, found[0], culprits(record, found[1]), SENT_WHOLE)
        if failure := of_programs(record, PARTS_ALONE, function, facts.programs(names[0])):
            return failure
    return probe_gap(seen(record), "transfers")


def _placing(record: Record, function: str, leaf: Leaf) -> list[Culprit]:
    """Where a function says how an array lies: by its name in a block, or for the whole batch."""
    if function == "place_batch":
        return statements.call(record, function, "P", "PartitionSpec", "device_put")
    return statements.laid(record, function, leaf) or statements.result(record, function, 0, 2)


def _lies(leaf: Leaf, shards: str = "") -> str:
    """`in shards of (16, 32) on 8 devices, in pinned_host memory`."""
    if leaf.kind != "jax":
        return where(leaf)
    return f"{shards or _shards(leaf)}, in {leaf.memory_kind} memory"


def _shards(leaf: Leaf) -> str:
    devices = plural(len(leaf.devices), "device")
    return f"in shards of {leaf.shard_shape} on {devices}" if leaf.shape else f"whole on {devices}"


@EXERCISE.check(
    ground="observed",
    hints=(
        "A spec names the axis that splits a dimension. Where it names no axis, all is copied.",
        'P("data") splits the rows, and gives each part to all devices along "model".',
    ),
    anchor="two-axes",
)
def batch_is_split(record: Record) -> Result:
    """`place_batch` splits the rows over "data", copies each part along "model", and keeps none."""
    if found := _split_otherwise(record):
        return found
    for n in _placed(record):
        if more := left(seen(record).facts[facts.left_of_batch(n)], "place_batch"):
            return Failure(*more, statements.piled(record, "place_batch"), HELD)
    return _parts_alone(record, "place_batch", facts.batch)


def _split_otherwise(record: Record) -> Failure | None:
    """The failure of the first batch that is placed otherwise, with what all of these share."""
    all_found = {n: _misplaced(record, facts.batch(n), "place_batch") for n in _placed(record)}
    wrong = {n: found for n, found in all_found.items() if found}
    if not wrong:
        return None
    order = [n for n in all_found if wanted(record).facts[facts.axes(n)][0] != "data"]
    by_place = len(order) < len(all_found) and order == list(wrong)
    first = next(iter(wrong.values()))
    return replace(first, hint=BY_NAME) if by_place else first


BY_NAME = (
    'Where "data" is the first axis of the mesh, this is right. An axis has a name, and a mesh may '
    "have its axes in any order."
)


@EXERCISE.check(
    ground="observed",
    hints=(
        'Which dimension of `up` is the 4 d, and which of `down`? "model" splits that dimension.',
        'P(None, "model") for "up", P("model", None) for "down".',
    ),
    anchor="two-axes",
)
def weights_are_split(record: Record) -> Result:
    """`place` splits the 4 d of every block over "model": columns of `up`, rows of `down`."""
    found = (_misplaced(record, facts.params(n), "place") for n in _placed(record))
    failure = next(filter(None, found), None)
    return failure or _parts_alone(record, "place", facts.params, facts.state)


@EXERCISE.check(
    ground="observed",
    hints=(
        "An average has the sharding of its param, and another memory kind.",
        'P() for the count; memory_kind="pinned_host" for all.',
    ),
    anchor="state-on-the-host",
)
def state_waits_on_the_host(record: Record) -> Result:
    """`place` leaves one fresh state of Adam, in pinned host memory, sharded like the params."""
    for n in _placed(record):
        if found := _state_misplaced(record, n):
            return found
        paths = seen(record).facts[facts.weak(n)]
        if one := weak("state", paths):
            theirs = wanted(record).values[facts.state(n)]
            named = (_of_state(record, leaf) for leaf in theirs if leaf.path == paths[0])
            return Failure(*one, next(named, []), OF_A_NUMBER)
        if one := shared("state", seen(record).facts[facts.twice(n)]):
            return Failure(*one, statements.result(record, "place", 1, 2), OF_ITS_OWN)
        if more := left(seen(record).facts[facts.left(n)], "place"):
            return Failure(*more, statements.piled(record, "place"), HELD)
    return None


def _some_wait(record: Record) -> bool:
    """Whether some array of a state is in pinned host memory: what puts it there is right."""
    leaves = (leaf for n in _placed(record) for leaf in seen(record).values[facts.state(n)])
    return any(leaf.memory_kind == PINNED for leaf in leaves)


def _of_state(record: Record, theirs: Leaf) -> list[Culprit]:
    """Where `place` puts an array of the state: the call that names its field, or the only one."""
    field = re.findall(r"\.(\w+)", theirs.path)[-1:] or ["state"]
    entry = statements.entry(record, "place", field[0])
    given = [] if entry == definition(record, "place") else entry
    named = given or statements.matching(record, "place", rf"[\w.]+\({field[0]}\b")
    if not _some_wait(record):  # then it is the one copy, if one does all
        named = statements.apart_from(record, "place", 0, 2, ("device_put",)) or named
    if not named:
        own = statements.assigned(record, "place", field[0])
        named = [] if own == definition(record, "place") else own
    return named or statements.result(record, "place", 1, 2)


def _state_misplaced(record: Record, n: int) -> Failure | None:
    """The first array of the state of one call of `place` that is elsewhere than it should be."""
    state = facts.state(n)
    own = {leaf.path: leaf for leaf in seen(record).values[facts.params(n)]}
    pairs = zip(seen(record).values[state], wanted(record).values[state], strict=True)
    for mine, theirs in pairs:
        block, name = theirs.path.partition("]")[0], theirs.path.rpartition("[")[2]
        param = own.get(f"{block}][{name}")
        # Where the params are sharded wrongly, a state that is sharded like them is right here too.
        like = [theirs, param] if param is not None else [theirs]
        right = [_lies(theirs, _shards(leaf)) for leaf in like]
        if _lies(mine) not in right:
            expected = f"`state{mine.path}`, of shape {theirs.shape}, is {right[0]}"
            hint = "" if theirs.shape or len(mine.devices) == len(theirs.devices) else OF_A_COUNT
            return Failure(expected, f"it is {_lies(mine)}", _of_state(record, theirs), hint)
        parts = [other_parts(mine, leaf) for leaf in like]
        if all(parts):
            expected = f"each device holds the part of `state{mine.path}` of its param"
            return Failure(expected, parts[0], statements.result(record, "place", 1, 2))
        if order := other_order(mine, theirs):
            expected = f"`state{mine.path}` is on the devices of `mesh`, in their order"
            place = _of_state(record, theirs)
            return Failure(expected, f"it is on devices {order}", place, OF_AN_ORDER)
    return differing_leaf(record, state, rtol=0, atol=0)


OF_AN_ORDER = (
    "One program takes arrays whose meshes have the same devices in the same order. On which mesh "
    "is this array?"
)
OF_A_COUNT = (
    "adam.init makes the count on the default device, whatever devices the params are on. P() puts "
    "it on every device of the mesh."
)


def _program(record: Record, name: str = STEP) -> Measured | Failure | Unable:
    return compiled_program(record, name, made_by="make_step")


@EXERCISE.check(
    ground="observed",
    hints=("Return what jax.jit returns, with the whole step inside.",),
    anchor="one-trainer",
)
def one_program(record: Record) -> Result:
    """`make_step` returns a function that jax.jit made."""
    return not_jitted(record, "step", "make_step")


UPHILL = "By which sign do the params change? optax's updates are added to the params."


@EXERCISE.check(
    ground="program",
    after=("one_program",),
    hints=(
        "The loss is the one before the step. Each block's gradient goes through that block's own "
        "state of Adam to its params.",
    ),
)
def same_results(record: Record) -> Result:
    """The step's params, state and loss are the reference's."""
    return _of_each_program(record, _other_results)


def _of_each_program(record: Record, judge: Callable[[Record, str], Result]) -> Result:
    """What is found first in one of the programs."""
    found = (judge(record, name) for name in (STEP, FEW))
    return next((one for one in found if one), None)


def _other_results(record: Record, name: str) -> Result:
    """The failure where a program gives other params, state or loss."""
    program = _program(record, name)
    if not isinstance(program, Measured):
        return program
    failure = differing_output(record, name, rtol=1e-4, atol=1e-6)
    failure = failure or differing_output(record, name, rtol=2e-5, atol=1e-6, part="[2]")
    if failure is None:
        if other := other_output_step(record, name):
            return replace(other, culprits=statements.computed(record, "make_step", 0, 3))
        other = other_output_moment(record, name)
        return other and replace(other, culprits=statements.computed(record, "make_step", 1, 3))
    part = next((n for n in range(3) if f"(...)[{n}]" in failure.expected), None)
    where_made = () if part is None or failure.hint == FORM else (part, 3)
    place = statements.result(record, "make_step", *where_made, inner=True)
    observed, hint = lost_states(record, name)
    if observed and failure.hint == FORM:
        place = statements.filled(record, "new_state") or statements.result(
            record, "make_step", 1, 3, inner=True
        )
        expected = "the new state has an entry for each name in params, in the form of the old one"
        return Failure(expected, observed, place, hint)
    if waits_alone(record, name):
        return replace(failure, culprits=place, hint=NO_GRADIENT)
    ratio = output_step_ratio(record, name, "") if part == 0 and not failure.hint else None
    if part in (0, 1) and ratio is None and (times := gradient_ratio(record, name)):
        observed = f"{failure.observed}; the gradient is {times:.4g} times the reference's"
        place = statements.division(record, "make_step") or place
        return replace(failure, observed=observed, culprits=place, hint=SCALED)
    if ratio is None:
        return replace(failure, culprits=place)
    observed = f"{failure.observed}; the step of the params {step_in_words(ratio)}"
    place = (statements.subtraction(record, "make_step") if ratio < 0 else []) or place
    return replace(failure, observed=observed, culprits=place, hint=UPHILL if ratio < 0 else "")


@EXERCISE.check(
    ground="program",
    after=("same_results",),
    hints=(
        "An all-gather makes something whole on every device. Which line asks for the whole?",
        "out_shardings of P() do. Results that stay split need no all-gather.",
    ),
    anchor="count-what-travels",
)
def no_more_travels_than_needed(record: Record) -> Result:
    """Only sums travel: of gradients over "data", and of one activation a block over "model"."""
    return _of_each_program(record, _more_travels)


def _more_travels(record: Record, name: str) -> Result:
    """The failure where a program exchanges more than that."""
    program = _program(record, name)
    if not isinstance(program, Measured):
        return program
    gradients, activations = _needed(record, name)
    total = exchanged(program.collectives)
    if isinstance(total, Unable):
        return total
    ops = {c.op for c in program.collectives}
    if ops == {"all-reduce"} and gradients <= total <= gradients + activations + SCALARS:
        return beyond_own_rows(record, name, "make_step")
    return Failure(
        f"only all-reduces: {gradients:,} bytes of gradients and {activations:,} of activations",
        exchanges(program.collectives),
        statements.matching(record, "make_step", OF_GRADIENTS) * ("all-gather" in ops)
        or statements.call(record, "make_step", *WHOLE * ("all-gather" in ops), "jit"),
    )


OF_GRADIENTS = r"[\w.]*(with_sharding_constraint|reshard)\(grads?\b.*"
"""How a step says where all gradients lie."""
WHOLE = ("all_gather", "with_sharding_constraint")
"""What may make an array whole on every device."""


def _needed(record: Record, name: str) -> tuple[int, int]:
    """Bytes of float32 that a program exchanges on one device: (gradients, activations)."""
    sizes, model = wanted(record).facts["sizes"][name], wanted(record).facts["model"]
    blocks, width, rows = (sizes[key] for key in ("blocks", "width", "rows"))
    params = blocks * sum(map(prod, block_shapes(width).values())) // model
    # One sum a block forward, and one backward, except for the first block: nothing needs the
    # gradient of its input.
    sums = 2 * blocks - 1
    return 4 * params, 4 * rows * width * sums


@EXERCISE.check(
    ground="program",
    after=("same_results",),
    hints=(
        "jit moves no argument from one memory to another, and leaves results where they were "
        "computed.",
        "In the step: jax.device_put(..., jax.memory.Space.Device) first, Space.Host at the end. "
        "Where out_shardings are given, they decide the memory too.",
    ),
    anchor="state-on-the-host",
)
def offloaded(record: Record) -> Result:
    """The step takes the state from host memory, computes on the device, and puts it back."""
    return _of_each_program(record, _not_offloaded)


def _not_offloaded(record: Record, name: str) -> Result:
    """The failure where a program leaves the state elsewhere, or computes on the host."""
    program, theirs = _program(record, name), record.reference_measured.get(name)
    facts, place = seen(record).facts, definition(record, "make_step")
    if refusal := facts.get(told("not from the host", name)):
        expected = f"the step takes its state in {PINNED} memory"
        lines = facts.get(told("refused at", name), ())[-1:]
        place = [culprit(record, line) for line in lines] or place
        return Failure(expected, in_words(str(refusal)), place)
    if not isinstance(program, Measured):
        return program
    if theirs is None:
        return Unable("the reference was not compiled")
    if found := facts[told("on host", name)]:
        observed = (
            f"computed with arrays in host memory, or on the host: {', '.join(map(str, found))}"
        )
        expected = "arrays only wait in host memory: nothing is computed there"
        return Failure(expected, observed, place)
    moved = moved_result(facts[told("results", name)], program, theirs)
    if moved is None:
        return None
    part = 1 if "`state" in moved[0] else 0
    hint = counts_alone(facts[told("results", name)], program, theirs)
    return Failure(*moved, statements.result(record, "make_step", part, 3, inner=True), hint)


@EXERCISE.check(
    ground="program",
    after=("same_results", "offloaded"),
    hints=(
        "donate_argnums says which arguments the step may overwrite. The batch is not one of them.",
    ),
    anchor="donate-both",
)
def written_in_place(record: Record) -> Result:
    """The new params and the new state take the place of the old ones, and the batch stays."""
    return _of_each_program(record, _not_replaced)


def _not_replaced(record: Record, name: str) -> Result:
    """The failure where a program writes a new array beside the old one."""
    program = _program(record, name)
    if not isinstance(program, Measured):
        return program
    paths, donated = (seen(record).facts.get(told(what, name), ()) for what in ("paths", "donated"))
    # What is sharded otherwise replaces nothing. `no_more_travels_than_needed` judges that.
    places = zip(paths, program.in_shardings, program.out_shardings, strict=False)
    split = [path for path, old, new in places if old != new and path in donated]
    place = statements.call(record, "make_step", "jit")
    if found := not_in_place(program, paths, apart=split):
        expected, observed = found
        observed += "; the batch is donated" * ("batch" in donated)
        return Failure(expected, observed, place, FROM_ZERO if "batch" in donated else "")
    return Failure(*OF_THE_BATCH, place, BATCH_STAYS) if "batch" in donated else None


FROM_ZERO = (
    "The arguments of the step are params, state and batch, counted from 0. Which of them does the "
    "marked line give away?"
)


@EXERCISE.check(
    ground="observed",
    hints=(
        "Each batch gets one step, in their order, with what the step before returned.",
        "If the loop reads a batch ahead, it has one left when no other follows. That batch needs "
        "its step, too.",
    ),
    anchor="the-loop",
)
def same_losses(record: Record) -> Result:
    """`train` runs one step for each batch until `stop` ends it, and returns the losses."""
    for name in runs_of(record):
        stop = statements.call(record, "train", "stop")
        if found := unjudged(record, name, all_steps=False):
            return Failure(*found, stop, ASKED)
        for what in ("losses of", "params and state after"):
            failure = differing_leaf(record, f"{what} {name}", rtol=1e-4, atol=1e-5)
            if failure:
                return _other_losses(record, failure, name)
        if found := uncalled(record, name):
            return Failure(*found, definition(record, "train"))
        if found := rounded(record, name):
            return Failure(*found, statements.result(record, "train", 2, 3))
        if failure := not_the_last(record, name, f"params and state after {name}"):
            return replace(failure, culprits=statements.returned(record, "train"))
        if found := unjudged(record, name):
            return Failure(*found, stop, stop_hint(found[0]))
    return hidden(record) if seen(record).facts[facts.HIDES] else None


def _other_losses(record: Record, failure: Failure, name: str) -> Failure:
    """The failure of losses, params or state, with the order of the loop's calls that tells why."""
    expected = failure.expected.replace(name, f"{name},") if "," in name else failure.expected
    counted = re.search(r"^`losses` .* has \d+ values?$", failure.expected)
    if counted and (ended := _how_it_ended(record, name)):
        place = statements.every(record, "train", "stop")
        return Failure(expected, f"{failure.observed}: {ended}", place, ending_hint(place))
    if counted and ran_on(record, name):
        observed = f"{failure.observed}: a step ran after `stop` had returned True"
        return Failure(expected, observed, statements.every(record, "train", "step")[-1:], ONE_MORE)
    place = statements.call(record, "train", "step")
    if failure.hint == FORM and not counted:
        place = statements.returned(record, "train")
    observed, hint = failure.observed, EACH_STEP if counted else failure.hint
    if counted and uncalled(record, name) is None:
        steps = plural(len(indices(calls_of(record, name), "step")), "step")
        observed, hint = f"{observed}, though {steps} ran", EACH_LOSS
        if lost := left_out(record, name):
            observed, hint = f"{observed}: {lost} are missing", WHATEVER
        place = statements.filled(record, "losses") or place
    found = misplaced(record, name)
    if found and found[0].startswith("step"):
        step = found[0].partition(" gets")[0]
        observed, hint = f"{observed}; {step} {found[1].removeprefix('it ')}", IN_ORDER
    return replace(failure, expected=expected, observed=observed, hint=hint, culprits=place)


def _how_it_ended(record: Record, name: str) -> str:
    """How the loop took the answers of `stop`, if it took them wrongly; else ""."""
    longer = [
        one
        for one in runs_of(record)
        if sum(what == "step" for what, _ in wanted(record).facts[f"calls of {one}"]) > 1
    ]
    if all(indices(calls_of(record, one), "step") == [0] for one in longer):
        return "the loop ended after one step"  # and `stop` ends only some of the runs
    return WENT_ON if went_on(record, name) else ""


EACH_LOSS = "Each step has its loss, the last one too. Does the loop end before it keeps that one?"
EACH_STEP = (
    "There is one loss for each step, and one step for each batch until `stop` ends the loop. "
    "Which steps are missing, or too many?"
)
IN_ORDER = "Each step takes the next batch: the one that was put first is the first to leave."
WAITS = (
    "The marked line waits for a step, and the device has nothing else to do then. What could be "
    "put before it?"
)


@EXERCISE.check(
    ground="observed",
    after=("same_losses",),
    hints=(
        "float(loss) waits for the step. A batch that is put after that line comes too late. A "
        "whole epoch that is put before it fills the device.",
        "Between the call of `step` and float(loss), read and put one more batch, not all.",
    ),
    anchor="the-loop",
)
def next_batch_is_on_its_way(record: Record) -> Result:
    """The loop puts the next batch before it waits for a loss, and at most 4 batches ahead."""
    place = definition(record, "train")
    for name, count in runs_of(record).items():
        calls = calls_of(record, name)
        if found := misplaced(record, name):
            expected, observed = found
            return Failure(expected, f"{observed} (run of {name})", place)
        for what, most in MOST_AHEAD.items():
            if (ahead := most_ahead(calls, what)) > most:
                expected = f"at most {most} batches have been {what} and had no step yet"
                where_put = statements.every(record, "train", "put")
                return Failure(expected, f"{ahead} have (run of {name})", where_put)
        for step, event in stalls(record, name, count):
            expected = f"batch {step + 1} is put before the loop waits for the loss of step {step}"
            lines = culprits(record, [event]) if event else []
            observed = f"the loop waits first (run of {name})"
            return Failure(expected, observed, lines or place, WAITS if lines else "")
        if seen(record).facts[f"waited in {name}"]:
            expected = "the next batch is put before the loop waits for a step"
            return Failure(expected, f"the loop waits first (run of {name})", place)
    return probe_gap(seen(record), "reads")


@EXERCISE.check(
    ground="observed",
    after=("next_batch_is_on_its_way",),
    hints=(
        "An array stays on the device as long as a name, a list or a closure holds it.",
        "Let the names of params, state and batch take the new ones in place of the old.",
    ),
    anchor="the-loop",
)
def nothing_old_is_kept(record: Record) -> Result:
    """A batch, and the params and the state of a step, leave the device when it has run."""
    for name in runs_of(record):
        if found := kept(record, name):
            return Failure(*found, statements.piled(record, "train"))
        if more := left(seen(record).facts[f"left after {name}"], "train"):
            return Failure(*more, statements.piled(record, "train"), HELD)
    return None


@EXERCISE.check(
    ground="target",
    after=("no_more_travels_than_needed", "written_in_place", "offloaded"),
    hints=(
        "A copy to the device starts as early as it can. What makes it wait for the gradients?",
        "Use one jax.lax.optimization_barrier for each block: of its gradient, its state, and the "
        "state that went back before it. Then the states come one by one.",
    ),
    anchor="what-it-takes-on-the-target",
)
def fits_on_the_target(record: Record) -> Result:
    """On the target, a device never holds the whole of its state beside its activations."""
    found = target_program(record, "step", made_by="make_step")
    if not isinstance(found, Measured):
        return found
    machine = target_of(record).device_kind
    over = state_at_once(found, target_reference(record, "step"), machine)
    if not isinstance(over, tuple):
        return over
    return Failure(*over, *bringing(record, "make_step"))
