"""Checks of ex23_one_allreduce: the numbers on all devices, the collectives, the memory.

The collectives are those of the program for the devices at hand, and of the same program
compiled for a target. The memory is judged for the target only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import msgspec

from grader.checks.ex23_one_allreduce import EXERCISE
from grader.checks.ex23_one_allreduce.facts import (
    AFTER,
    AFTER_FAR,
    AFTER_SMALL,
    ALONE,
    BATCH,
    BEFORE_ODD,
    BEFORE_SMALL,
    COUNT,
    DEVICES,
    EXCHANGED,
    LARGE,
    ODD,
    STEP,
    shapes,
)
from grader.judging import shares
from grader.judging.arrays import FORM, OF_WHAT_WENT_IN, drifted, load, unlike_copies
from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import definition, devices_of, seen, wanted
from grader.judging.programs import (
    beyond_own_rows,
    compiled_program,
    exchanged,
    not_jitted,
    target_program,
    target_reference,
)
from grader.judging.results import differing_leaf, differing_output, finite, waiting
from grader.judging.steps import (
    IN_FULL,
    LOSS_TOO,
    change_of,
    differing_step,
    loss_too,
    other_output_change,
    output_step_ratio,
    step_error,
    step_in_words,
    step_ratio,
    turned,
)
from grader.judging.words import exchanges, plural, where
from grader.records.record import Collective, Measured, Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File

RTOL, ATOL = 1e-5, 2e-6
"""How far params and losses may be from the reference's: by rounding, and no more."""
ROOM = 2.5
"""How many times the reference's memory for intermediate results a program for the target may
need. Right answers were seen to need up to 1.6 times as much. A program that holds all n
micro-batches at once needs n times as much, and n is at least 4."""


@EXERCISE.check(ground="observed", hints=("Return what jax.jit returns, the whole step inside.",))
def one_program(record: Record) -> Result:
    """`make_step` returns a function that jax.jit made."""
    return not_jitted(record, "step", "make_step")


@EXERCISE.check(
    ground="observed",
    after=("one_program",),
    hints=(
        "With check_vma=False, shard_map believes what out_specs say: P() promises that all "
        "devices return the same.",
        "The devices must exchange their gradients before the params change.",
    ),
    anchor="a-promise-nobody-checks",
)
def devices_agree(record: Record) -> Result:
    """After a step every device holds the same params."""
    devices = int(wanted(record).facts[DEVICES])
    for leaf in seen(record).values[f"params after {AFTER[-1]}"]:
        whole = leaf.kind == "jax" and leaf.replicated and len(leaf.devices) == devices
        if not whole:
            return Failure(
                f"the new `params{leaf.path}` is a full copy on each of {devices} devices",
                f"shards of {leaf.shard_shape}" if leaf.shard_shape else where(leaf),
                definition(record, "make_step"),
            )
    if found := waiting(record, *(f"params after {when}" for when in AFTER)):
        place = statements.result(record, "make_step", 0, 2, inner=True)
        return replace(found, culprits=place, hint=IN_DEVICE_MEMORY)
    for when in reversed(AFTER):
        for leaf in seen(record).values[f"params after {when}"]:
            if leaf.unlike is not None and drifted(leaf):
                device, difference = leaf.unlike
                why = ": each device follows a gradient of its own" * unlike_copies(leaf)
                return Failure(
                    f"all devices hold the same params after {when}",
                    f"`params{leaf.path}` on device {device} differs by up to {difference:.2g} "
                    f"from another device's{why}",
                    _exchanging(record),
                )
    return None


ON_THE_HOST = "Whoever works with them does it on the devices. Which line sends them to the host?"
IN_DEVICE_MEMORY = "The next step takes them on the devices. Which line sends them to the host?"


def _exchanging(record: Record) -> list[Culprit]:
    """Where the step exchanges its gradient, be it in several places, else where it takes it."""
    means = [one for name in ("pmean", "psum") for one in _called(record, name)]
    if len(means) > 1:
        return sorted(means, key=lambda place: place.line)
    return statements.call(record, "make_step", "pmean", "psum", "value_and_grad", "grad")


def _called(record: Record, name: str) -> list[Culprit]:
    """The calls of `name` in `make_step`."""
    found = statements.every(record, "make_step", name)
    return [] if found == definition(record, "make_step") else found


LOSSES = (
    "`losses` has shape (devices,). Each is the mean over one device's rows, with the params that "
    "the step was given, and needs no exchange."
)


UNSEEN = (
    "By default (check_vma=True) jax.grad inside shard_map already sums the gradient of params "
    "that are equal on all devices. With check_vma=False it does not."
)
COUNT_THEM = "Count the sums and the divisions: over the rows, over micro-batches, over devices."


@EXERCISE.check(
    ground="observed",
    after=("devices_agree",),
    hints=(
        COUNT_THEM,
        UNSEEN,
        LOSSES,
    ),
    anchor="the-sum-you-did-not-write",
)
def same_numbers(record: Record) -> Result:
    """Params and losses are the reference's, after one step and after two."""
    before, place = "params before", statements.result(record, "make_step", 0, 2, inner=True)
    for when in AFTER:
        name = f"params after {when}"
        if failure := differing_step(record, name, before, rtol=RTOL, atol=ATOL):
            if failure.hint in (IN_FULL, *OF_WHAT_WENT_IN):
                return replace(failure, culprits=place)
            return _of_one_number(record, failure) or _with_length(record, failure)
        if failure := _wrong_losses(record, f"losses of {when}"):
            return failure
        before = name
    for before, name, hint in (
        (BEFORE_SMALL, AFTER_SMALL, OF_SMALL),
        (AFTER_SMALL, AFTER_FAR, OF_LARGE),
    ):
        if failure := differing_step(record, name, before, rtol=RTOL, atol=ATOL):
            return replace(failure, culprits=place, hint=hint)
    for when in (*ODD, ALONE):
        if failure := _of_a_step_apart(record, when):
            return failure
    return None


def _of_a_step_apart(record: Record, when: str) -> Failure | None:
    """The failure of what a step gave that is not one of the others."""
    params, losses = f"params after {when}", f"losses of {when}"
    hint = OF_ALONE if when == ALONE else OF_LOST
    if when == ODD[-1]:
        hint = OF_INFINITE
        failure = differing_step(record, params, BEFORE_ODD, rtol=RTOL, atol=ATOL)
    else:
        failure = differing_leaf(record, params, rtol=RTOL, atol=ATOL)
    part = 0 if failure else 1
    if when == ODD[-1]:
        failure = failure or finite(record, losses)
    else:
        failure = failure or differing_leaf(record, losses, rtol=RTOL, atol=ATOL)
    place = statements.result(record, "make_step", part, 2, inner=True)
    return failure and replace(failure, culprits=place, hint=hint)


OF_INFINITE = (
    "The squares of such errors are infinite, and so are the losses, or NaN. Their gradient is a "
    "number: the step goes along it as any other. Which line treats it as another one?"
)


OF_LOST = (
    "A row that is NaN makes its device's loss NaN, and all params: that is how one learns of it. "
    "Which line leaves such numbers out?"
)
OF_ALONE = (
    "A mesh of one device is a mesh like others. What does your code do in another way there?"
)
OF_LARGE = (
    "The steps before it are right: in this one, the gradient is large. What does your code do "
    "with large numbers?"
)
OF_SMALL = (
    "The steps before it are right: in this one, the gradient is small. What does your code do "
    "with numbers that are nearly 0?"
)


def _wrong_losses(record: Record, name: str) -> Failure | None:
    """The failure of losses that are other numbers, or that wait on the host."""
    if failure := differing_leaf(record, name, rtol=RTOL, atol=ATOL):
        return _other_losses(record, failure, name)
    found, own = waiting(record, name), statements.result(record, "make_step", 1, 2, inner=True)
    return found and replace(found, culprits=own, hint=ON_THE_HOST)


def _other_losses(record: Record, failure: Failure, name: str) -> Failure:
    """The failure of the losses, at the line that makes them, or that splits the rows."""
    alike = _alike(record, name)
    own = statements.returned if failure.hint == FORM else statements.result
    place, hint = own(record, "make_step", 1, 2, inner=True), failure.hint or LOSSES
    if any(map(unlike_copies, seen(record).values[name])):
        place, hint = statements.entry(record, "make_step", "out_specs"), JOINED
    elif alike and not _sends_more(record):
        place, hint = statements.entry(record, "make_step", "in_specs"), ROWS
    if not alike and (others := _others(record, name)):
        return Failure(failure.expected, f"{failure.observed}: {others}", place, LOSSES)
    if failure.hint == FORM:
        alike = _one_for_each_micro_batch(record, name)
    return Failure(failure.expected, failure.observed + alike, place, hint)


def _one_for_each_micro_batch(record: Record, name: str) -> str:
    """That there is a loss of each micro-batch of each device, where it is so; else ""."""
    count, devices = (int(wanted(record).facts[fact]) for fact in (COUNT, DEVICES))
    shapes = [leaf.shape for leaf in seen(record).values[name]]
    stacked = [(count * devices,)], [(count, devices)], [(devices, count)]
    return f": one for each of {count} micro-batches of each device" if shapes in stacked else ""


def _others(record: Record, name: str) -> str:
    """Which losses those of the first step are, if they are others of each device; else ""."""
    import numpy as np  # here: the command line starts without it

    mine, devices = _numbers(record, name), int(wanted(record).facts[DEVICES])
    if len(mine) != devices:
        return ""
    known = _other_losses_of_devices(record, devices)
    return next((words for words, them in known if np.allclose(mine, them, rtol=1e-4)), "")


def _other_losses_of_devices(record: Record, devices: int) -> Iterator[tuple[str, Any]]:
    """Losses that a first step may return in place of its own, one a device, in words."""
    import numpy as np  # here: the command line starts without it

    values = wanted(record).values
    batch = (shares.numbers(leaf) for leaf in values[BATCH])
    blocks = list(zip(*(np.split(array, devices, axis=1) for array in batch), strict=True))
    for when, end in (("params before", ""), (f"params after {AFTER[0]}", ", after the step")):
        params = shares.params(values[when])
        rounds = (zip(*block, strict=True) for block in blocks)
        each = np.array([[shares.loss(params, *rows) for rows in device] for device in rounds])
        for number, losses in enumerate(each.T):
            which = shares.which(number, len(each.T))
            yield f"each is the loss of {which} of {len(each.T)} micro-batches{end}", losses
        if end:
            yield f"each is the loss of its own rows{end}", each.mean(1)


ROWS = (
    "Which rows does a device get? in_specs say that, for each argument. P() gives all rows to "
    "each device."
)


JOINED = (
    "out_specs say how the devices' results become one array. Where they are P(), all devices are "
    "to return the same. Which of the two results is different on each device?"
)


def _sends_more(record: Record) -> bool:
    """Whether the devices exchange more bytes than the gradient has, such as their losses."""
    program, size = compiled_program(record, STEP), wanted(record).facts["gradient"][STEP]
    return isinstance(program, Measured) and exchanged(program.collectives) != _gradient_bytes(
        shapes(size["width"])
    )


def _gradient_bytes(params: dict[str, tuple[int, ...]]) -> int:
    return 4 * sum(prod(shape) for shape in params.values())


def _alike(record: Record, name: str) -> str:
    """That all losses are the same, where they are; else ""."""
    losses = _numbers(record, name)
    alike = len(losses) > 1 and len(set(losses)) == 1
    return f"; all {len(losses)} are equal: none is the mean of one device's rows" if alike else ""


def _numbers(record: Record, name: str) -> list[float]:
    """All numbers of a value of the submission."""
    leaves = seen(record).values[name]
    return [float(x) for leaf in leaves if leaf.data for x in load(leaf.data).astype(float).flat]


def _with_length(record: Record, failure: Failure) -> Failure:
    """The failure, and how much too long the step is, where that is all that is wrong.

    Or how little it differs, where that is as little as rounding to bfloat16 makes.
    """
    steps = "params before", f"params after {AFTER[0]}"
    ratio, apart = step_ratio(record, *steps), step_error(record, *steps)
    devices, hint = int(wanted(record).facts[DEVICES]), failure.hint
    if ratio is None and (counts := _of_another(record) or _other_sum(record)):
        observed = f"{failure.observed}; {counts}"
        places = _adding(record, counts)
        why = OLD_PARAMS if counts == ONE_BY_ONE else SUM
        why = OF_EACH if counts.startswith(MIXED) else why
        return Failure(failure.expected, observed, places, hint or why)
    count, rows = wanted(record).facts[COUNT], _rows_of_one(record) // devices
    sizes = f", with {devices} devices and {count} micro-batches"
    length, why = turned(record, *steps)
    if why:
        length, hint = length + sizes, hint or why
    elif ratio:
        length = f"; the step {step_in_words(ratio)}{sizes}"
    if not why and ratio and abs(ratio - devices) < 0.01 * devices:
        length += f", as if the gradients of {devices} devices were added, and not averaged"
        unchecked = File(record.source).gives("check_vma", False)
        hint = hint or ("" if unchecked else UNSEEN)
    elif not why and ratio and abs(ratio * devices - 1) < 0.01 and devices not in (count, rows):
        length += f", as if the mean over {devices} devices were divided by {devices} once more"
    elif not why and ratio and (other := _divisor(ratio, count)):
        what = f"{count} twice" if other == count**2 else f"{other}"
        length += f", as if the sum over {count} were divided by {what}"
        same = other == rows != count**2
        length += ", which are the rows that a device has of each" * same
    elif not why and ratio and loss_too(record, f"losses of {AFTER[0]}", ratio):
        hint = hint or LOSS_TOO
    elif not why and ratio and abs(ratio * rows / count - 1) < 0.01:
        length += f", as if their sum were divided by the {rows} rows that a device has of each"
    elif apart and apart < BFLOAT16:
        length = f"; the step differs from the reference's by 1 part in {1 / apart:.0f}"
        hint = hint or ROUNDED
    observed = failure.observed + length
    own = statements.result(record, "make_step", 0, 2, inner=True)
    counted = any(abs(ratio * n - 1) < 0.01 for n in (devices, 1 / devices)) if ratio else not why
    narrowing = statements.matching(record, "make_step", NARROWING) if hint == ROUNDED else []
    divided = statements.division(record, "make_step") if ratio and not why else []
    place = narrowing or (_exchanging(record) if counted else divided or own)
    return Failure(failure.expected, observed, place, hint)


def _of_one_number(record: Record, failure: Failure) -> Failure | None:
    """The failure of a step that changes all numbers of an array by the same amount, in each."""
    import numpy as np  # here: the command line starts without it

    old = shares.params(wanted(record).values["params before"])
    step = change_of(record, "params before", f"params after {AFTER[0]}")
    if step is None or len(step) != sum(array.size for array in old.values()):
        return None
    changes = shares.unraveled(step, old).values()
    if abs(step).max() <= 10 * LEFT or any(np.ptp(each) > LEFT for each in changes):
        return None
    observed = f"{failure.observed}; all numbers of an array change by the same amount"
    place = statements.matching(record, "make_step", OVER_ALL)
    place = place or statements.result(record, "make_step", 0, 2, inner=True)
    return Failure(failure.expected, observed, place, ONE_NUMBER)


LEFT = 2e-6
"""By how much equal changes of params may differ: each is rounded as its param is."""
OVER_ALL = r"jax\.tree(\.|_)map\((jnp|np|jax\.numpy)\.(mean|sum)\b"
"""How a step makes one number of each array of a tree."""
ONE_NUMBER = (
    "A gradient has a number for each param. Without an axis, a mean or a sum makes one number of "
    "a whole array. Along which axis do the micro-batches lie?"
)


def _divisor(ratio: float, count: int) -> int:
    """By what a sum over `count` was divided, if that explains the length of a step; else 0."""
    near = (count - 1, count + 1, count**2)
    return next((n for n in near if abs(ratio * n / count - 1) < 0.01), 0)


NARROWING = r"(?s).*\b(?:bfloat16|float16|half)['\"]?\)$"
"""What makes an array of half precision, or of bfloat16."""


def _rows_of_one(record: Record) -> int:
    """How many rows a micro-batch of the steps has, on all devices."""
    return int(wanted(record).values[BATCH][0].shape[1])


def _adding(record: Record, counts: str) -> list[Culprit]:
    """Where the step adds up gradients, or says of which micro-batches; `counts` says which."""
    if counts.startswith(BEGINS):
        return statements.start(record, "make_step")
    if counts.endswith("not in the step") or " count 0, " in counts:
        bound = 0 if " the first of " in counts or " count 0, " in counts else 1
        ends = statements.argument(record, "make_step", "fori_loop", bound)
        if ends != definition(record, "make_step"):
            return ends
    if counts.startswith(LAST_OF_TWO):  # or the first is left out, and the last counts twice
        begins = statements.argument(record, "make_step", "fori_loop", 0)
        if begins != definition(record, "make_step") and "fori_loop(0" not in begins[0].text:
            return begins
    found = statements.of_gradients(record, "make_step")
    if found == definition(record, "make_step"):
        return statements.each_round(record, "make_step") or found
    return found


def _other_sum(record: Record) -> str:
    """Which gradients the first step is made of, where it is not the mean of all; else ""."""
    import numpy as np  # here: the command line starts without it

    old = shares.params(wanted(record).values["params before"])
    batch = [shares.numbers(leaf) for leaf in wanted(record).values[BATCH]]
    step = change_of(record, "params before", f"params after {AFTER[0]}")
    start = np.concatenate([np.ravel(old[key]) for key in shares.KEYS])
    if step is None or step.shape != start.shape:
        return ""
    parts = [shares.gradient(old, *rows) for rows in zip(*batch, strict=True)]
    right = -shares.RATE / len(parts)
    devices = int(wanted(record).facts[DEVICES])
    blocks = list(zip(*(np.split(array, devices, axis=1) for array in batch), strict=True))

    def walked(batch: Sequence[Any], rate: float) -> Any:
        moved = start
        for rows in zip(*batch, strict=True):
            moved = moved + rate * shares.gradient(shares.unraveled(moved, old), *rows)
        return moved - start

    for rate in (right, -shares.RATE):
        beside = np.linalg.norm(step - rate * sum(parts))
        together = np.mean([walked(block, rate) for block in blocks], axis=0)
        for walk in (walked(batch, rate), together):
            if np.linalg.norm(step - walk) <= shares.FITS * beside:
                return ONE_BY_ONE
    counts = shares.weights(step, parts, right)
    if counts is not None:
        return shares.in_words(counts, "micro-batches")
    for first, words in ((start, "the old params"), (np.ones_like(start), "ones")):
        if counts := shares.weights(step, [*parts, first], right):
            return f"{BEGINS} {words}, not with zeros" if abs(counts[-1]) > FITTED else ""
    of_each = [
        np.mean([shares.gradient(old, *rows) for rows in zip(*block, strict=True)], axis=0)
        for block in blocks
    ]
    counts = shares.weights(step, of_each, -shares.RATE / devices)
    return "" if counts is None else shares.in_words(counts, "devices")


ONE_BY_ONE = "each micro-batch follows the gradient at the params that the one before has made"
OLD_PARAMS = "All gradients are taken at the old params. When do the params change?"


def _of_another(record: Record) -> str:
    """Whose inputs or targets all micro-batches have in the first step, if it is so; else ""."""
    import numpy as np  # here: the command line starts without it

    old = shares.params(wanted(record).values["params before"])
    batch = [shares.numbers(leaf) for leaf in wanted(record).values[BATCH]]
    step = change_of(record, "params before", f"params after {AFTER[0]}")
    if step is None or len(step) != sum(array.size for array in old.values()):
        return ""
    right = -shares.RATE / len(batch[0])
    rows = list(zip(*batch, strict=True))
    beside = np.linalg.norm(step - right * sum(shares.gradient(old, *each) for each in rows))
    for number, which in ((0, "first"), (-1, "last")):
        inputs, targets = (array[number] for array in batch)
        for word, pairs in (
            (INPUTS, [(inputs, own) for _, own in rows]),
            (TARGETS, [(own, targets) for own, _ in rows]),
        ):
            mixed = sum(shares.gradient(old, *pair) for pair in pairs)
            if np.linalg.norm(step - right * mixed) <= shares.FITS * beside:
                return f"{MIXED} the {word} of the {which}"
    return ""


MIXED, INPUTS, TARGETS = "all micro-batches have", "inputs", "targets"
OF_EACH = (
    "Each micro-batch has inputs and targets of its own. Which of them does the loop not go over?"
)
LAST_OF_TWO = "only the gradient of the last of 2 "
BEGINS = "the sum of the gradients begins with"
FITTED = 0.1
"""What a weight that is meant to be 0 may come to."""
SUM = (
    "Each micro-batch adds its gradient to a sum that began with zeros. What does the loop add, "
    "and what does it hand on to its next round?"
)
BFLOAT16 = 2**-7
"""The part of a number that rounding to bfloat16 may change, a few times over."""
ROUNDED = (
    "So small a difference is more like rounding than like a wrong count. Of which dtype is each "
    "sum while it is added up?"
)
NOT_NEEDED = (
    "The marked line exchanges something, too. A sum of the gradients is all that the devices need "
    "of each other: each returns its own loss, and out_specs P('data') makes one array of them."
)
SOMETHING_SMALL = (
    "The gradient travels once, and something small beside it, such as a loss. Each device returns "
    "its own loss, and its gradient needs no loss of others. Which line exchanges one?"
)
AGAIN = "Which lines exchange the gradient? One of them is enough."


@EXERCISE.check(
    ground="program",
    after=("same_numbers",),
    hints=(
        "A collective in a loop, in a scan as in Python, runs once in each round. What is in the "
        "loop over the micro-batches?",
        "With check_vma=True there may be a sum that you did not write: jax.grad adds one where "
        "params that are equal on all devices are used with rows that are not.",
        "The losses stay where they are: out_specs P('data') returns one from each device.",
    ),
)
def gradient_travels_once(record: Record) -> Result:
    """The program's only collectives are all-reduces, of exactly the gradient's bytes in all."""
    sizes: dict[str, dict[str, int]] = wanted(record).facts["gradient"]
    found = (_of_program(record, name, **_keys(size)) for name, size in sizes.items())
    return next((one for one in found if one), None) or _in_the_steps(record)


def _in_the_steps(record: Record) -> Result:
    """The failure where the steps that were taken exchange anything but one gradient each."""
    params = {leaf.path: leaf.shape for leaf in wanted(record).values["params before"]}
    steps = msgspec.convert(seen(record).facts[EXCHANGED], list[list[Collective]])
    count = wanted(record).facts[COUNT]
    found = (_travels_once(record, step, params, count) for step in steps)
    return next((one for one in found if one), None)


def _keys(size: dict[str, int]) -> dict[str, int]:
    return {"width": size["width"], "count": size["micro-batches"]}


def _of_program(record: Record, name: str, width: int, count: int) -> Result:
    """The failure of one program, for a network of this width and `count` micro-batches.

    Rows that travel in the gradient's place give every device the work of all of them.
    """
    expected = "`step` can be compiled apart from its file"
    measured = compiled_program(record, name, expected, made_by="make_step")
    if not isinstance(measured, Measured):
        return measured
    if devices_of(record) == 1:
        return Unable("on one device nothing travels")
    wrong = differing_output(record, name, rtol=RTOL, atol=ATOL)
    if wrong := wrong or other_output_change(record, name):
        called, many = name.removeprefix("step") or "\0", plural(count, "micro-batch")
        expected, observed = (
            text.replace(f"{name} ", f"step's result for {many}, ").replace(called, f" for {many}")
            for text in (wrong.expected, wrong.observed)
        )
        ratio = output_step_ratio(record, name, "")
        observed += f"; the step {step_in_words(ratio)}" if ratio else ""
        why = OF_ONE if count == 1 else COUNT_THEM
        return Failure(expected, observed, _exchanging(record), wrong.hint or why)
    found = _travels_once(record, measured.collectives, shapes(width), count)
    spare = SUMMED * _gradient_bytes(shapes(width)) // 4 * count
    return found or beyond_own_rows(record, name, "make_step", spare=spare)


OF_ONE = (
    "Steps of more micro-batches are right. What does your code do in another way where there is "
    "one?"
)
SUMMED = 5
"""How many operations more than the reference's the sum of the gradients may take for each
number of each micro-batch: Kahan's takes three. A row takes six."""


def _travels_once(
    record: Record, found: list[Collective], params: dict[str, tuple[int, ...]], count: int
) -> Result:
    """The failure where anything but one gradient of these `params` is exchanged.

    `params` are shapes by name; `count` is the number of micro-batches.
    """
    total = exchanged(found)
    if isinstance(total, Unable):
        return total
    gradient = _gradient_bytes(params)
    if {c.op for c in found} == {"all-reduce"} and total == gradient:
        return None
    times = total // gradient if total % gradient == 0 else 0
    reason = f": that is {times} times the gradient" if times > 1 else ""
    reason += ", once for each micro-batch" if times == count else ""
    expected = f"one all-reduce of the gradient's {gradient:,} bytes"
    others = {c.op for c in found} - {"all-reduce"}
    asking = [statements.sending(record, "make_step", op) for op in sorted(others)]
    if place := next(filter(None, asking), None):
        return Failure(expected, exchanges(found) + reason, place, NOT_NEEDED)
    return Failure(
        expected,
        exchanges(found) + reason,
        _exchanging(record),
        _how_often(found, total - gradient, count, once_each=times == count),
    )


def _how_often(found: list[Collective], more: int, count: int, *, once_each: bool) -> str:
    """The hint for all-reduces of so many bytes more than the gradient has."""
    if 0 < more <= SMALL * count:
        return SOMETHING_SMALL
    return AGAIN if not once_each and all(c.runs == 1 for c in found) else ""


SMALL = 8
"""Bytes of a loss, or of two, for each micro-batch."""


@EXERCISE.check(
    ground="target",
    after=("gradient_travels_once",),
    hints=(
        "What must a device keep until the exchange: one sum of gradients, or more?",
        "A loop in Python is unrolled: the compiler sees all micro-batches at once, and may "
        "compute them side by side. jax.lax.scan holds one at a time.",
    ),
    anchor="on-eight-h200",
)
def on_the_target(record: Record) -> Result:
    """Compiled for the target, the gradient travels once, in the memory of one micro-batch."""
    measured = target_program(record, STEP, made_by="make_step")
    if not isinstance(measured, Measured):
        return measured
    count = wanted(record).facts["gradient"][STEP]["micro-batches"]
    if problem := _travels_once(record, measured.collectives, LARGE, count):
        return problem
    reference = target_reference(record, STEP)
    if reference is None or reference.memory is None or measured.memory is None:
        return Unable("the compiler does not say how much memory the program needs")
    mine, theirs = measured.memory.temporaries, reference.memory.temporaries
    if mine <= ROOM * theirs:
        return None
    return Failure(
        f"at most {ROOM * theirs / 2**30:.2f} GiB of intermediate results on a device",
        f"{mine / 2**30:.2f} GiB: several of the {count} micro-batches are held at once",
        statements.call(record, "make_step", "scan", "value_and_grad", "grad"),
    )
