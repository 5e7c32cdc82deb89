"""Checks of ex24_tensor_parallel: how params are split, the numbers, and the bytes exchanged.

The budget is what a step must exchange when the weights are split as they should be. It is
compared with the program for the devices at hand, and with the same program compiled for a
target.
"""

import re
from dataclasses import replace
from math import prod
from typing import NamedTuple

from grader.checks.ex24_tensor_parallel import EXERCISE
from grader.checks.ex24_tensor_parallel.facts import (
    AFTER,
    EXPORTED,
    IN_FLOAT32,
    IN_SQUARE,
    LARGE,
    MODEL,
    ODD,
    OF_SQUARE,
    TARGET_DATA,
)
from grader.judging.arrays import OF_WHAT_WENT_IN
from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import definition, devices_of, seen, target_of, wanted
from grader.judging.programs import (
    beyond_own_rows,
    compiled_program,
    exchanged,
    not_jitted,
    target_program,
)
from grader.judging.results import differing_leaf, differing_output, finite, other_parts
from grader.judging.steps import (
    AFTER_THE_STEP,
    BEFORE_IT,
    IN_FULL,
    OF_INFINITE,
    OF_LOST,
    TURNED,
    differing_step,
    is_the_others,
    other_step,
    step_along,
    step_ratio,
    turned,
)
from grader.judging.words import exchanges, in_memory, plural, shards, where
from grader.records.record import Collective, Leaf, Measured, Record
from grader.records.verdict import Culprit
from grader.source import statements

PARAMS = ("params", EXPORTED, OF_SQUARE)
"""The params of the programs: those of the steps, of the one in bfloat16, and of square blocks."""
SPLIT = ("up", "up_bias", "down")
"""The arrays that are split over "model"."""
SCALARS = 16
"""Bytes that may be exchanged beside the budget: for the loss over each axis, say."""
STEPPED, ROUNDED, LONGER = 0.09, 0.02, 0.02
"""By how much of its own length a step in bfloat16 may differ from the reference's, in each array,
by how much of its value a loss or a param, and by how much all of the step may be longer. Rounding
alone makes less than 0.05, and 0.01; it goes both ways, and makes no step longer."""


def _failure(record: Record, expected: str, observed: str, hint: str = "") -> Failure:
    return Failure(expected, observed, definition(record, "make_step"), hint)


@EXERCISE.check(
    ground="observed",
    hints=("Return what jax.jit returns. You may use jax.shard_map inside it.",),
)
def one_program(record: Record) -> Result:
    """`make_step` returns a function that jax.jit made."""
    return not_jitted(record, "step", "make_step")


@EXERCISE.check(
    ground="observed",
    after=("one_program",),
    hints=(
        "P('model') splits dimension 0 over \"model\"; P(None, 'model') splits dimension 1.",
        "A bias is split like what it is added to: hidden units, or the outputs of a block.",
    ),
)
def weights_are_split(record: Record) -> Result:
    """Each device holds 1/m of all but `down_bias`, where m is the size of the axis "model"."""
    for name, model in wanted(record).facts[MODEL].items():
        pairs = zip(seen(record).values[name], wanted(record).values[name], strict=True)
        for leaf, right in pairs:
            found = _misplaced(leaf, right, model)
            if found:
                if "'data'" in found[1]:
                    place = statements.reading(record, "layout", "axis_names")
                    return Failure(*found, place or _laying(record, leaf), OTHER_AXIS)
                if _dealt_out(record, name):
                    place = statements.call(record, "layout", "flatten", "leaves", "unflatten")
                    return Failure(*found, place, SORTED)
                if in_memory(leaf):
                    naming = ("with_memory_kind", "NamedSharding")
                    return Failure(*found, statements.call(record, "layout", *naming), OF_A_KIND)
                hint = NO_KEY if _whole(record, name) and "_with_path" in record.source else ""
                return Failure(*found, _laying(record, leaf), hint)
    return None


OF_A_KIND = "A sharding that names no kind of memory is in the device's. Which line names another?"


NO_KEY = (
    "No array is split: the condition never holds. A path is made of keys, and a key is no text: "
    "that of a dict has its name in `key`."
)


def _whole(record: Record, name: str) -> bool:
    """Whether no array of these params is split."""
    return all(leaf.shard_shape == leaf.shape for leaf in seen(record).values[name])


def _dealt_out(record: Record, name: str) -> bool:
    """Whether the arrays of a block, sorted by name, have the specs of these in a block's order."""
    mine, theirs = (side(record).values[name][: len(BLOCK)] for side in (seen, wanted))
    right = {leaf.path.rpartition("['")[2].rstrip("']"): _spec(leaf) for leaf in theirs}
    order = [right[name] for name in BLOCK]
    return [_spec(leaf) for leaf in mine] == order != list(right.values())


def _spec(leaf: Leaf) -> str:
    """How an array is split, without the dimensions at the end that are not."""
    return re.sub(r"(, None)*,?\)$|None\)$", ")", leaf.spec or "")


BLOCK = ("up", "up_bias", "down", "down_bias")
SORTED = (
    "The leaves of a dict come in the order of its sorted names: down, down_bias, up, up_bias. In "
    "which order are the specs?"
)
OTHER_AXIS = (
    'The weights are split over "model", and the rows of a batch over "data". A mesh may have the '
    "two in any order."
)


def _laying(record: Record, leaf: Leaf) -> list[Culprit]:
    """What `layout` says of an array."""
    return statements.laid(record, "layout", leaf) or statements.remainder(record, "layout")


def _misplaced(leaf: Leaf, right: Leaf, model: int) -> tuple[str, str] | None:
    """(expected, observed) where devices hold too much of an array, or the parts of others."""
    split = any(f"'{name}'" in leaf.path for name in SPLIT)
    parts = model if split else 1
    if parts == 1 and leaf.shard_shape != leaf.shape:
        where = 'on a mesh with one device along "model", ' if split else ""
        return f"{where}`params{leaf.path}` is whole on each device", shards(leaf)
    if leaf.kind != "jax" or prod(leaf.shard_shape or ()) * parts != prod(leaf.shape):
        expected = f"each device holds 1/{parts} of `params{leaf.path}`, of shape {leaf.shape}"
        return expected, shards(leaf)
    if in_memory(leaf):
        return f"`params{leaf.path}` is in device memory", f"it is in {leaf.memory_kind} memory"
    exchanged = other_parts(leaf, right) if leaf.shard_shape == right.shard_shape else ""
    if exchanged:
        expected = f'the parts of `params{leaf.path}` lie along the axis "model" of the mesh'
        return expected, exchanged
    return None


COUNTED = (
    'The gradient is as many times too long as "model" has devices. What every device adds before '
    "a psum, or in the backward pass of one, is counted once for each device."
)
ADDED = 'A mean over "data" is asked for. jax.lax.psum adds; which line divides?'
ADDED_UNSEEN = (
    "Inside jax.shard_map, unless check_vma is False, jax.grad adds up by itself the gradients of "
    'params that are whole over an axis. Here that is a sum over "data". Which line divides it?'
)


@EXERCISE.check(
    ground="observed",
    after=("one_program",),
    hints=(
        "In jax.shard_map each device computes one part of a sum. psum over the split axis adds "
        "the parts.",
        "What every device adds before a psum is counted once for each device.",
    ),
)
def same_numbers(record: Record) -> Result:
    """Params and loss are those of one device, after each step."""
    before = "params"
    for when in AFTER:
        if failure := differing_leaf(record, f"loss of {when}", rtol=2e-5, atol=1e-6):
            return _other_numbers(record, failure, 1)
        name = f"params after {when}"
        if failure := differing_step(record, name, before, rtol=1e-3, atol=5e-5):
            if failure.hint != IN_FULL:
                return _other_numbers(record, failure, 0)
            if _length(record)[0]:
                return _other_numbers(record, replace(failure, hint=""), 0)
            expected = f"with float32 params, {failure.expected}"
            place = statements.computed(record, "make_step", 0, 2)
            return replace(failure, expected=expected, culprits=place)
        before = name
    return next(filter(None, (_of_an_odd_step(record, when) for when in ODD)), None)


def _of_an_odd_step(record: Record, when: str) -> Failure | None:
    """The failure of a step whose loss is no number, or infinite."""
    before = f"params after {AFTER[-2]}"
    params, loss = f"params after {when}", f"loss of {when}"
    if when == ODD[-1]:
        hint, failure = OF_INFINITE, differing_step(record, params, before, rtol=1e-3, atol=5e-5)
    else:
        hint, failure = OF_LOST, differing_leaf(record, params, rtol=2e-5, atol=1e-6)
    part = 0 if failure else 1
    failure = failure or finite(record, loss)
    place = statements.computed(record, "make_step", part, 2)
    return failure and replace(failure, culprits=place, hint=hint)


OF_LOSS_FN = (
    "A step takes 0.1 of the gradient of `loss_fn` from the params, once. What else changes them?"
)
OF_THE_LOSS = (
    "The loss is `loss_fn` of all blocks and the whole batch, before the step. Which params, and "
    "which rows, does it get?"
)
OVER_MODEL = 'What does each device add, before the sum over "model", and after it?'
PARTS_ADDED = (
    "Each device has a part of a sum over the hidden units. The parts are added, not averaged."
)


def _other_numbers(record: Record, failure: Failure, part: int) -> Failure:
    """The failure of the params (part 0) or of the loss (1), with what explains it."""
    length, why = _length(record)
    observed, hint = failure.observed + length, failure.hint or why
    own = statements.computed(record, "make_step", part, 2)
    if part and is_the_others(record, f"loss of {AFTER[0]}", f"loss of {AFTER[1]}"):
        return Failure(failure.expected, f"{failure.observed}: {AFTER_THE_STEP}", own, BEFORE_IT)
    by_hand = any(statements.uses(record, "make_step", name) for name in ("psum", "pmean"))
    if why in TURNED or hint in OF_WHAT_WENT_IN:
        own = statements.result(record, "make_step", 0, 2, inner=True)
    elif not by_hand and "shard_map" not in record.source:
        hint = failure.hint or (OF_THE_LOSS if part else OF_LOSS_FN)
    elif length:
        own = _adding(record, why)
    elif averaged := statements.naming(record, "make_step", "model", "pmean"):
        own, hint = averaged, failure.hint or PARTS_ADDED
    elif added := statements.naming(record, "make_step", "model", "psum"):
        specs = statements.entry(record, "make_step", "in_specs")
        own, hint = [*added, *specs], failure.hint or OVER_MODEL
    return Failure(failure.expected, observed, own, hint)


def _adding(record: Record, why: str) -> list[Culprit]:
    """Where the step adds up over "data", or makes its gradients."""
    summed = statements.naming(record, "make_step", "data", "psum")
    unseen = ("psum", "pmean") if why != ADDED_UNSEEN else ()
    return summed or statements.call(record, "make_step", *unseen, "value_and_grad", "grad")


def _length(record: Record) -> tuple[str, str]:
    """How much too long the first step is, where that is all that is wrong, and a hint."""
    steps = "params", f"params after {AFTER[0]}"
    said, why = turned(record, *steps)
    if why:
        return said, why
    ratio = step_ratio(record, *steps)
    if not ratio:
        return "", ""
    said = f"; the first step is {ratio:.4g} times as long as the reference's"
    if "shard_map" not in record.source:  # then no line of the file adds anything up over an axis
        return said, LENGTH
    data = wanted(record).facts["data"][0]
    sizes = {"data": data, "model": devices_of(record) // data}
    fitting = [axis for axis, size in sizes.items() if abs(ratio - size) < 0.01 * size]
    if fitting:
        said += f": that is the size of {' and of '.join(f'"{axis}"' for axis in fitting)}"
    added = ADDED if statements.naming(record, "make_step", "data", "psum") else ADDED_UNSEEN
    hints = {"data": added, "model": COUNTED}
    return said, hints[fitting[0]] if len(fitting) == 1 else LENGTH


LENGTH = (
    "Only the length of the step is wrong. Over which axes are gradients added, and by what are "
    "they divided?"
)


@EXERCISE.check(
    ground="observed",
    after=("weights_are_split",),
    hints=(
        "The next step takes what this one returns. Constrain the new params to the shardings of "
        "`layout`.",
    ),
)
def params_stay_split(record: Record) -> Result:
    """The new params lie as the old ones did."""
    before = seen(record).values["params"]
    after = seen(record).values[f"params after {AFTER[-1]}"]
    for old, new in zip(before, after, strict=False):
        if old.shard_shape != new.shard_shape:
            expected = f"the new `params{old.path}` is {shards(old)}"
            failure = _failure(record, expected, shards(new))
            specs = statements.entry(record, "make_step", "out_specs")
            if specs != definition(record, "make_step"):
                return replace(failure, culprits=specs, hint=OUT_SPECS)
            return replace(failure, culprits=_constraining(record))
        if in_memory(new):
            failure = _failure(
                record, f"the new `params{new.path}` is in device memory", where(new)
            )
            return replace(failure, culprits=_constraining(record))
        if exchanged := other_parts(new, old):
            expected = f"each device holds the part of `params{old.path}` that it held before"
            return _failure(record, expected, exchanged)
    return None


OUT_SPECS = (
    "in_specs and out_specs say which part of each array a device gets and returns. P() says: all "
    "of it. For the params, `layout` knows."
)


def _constraining(record: Record) -> list[Culprit]:
    """Where the step says how the new params lie."""
    return statements.call(record, "make_step", "with_sharding_constraint", "shard_map", "jit")


class _Budget(NamedTuple):
    """The bytes that a step of these sizes must exchange, as they arrive on one device."""

    rows: int
    features: int
    hidden: int
    blocks: int
    data: int
    """The size of the axis "data"."""
    model: int
    """The size of the axis "model"."""
    itemsize: int
    """2 for bfloat16, but 4 on a CPU, whose compiler widens a sum before it is exchanged."""

    @property
    def outputs(self) -> int:
        """A block's outputs on one device.

        They are exchanged forward in every block, and their gradient backward in all but the
        first.
        """
        return self.itemsize * (self.rows // self.data) * self.features

    @property
    def gradient(self) -> int:
        """One device's part of the gradient, which is added up over "data"."""
        split = (2 * self.features + 1) * self.hidden
        return self.itemsize * self.blocks * (split // self.model + self.features)

    def total(self, *, loop: bool) -> int:
        """All bytes of a step.

        In a `loop` over the blocks, the first one exchanges backward as all others do.
        """
        return (2 * self.blocks - (not loop)) * self.outputs + self.gradient

    def looped(self, found: list[Collective]) -> bool:
        """Whether outputs are exchanged in loops over the blocks, and nowhere else."""
        runs = {c.runs for c in found if c.nbytes == self.outputs}
        return runs == {self.blocks}

    def needless(self, found: list[Collective]) -> str:
        """What travels without need, in words; "" where none of the known mistakes shows."""
        gathered = {c.nbytes for c in found if c.op == "all-gather"}
        units = self.rows // self.data * self.hidden
        if any(0 <= c.nbytes - size * units <= SCALARS for c in found for size in (2, 4)):
            return f": {HIDDEN}"
        if self.itemsize == 2 and any(c.nbytes == 2 * self.outputs for c in found):
            return f": {WIDENED}"
        matrix = 2 * self.features * self.hidden
        if gathered & {matrix, matrix // self.model}:
            return ": a matrix is gathered"
        rows = 2 * self.rows * self.features in gathered
        return ": the rows of all devices are gathered" if rows else ""


def _within(record: Record, found: list[Collective], budget: _Budget) -> Result:
    """The failure where more than the budget is exchanged, or something else than outputs."""
    total, other = exchanged(found), _other_split(record)
    if isinstance(total, Unable):
        return total
    allowed = budget.total(loop=budget.looped(found))
    if total <= allowed + SCALARS:
        return _hidden_units_travel(record, other, found) if other else None
    expected = (
        f"{allowed:,} bytes: {plural(2 * budget.blocks - 1, 'all-reduce')} of a block's "
        f"{budget.outputs:,} bytes of outputs, and {budget.gradient:,} bytes of gradient"
    )
    needless = budget.needless(found)
    observed = f"{total:,} bytes: {exchanges(found)}{needless}"
    if other:
        observed = f"{_lies(other)}; the step sends {observed}"
        return Failure(expected, observed, _laying(record, other), WHERE)
    if needless.endswith(WIDENED):
        widening = statements.matching(record, "make_step", WIDE)
        place = widening or statements.call(record, "make_step", "astype", "psum")
        return Failure(expected, observed, place, NARROW)
    if not any(c.op == "all-gather" for c in found):
        return _failure(record, expected, observed, TOO_OFTEN)
    specs = statements.entry(record, "make_step", "in_specs")
    if asking := statements.moving(record, "make_step", "all_gather"):
        return Failure(expected, observed, asking, ASKED_FOR)
    if not needless.endswith(HIDDEN) and specs != definition(record, "make_step"):
        return Failure(expected, observed, specs, OF_SPECS)
    hint = "" if needless.endswith(HIDDEN) else GATHERED
    return _failure(record, expected, observed, hint)


def _lies(leaf: Leaf) -> str:
    return f"`params{leaf.path}`, of shape {leaf.shape}, lies as {shards(leaf)}"


def _hidden_units_travel(record: Record, other: Leaf, found: list[Collective]) -> Failure:
    """The failure of a layout within the budget: there, hidden units are fewer than outputs."""
    expected = "the devices send a block's outputs, and keep its hidden units"
    observed = f"{_lies(other)}, and the step sends hidden units: {exchanges(found)}"
    return Failure(expected, observed, _laying(record, other), WHERE)


def _other_split(record: Record) -> Leaf | None:
    """The first of the params that is split in another way than the reference's."""
    mine, theirs = (
        [leaf for name in PARAMS for leaf in found.values[name]]
        for found in (seen(record), wanted(record))
    )
    pairs = zip(mine, theirs, strict=False)
    wrong = [leaf for leaf, right in pairs if leaf.shard_shape != right.shard_shape]
    return min(wrong, key=lambda leaf: len(leaf.shape) != 2, default=None)


HIDDEN, WIDENED = "the hidden units travel", "outputs travel as float32"
WIDE = r"[\w.]+\.astype\([\w.'\"]*float32['\"]?\)$"
"""How a step makes an array float32."""
NARROW = "Params and batch are bfloat16 there. Does your step widen what it sends?"
WHERE = (
    "Devices that share a block each compute some of its hidden units. Along which dimension of "
    "this array do the hidden units lie? That one is split."
)
GATHERED = "An all-gather makes something whole on every device. Which line asks for that?"
ASKED_FOR = (
    "The marked line says where an array lies. It lies elsewhere when it arrives: the rows of the "
    'batch are split over "data", the params as `layout` says. What does the line make of that?'
)
OF_SPECS = (
    "in_specs say which part of an argument a device gets. The rows of the batch come split over "
    '"data", the params as `layout` says: what is asked for beyond that is gathered.'
)
TOO_OFTEN = (
    "Outputs are all-reduced more often than the blocks need. Does a block's forward pass run "
    "twice, is a sum added up twice, or is the batch no longer split as it came?"
)
IN_BFLOAT16 = (
    "Params and batch are bfloat16 in this program. Which number of your step is of another type, "
    "or is rounded away?"
)


@EXERCISE.check(
    ground="program",
    after=("weights_are_split", "same_numbers", "params_stay_split"),
    hints=(
        "An all-gather between the two products means that the second needs the hidden units of "
        "other devices.",
        "The weight of PyTorch's nn.Linear is (out, in). Here the columns of `up` are the hidden "
        "units.",
        TOO_OFTEN,
    ),
)
def within_budget(record: Record) -> Result:
    """The program sends a block's outputs once each way, the gradient once, and nothing else."""
    measured = compiled_program(record, "step", made_by="make_step")
    if not isinstance(measured, Measured):
        return measured
    wrong = differing_output(record, "step", rtol=ROUNDED, atol=ROUNDED, any_float=("[1]",))
    wrong = wrong or _other_step(record, "step", EXPORTED)
    if wrong:
        part = 1 if "(...)[1]" in wrong.expected else 0
        place = statements.computed(record, "make_step", part, 2)
        called = re.sub(r"`step\(\.\.\.\)\[0\](.*?)`", r"the new `params\1`", wrong.expected)
        expected = f"with params in bfloat16, {called}"
        return Failure(expected, wrong.observed, place, IN_BFLOAT16)
    itemsize = 4 if record.machine and record.machine.platform == "cpu" else 2
    failure = _within(record, measured.collectives, _budget(record, 1, itemsize))
    if failure:
        return failure
    for name, which in ((IN_FLOAT32, 0), (IN_SQUARE, 2)):
        in_float32 = compiled_program(record, name, made_by="make_step")
        if not isinstance(in_float32, Measured):
            return in_float32
        if failure := _within(record, in_float32.collectives, _budget(record, which, 4)):
            return failure
    if failure := _other_step(record, IN_SQUARE, OF_SQUARE):
        expected = f"with a batch of another size, and other blocks, {failure.expected}"
        place = statements.computed(record, "make_step", 0, 2)
        return Failure(expected, failure.observed, place, OF_ANOTHER_SIZE)
    failure = _lying_elsewhere(record, measured)
    works = (beyond_own_rows(record, name, "make_step") for name in ("step", IN_FLOAT32, IN_SQUARE))
    return failure or next((one for one in works if one), None)


def _lying_elsewhere(record: Record, program: Measured) -> Failure | None:
    """The failure where the new params of the program in bfloat16 lie otherwise than the old."""
    names = [leaf.path for leaf in wanted(record).values[EXPORTED]]
    places = zip(names, program.in_shardings, program.out_shardings, strict=False)
    moved = next(((name, new) for name, old, new in places if old != new), None)
    return moved and Failure(
        f"with params in bfloat16, the new `params{moved[0]}` lies as the old one",
        f"it lies as {moved[1]}",
        _constraining(record),
    )


def _budget(record: Record, which: int, itemsize: int) -> _Budget:
    """The budget of the program of the steps (0), of the one in bfloat16 (1), or in square (2)."""
    sizes, data = (wanted(record).facts[name][which] for name in ("sizes", "data"))
    return _Budget(**sizes, data=data, model=devices_of(record) // data, itemsize=itemsize)


def _other_step(record: Record, program: str, params: str) -> Failure | None:
    """The failure for the first array whose step in a program is not the reference's.

    `params` is the name of those that went in.
    """
    mine, theirs = record.measured[program].outputs, record.reference_measured[program].outputs
    old = wanted(record).values[params]
    if found := other_step(old, mine, theirs, STEPPED):
        return Failure(
            f"a step changes `params{found[0]}` as the reference does",
            f"it differs from that by {found[1]:.2f} times the length of the step",
        )
    length = step_along(old, mine, theirs)
    if abs(length - 1) <= LONGER:
        return None
    expected = "a step is as long as the reference's"
    return Failure(expected, f"it is {length:.3g} times as long")


OF_ANOTHER_SIZE = (
    "The same function steps with batches of several sizes, as the last one of an epoch has fewer "
    "rows. Which number of the first batch does it keep?"
)


@EXERCISE.check(
    ground="target",
    after=("within_budget",),
    hints=(TOO_OFTEN,),
    anchor="on-eight-h200",
)
def on_the_target(record: Record) -> Result:
    """Compiled for the target, the step stays within its budget in bfloat16, half of float32's."""
    measured = target_program(record, "step", made_by="make_step")
    if not isinstance(measured, Measured):
        return measured
    sizes = LARGE | {"blocks": wanted(record).facts["sizes"][1]["blocks"], "data": TARGET_DATA}
    model = target_of(record).devices // TARGET_DATA
    return _within(record, measured.collectives, _Budget(**sizes, model=model, itemsize=2))
