"""Checks of ex21_pmap_step: where the copies lie, the steps, the losses, and what is exchanged."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from grader.checks.ex21_pmap_step import EXERCISE, facts
from grader.checks.ex21_pmap_step.facts import FEW_ROWS, MANY_ROWS, PARAMS, RUNS, STEPS, TWICE, Run
from grader.judging import shares
from grader.judging.arrays import OF_WHAT_WENT_IN, load
from grader.judging.checking import Failure, Result
from grader.judging.differences import ANOTHER_ORDER
from grader.judging.evidence import (
    bytes_of,
    culprits,
    definition,
    devices_of,
    events,
    of_programs,
    probe_gap,
    seen,
    through_a_program,
    to_host,
    wanted,
)
from grader.judging.memory import HELD, left
from grader.judging.programs import beyond_own_rows, compiled_program, exchanged_by
from grader.judging.results import differing_leaf, differing_output, finite, renamed
from grader.judging.steps import (
    IN_FULL,
    OF_INFINITE,
    TURNED,
    change_of,
    differing_step,
    other_output_change,
    step_ratio,
    turned,
)
from grader.judging.words import PARTS, exchanges, in_memory, plural, where
from grader.records.record import Collective, Leaf, Measured, Record
from grader.records.verdict import Culprit
from grader.source import statements

RTOL, ATOL = 1e-5, 2e-6
"""How far params and losses may be from the reference's: by rounding, and no more."""


def _runs(record: Record) -> list[Run]:
    """The runs, as the reference's side drew them."""
    return msgspec.convert(wanted(record).facts[RUNS], list[Run])


@EXERCISE.check(
    ground="observed",
    hints=(
        "There is one slice for each device: slice i is a copy of the params, and lies on device "
        "i and nowhere else. Which part of that is not so?",
        "np.stack leaves all slices in one place. A sharding that names no axis, P(), puts all of "
        "them on every device.",
        'Take a mesh of `devices` in their order, whose only axis is called "name", and P("name"): '
        "it splits the first axis of each array, one slice for each device.",
    ),
    anchor="a-copy-for-each-device",
)
def one_copy_on_each_device(record: Record) -> Result:
    """`replicate` puts one copy of the params on each device, in the order of `devices`."""
    found = (_other_copies(record, number, run) for number, run in enumerate(_runs(record)))
    return next((failure for failure in found if failure), None)


def _other_copies(record: Record, number: int, run: Run) -> Failure | None:
    """The failure of one run whose copies lie otherwise, or are no copies."""
    order, name = run.order, facts.copies(number)
    place = statements.call(record, "replicate", "device_put", "device_put_replicated", "stack")
    copies = zip(seen(record).values[name], wanted(record).values[name], strict=False)
    for leaf, want in copies:
        lies, right = (_lies(x, len(order)) for x in (leaf, want))
        if leaf.path != want.path:
            break
        if leaf.shape != want.shape or lies != right:
            expected = f"`params{want.path}` has shape {want.shape}, {right}"
            if leaf.shape == want.shape and leaf.replicated and len(leaf.devices) > 1:
                place = statements.left_whole(record, "replicate", "")
            return Failure(expected, f"shape {leaf.shape}, {lies}", place)
    if failure := differing_leaf(record, name, rtol=0, atol=0):
        return _other_values(record, renamed(failure, name, "params"), place)
    for found in seen(record).facts[facts.slices(number)]:
        if found != order:
            expected = f"slices 0, 1, ... lie on the devices {order}, in the order of `devices`"
            same = sorted(found) == sorted(order)
            own = ("devices", "local_devices", "make_mesh")
            ordering = ("sorted", "Mesh", "make_mesh") if same else own
            made = statements.call(record, "replicate", *ordering)
            made = place if made == definition(record, "replicate") else made
            hint = IN_ORDER if same else OF_THE_LIST
            return Failure(expected, f"they lie on {found}", made, hint)
    if more := left(seen(record).facts[facts.left(number)], "replicate"):
        return Failure(*more, statements.piled(record, "replicate"), HELD)
    return None


def _other_values(record: Record, failure: Failure, place: list[Culprit]) -> Failure:
    """The failure of copies that are no copies, at the line that makes them, or else at `place`."""
    known = (
        (failure.observed.endswith(ANOTHER_ORDER), ("repeat",), ROW_BY_ROW),
        ("has dtype" in failure.expected, MAKING, OF_ONE_DTYPE),
        (failure.expected.endswith(("is nan", "is inf", "is -inf")), FINITE, AS_THEY_ARE),
    )
    for fits, names, hint in known:
        made = statements.call(record, "replicate", *names)
        if fits and made != definition(record, "replicate"):
            return replace(failure, culprits=made, hint=hint)
    return replace(failure, culprits=place)


MAKING = ("astype", "empty", "zeros", "full", "ones", "asarray", "array", "broadcast_to", "stack")
"""What makes an array, of a dtype that may be named."""
FINITE = ("nan_to_num", "clip", "where")
"""What makes finite numbers of others."""
AS_THEY_ARE = (
    "A copy has NaN and infinite numbers where its array has them. Which line makes others of them?"
)
OF_ONE_DTYPE = "A copy has the dtype of its array. Which line chooses another one?"
ROW_BY_ROW = (
    "`repeat` along axis 0 repeats each row by itself: it makes 0, 0, 1, 1 of the rows 0, 1. A "
    "slice is one copy of the whole array."
)
IN_ORDER = (
    "Slice i belongs on devices[i], in whatever order the list is. Which line orders them anew?"
)
OF_THE_LIST = (
    "The slices belong on the devices of the list `devices`. Which ones does this line take?"
)


@EXERCISE.check(
    ground="observed",
    after=("one_copy_on_each_device",),
    hints=(
        "jax.numpy puts its arrays on the default device. Is there room for all copies on it?",
        "np.stack stays on the host. One device_put with the right sharding sends each slice to "
        "its device.",
    ),
    anchor="a-copy-for-each-device",
)
def straight_to_its_device(record: Record) -> Result:
    """Each copy goes straight from the host to its device."""
    found = list(events(seen(record), "d2d", phase="replicate"))
    if found:
        observed = f"{plural(sum(e.count for e in found), 'copy')} from device to device"
        expected = "copies go from the host to their devices"
        return Failure(expected, observed, culprits(record, found))
    if back := to_host(seen(record), phase="replicate"):
        observed = f"{plural(sum(e.count for e in back), 'array')} read back from a device"
        expected = "copies go from the host to their devices, and no array comes back"
        return Failure(expected, observed, culprits(record, back))
    expected = "copies go from the host to their devices, and no program makes or moves them"
    failure = through_a_program(record, expected, "replicate") or _more_than_a_copy(record)
    for run, _ in enumerate(_runs(record)):
        failure = failure or of_programs(record, expected, "replicate", facts.programs(run))
    return failure or probe_gap(seen(record), "transfers", "reads")


def _more_than_a_copy(record: Record) -> Failure | None:
    """The failure where devices receive more than one copy of the params."""
    mine, theirs = (list(events(of(record), "h2d", phase="replicate")) for of in (seen, wanted))
    whole = [event for event in mine if event.detail not in ("", PARTS)]
    received = sum(event.count * (event.nbytes or 0) for event in whole)
    copies = (wanted(record).values[facts.copies(run)] for run, _ in enumerate(_runs(record)))
    needed = sum(bytes_of(leaf) for leaves in copies for leaf in leaves)
    if received > needed:
        expected = f"the devices receive one copy each, in all {needed:,} bytes"
        found = culprits(record, whole)
        return Failure(expected, f"they receive {received:,} bytes", found, RECEIVED)
    total, fewest = (sum(event.count for event in found) for found in (mine, theirs))
    if total > fewest:
        expected = f"each device receives each array once: {plural(fewest, 'copy')}"
        found = culprits(record, whole or mine)
        return Failure(expected, plural(total, "copy"), found, RECEIVED)
    return None


RECEIVED = "One device_put hands out all slices. What does another call send to a device, or again?"


def _lies(leaf: Leaf, count: int) -> str:
    """Where an array lies, in words; the same words for any set of `count` devices."""
    if leaf.kind != "jax":
        return where(leaf)
    if len(leaf.devices) != count:
        return f"all on {where(leaf)}"
    memory = in_memory(leaf)
    if leaf.replicated and count > 1:
        return f"whole on each of {count} devices{memory}"
    return f"in slices of {leaf.shard_shape} on {plural(count, 'device')}{memory}"


@EXERCISE.check(
    ground="observed",
    hints=(
        "All devices must subtract the same numbers. Do they all have the same gradient?",
        "A mean of the loss does not make the gradient a mean: jax.grad inside pmap gives the "
        "gradient of this device's own loss. Exchange the gradients.",
    ),
    anchor="a-copy-for-each-device",
)
def copies_stay_equal(record: Record) -> Result:
    """After each step all copies of the params are equal, to the last bit."""
    for number, run in enumerate(_runs(record)):
        for step in range(1, run.steps + 1):
            if failure := _unequal(record, number, step, len(run.order)):
                return failure
    return None


def _unequal(record: Record, run: int, step: int, devices: int) -> Failure | None:
    """The failure where the copies of an array differ after a step."""
    apart = {
        leaf.path: abs(values - values[:1]).reshape(len(values), -1).max(axis=1)
        for leaf in seen(record).values[facts.params(run, step)]
        # `steps_along_the_mean` compares shapes
        if (values := _values(leaf)) is not None and leaf.shape[:1] == (devices,)
    }
    differ = [path for path, by in apart.items() if not (by == 0).all()]
    if not differ:
        return None
    path, equal = differ[0], [f"`params{path}`" for path in apart if path not in differ]
    by = apart[path]
    observed = f"after step {step}, {int((by != 0).sum())} of {devices} copies differ from the "
    observed += f"first, by up to {float(by.max()):.3g}"
    why = f": those of {' and '.join(equal)} are equal" if equal else _only_the_loss(record, run)
    last = int((by != 0).nonzero()[0][-1])
    if step == 1 and (counts := _counts(record, run, last)):
        why += f"; in the copy of {shares.which(last, devices)} device, {counts}"
    expected = f"all copies of `params{path}` are equal"
    made = _stepping(record)
    other = made != _taking(record)
    hint = EACH_ARRAY if equal else OTHER_EXCHANGE if other else ""
    return Failure(expected, observed + why, definition(record, "update"), hint, made)


EACH_ARRAY = "Which arrays of the gradient are exchanged, and which are not?"
OTHER_EXCHANGE = (
    "Is what `update` exchanges the gradient, over all devices? And do the params change by what "
    "comes back?"
)


def _stepping(record: Record) -> list[Culprit]:
    """Where `update` exchanges its gradient, else where it takes it."""
    return statements.apart_from(record, "update", 1, 2, EXCHANGES) or _taking(record)


def _taking(record: Record) -> list[Culprit]:
    """Where `update` takes its gradient."""
    return statements.call(record, "update", "value_and_grad", "grad")


def _only_the_loss(record: Record, run: int) -> str:
    """That the loss is a mean over all devices though the gradient is not; "" if it is neither."""
    if differing_leaf(record, facts.losses(run, 1), rtol=1e-3, atol=1e-5):
        return ""
    return ": the loss is the mean over all devices, the gradient is not"


def _values(leaf: Leaf) -> Any:
    """The values of a float array, or None: also where one of them is no number."""
    try:
        values = load(leaf.data or b"")
    except ValueError:
        return None
    fits = values.dtype.kind == "f" and values.shape == leaf.shape
    return values if fits and (abs(values) < math.inf).all() else None


EXCHANGES = (
    "pmean",
    "psum",
    "pmax",
    "pmin",
    "all_gather",
    "psum_scatter",
    "ppermute",
    "all_to_all",
)
DIVIDED = "If a mean over all devices was taken, it is divided already. Which division is left?"
RATE = "The length of the step is 0.1 of the gradient. By what is yours multiplied?"
OTHERWISE = (
    "With other numbers of devices, or of rows, the factor is another one. Which number in "
    "`update` has to change with them, and which must not?"
)
SUM = "A sum over n devices is n times as long as their mean."


@EXERCISE.check(
    ground="observed",
    after=("copies_stay_equal",),
    hints=(
        "The params change by 0.1 of the gradient's mean over all devices, and by nothing else.",
        SUM,
        "jax.lax.pmean is psum divided by the number of devices.",
    ),
    anchor="a-copy-for-each-device",
)
def steps_along_the_mean(record: Record) -> Result:
    """Each step follows the mean gradient over the rows of all devices."""
    for number, run in enumerate(_runs(record)):
        for step in range(1, run.steps + 1):
            if failure := _differing_params(record, number, step):
                found = renamed(failure, facts.params(number, step), "params")
                when = f" after {plural(step, 'step')} on {plural(len(run.order), 'device')}"
                if step == run.steps:  # the steps before it are right
                    found = replace(found, hint=found.hint or FAR_AWAY)
                    when += ", the last of them with targets that are far away"
                return _other_step(record, number, replace(found, expected=found.expected + when))
    return _of_odd_params(record)


def _of_odd_params(record: Record) -> Failure | None:
    """The failure of the params after a step whose loss is no number, or infinite."""
    run = int(wanted(record).facts[facts.ODD_RUN])
    before = facts.params(run, _runs(record)[run].steps - 1)
    for odd in facts.ODD:
        name = facts.odd_params(odd)
        if "NaN" in odd:
            failure = differing_leaf(record, name, rtol=RTOL, atol=ATOL)
        else:
            failure = differing_step(record, name, before, rtol=RTOL, atol=ATOL)
        if failure:
            return _of_odd(record, renamed(failure, name, "params"), odd, 0)
    return None


def _of_odd(record: Record, found: Failure, odd: str, part: int) -> Failure:
    """The failure of what a step with something odd gives."""
    place = statements.result(record, "update", part, 2)
    hint = OF_LOST if "NaN" in odd else OF_INFINITE
    return Failure(f"{found.expected} after a step with {odd}", found.observed, place, hint)


OF_LOST = (
    "A row that is NaN makes the mean over all rows NaN, on every device: that is how one learns "
    "of it. Which line leaves such numbers out?"
)
FAR_AWAY = (
    "Only where the gradient is large is the step another one. A step takes 0.1 of the gradient, "
    "however long that is."
)


NO_MEAN = (
    "`pmax` and `pmin` take the largest and the least number over all devices. Which one takes the "
    "mean?"
)


def _differing_params(record: Record, run: int, step: int) -> Failure | None:
    """The failure where the params after a step are not the reference's."""
    old = facts.params(run, step - 1) if step > 1 else facts.start(run)
    return differing_step(record, facts.params(run, step), old, rtol=RTOL, atol=ATOL)


def _other_step(record: Record, run: int, found: Failure) -> Failure:
    """The failure of the params in a run, with what explains it."""
    length, why = _length(record, run)
    own = statements.result(record, "update", 0, 2)
    if why in (RATE, *TURNED) or found.hint in (IN_FULL, *OF_WHAT_WENT_IN):
        place = own
    elif why in (DIVIDED, OTHERWISE):
        place = statements.division(record, "update") or own
    else:
        place = _stepping(record)
        if not why and any(name in place[0].text for name in ("pmax", "pmin")):
            why = NO_MEAN
    if not (length or found.hint) and (counts := _counts(record, run)):
        length = f"; {counts}"
    return Failure(found.expected, found.observed + length, place, found.hint or why)


def _counts(record: Record, run: int, copy: int = 0) -> str:
    """How often the rows of each device count in the first step of one copy, if not all alike."""
    import numpy as np  # here: the command line starts without it

    start, after = facts.start(run), facts.params(run, 1)
    devices, values = len(_runs(record)[run].order), wanted(record).values
    copies = shares.params(values[start])
    if (change := change_of(record, start, after)) is None:
        return ""
    ends = np.cumsum([array.size for array in copies.values()])[:-1]
    step = np.concatenate([np.split(each, devices)[copy] for each in np.split(change, ends)])
    old = {name: array[0] for name, array in copies.items()}
    batch = [shares.numbers(leaf) for leaf in values[facts.batch(run)]]
    return shares.of_devices(step, old, batch, devices)


def _length(record: Record, run: int) -> tuple[str, str]:
    """How much too long the first step of a run is, where that is all, and a hint."""
    steps = facts.start(run), facts.params(run, 1)
    said, why = turned(record, *steps)
    ratio = step_ratio(record, *steps)
    if why or not ratio:
        return said, why
    every = [
        (factor, len(each.order))
        for number, each in enumerate(_runs(record))
        if (factor := _factor(record, number))
    ]
    known = {
        SUM: [one / devices for one, devices in every],
        DIVIDED: [one * devices for one, devices in every],
        RATE: [one / ratio for one, _ in every],
    }
    why = next((why for why, ones in known.items() if _are_ones(ones)), OTHERWISE)
    return f"; the first step is {ratio:.4g} times as long as the mean's", why


def _factor(record: Record, run: int) -> float | None:
    """How many times as long the first step of a run is; None where that is not all."""
    if ratio := step_ratio(record, facts.start(run), facts.params(run, 1)):
        return ratio
    return None if _differing_params(record, run, 1) else 1.0


def _are_ones(numbers: Sequence[float]) -> bool:
    """Whether all of them are 1, to rounding."""
    return all(abs(number - 1) < 1e-2 for number in numbers)


OF_ITS_OWN = (
    "The loss over one device's rows is not the loss over all rows. pmean takes trees, such as "
    "(loss, grads)."
)
BEFORE = "The loss is that of the params which `update` was given: the gradient is taken there."


@EXERCISE.check(
    ground="observed",
    hints=(
        "The loss is a mean over the rows of all devices, with the params that `update` was given.",
        OF_ITS_OWN,
    ),
)
def losses_are_the_mean(record: Record) -> Result:
    """Each device returns the same loss, the mean over all rows."""
    for number, run in enumerate(_runs(record)):
        right = not any(_differing_params(record, number, step) for step in range(1, run.steps + 1))
        # Later losses depend on the steps.
        for step in range(1, run.steps + 1) if right else (1,):
            name = facts.losses(number, step)
            if failure := differing_leaf(record, name, rtol=RTOL, atol=ATOL):
                return _other_loss(record, failure, name)
    for odd in facts.ODD:
        name = facts.odd_losses(odd)
        if failure := finite(record, name):
            return _of_odd(record, renamed(failure, name, "loss"), odd, 1)
    return None


def _other_loss(record: Record, failure: Failure, name: str) -> Failure:
    """The failure, with its reason if each device returns a loss of its own."""
    values = [_values(leaf) for leaf in seen(record).values[name]]
    differ = len(values) == 1 and values[0] is not None and values[0].max() > values[0].min()
    found = renamed(failure, name, "loss")
    observed = found.observed + (": each device returns its own" if differ else "")
    hint = BEFORE if facts.NEW_PARAMS in observed else found.hint
    hint = OF_ITS_OWN if differ else hint
    place = statements.result(record, "update", 1, 2)
    return Failure(found.expected, observed, place, hint)


EACH_ROW = "Here a device has another number of rows, of another length. Does each of them count?"


@EXERCISE.check(
    ground="program",
    after=("steps_along_the_mean", "losses_are_the_mean"),
    hints=(
        "Which exchange in `update` grows with the rows?",
        "A device's own rows give its own loss and gradient. Only these are exchanged.",
    ),
    anchor="what-pmap-does",
)
def rows_stay(record: Record) -> Result:
    """With more rows, or longer ones, the step exchanges gradient and loss, and no row."""
    sizes = []
    for name in (FEW_ROWS, MANY_ROWS, TWICE):
        expected = "the step of `update` can be compiled"
        measured = compiled_program(record, name, expected, made_by="update")
        if not isinstance(measured, Measured):
            return measured
        failure = differing_output(record, name, rtol=2e-5, atol=1e-5)
        if failure := failure or other_output_change(record, name):
            part = 1 if "(...)[1]" in failure.expected else 0
            place = statements.result(record, "update", part, 2)
            return Failure(failure.expected, failure.observed, place, failure.hint or EACH_ROW)
        # A loop of unknown length is refused: nobody could say what it exchanges.
        if any(c.runs == 0 for c in measured.collectives):
            expected = "the compiler knows how often the devices exchange something"
            return Failure(expected, exchanges(measured.collectives), definition(record, "update"))
        sizes.append(measured.collectives)
    few, many, twice = map(exchanged_by, sizes)
    if few == many:
        # With few rows, a mean of gradients that were gathered is as much work as the gradients.
        found = _beside_the_gradient(record, 2 * few - twice, sizes[0])
        found = found or _otherwise_exchanged(record, sizes) or _more_in_a_run(record, sizes[0])
        return found or beyond_own_rows(record, MANY_ROWS)
    ops = sorted({c.op for found in sizes for c in found})
    grows = next(op for op in ops if exchanged_by(sizes[0], op) != exchanged_by(sizes[1], op))
    place = statements.every_sending(record, "update", grows) or definition(record, "update")
    return Failure(
        f"however many rows there are, and however long, the devices exchange {few:,} bytes",
        f"for other rows they exchange {many:,} bytes: {exchanges(sizes[1])}",
        place,
    )


BESIDE = 64
"""Bytes that may be exchanged beside the gradient: for the loss of each device, say."""


def _beside_the_gradient(record: Record, nbytes: int, found: Sequence[Collective]) -> Result:
    """The failure where more than the loss is exchanged beside what grows with the params."""
    if abs(nbytes) <= BESIDE:
        return None
    ops = {c.op for c in found}
    place = next(filter(None, (statements.every_sending(record, "update", op) for op in ops)), [])
    return Failure(
        f"the devices exchange the gradient, and at most {BESIDE} bytes beside it, for the loss",
        f"{abs(nbytes):,} bytes do not grow with the params: {exchanges(found)}",
        place or definition(record, "update"),
    )


def _otherwise_exchanged(record: Record, programs: Sequence[Sequence[Collective]]) -> Result:
    """The failure where the devices of a run exchange in another way than in the programs."""
    ops = {collective.op for found in programs for collective in found}
    found = [e for e in events(seen(record), "exchange", phase=STEPS) if e.detail not in ops]
    if not found:
        return None
    others = " and ".join(sorted({event.detail for event in found}))
    place = statements.every_sending(record, "update", found[0].detail)
    return Failure(
        f"on any devices, and with any rows, the devices exchange by {' and '.join(sorted(ops))}",
        f"in a run with other devices or rows they exchange by {others}, too",
        place or definition(record, "update"),
    )


def _more_in_a_run(record: Record, program: Sequence[Collective]) -> Result:
    """The failure where a run's devices exchange more for each param than those of a program.

    With fewer devices, an all-gather returns less, and a reduce-scatter more. What gathers the
    parts that a reduce-scatter has made returns as much on any.
    """
    scattered = any(c.op == "reduce-scatter" for c in program)
    for number, run in enumerate(_runs(record)):
        part = len(run.order) / devices_of(record)
        scales = {"all-gather": 1 if scattered else part, "reduce-scatter": 1 / part}
        params = sum(map(bytes_of, wanted(record).values[facts.start(number)])) // len(run.order)
        needed = sum(c.total * scales.get(c.op, 1) for c in program)
        most = round(needed * params / PARAMS) + BESIDE
        found = msgspec.convert(seen(record).facts[facts.exchanged(number)], list[Collective])
        total = exchanged_by(found) // run.steps
        if total > most or any(c.runs == 0 for c in found):
            return Failure(
                f"on {plural(len(run.order), 'device')}, a step exchanges at most {most:,} bytes: "
                "as many for each param as in the compiled programs",
                f"it exchanges {total:,} bytes",
                statements.every_sending(record, "update", found[0].op)
                or definition(record, "update"),
            )
    return None
