"""Checks of ex22_pmap_to_jit: where arrays lie, the numbers, the collectives, and the time.

The collectives are those of the program for the devices at hand, and of the same program
compiled for a target. No check depends on how many devices there are.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import msgspec

from grader.checks.ex22_pmap_to_jit import EXERCISE, facts
from grader.checks.ex22_pmap_to_jit.facts import RUNS, TIMED, WIDTH, Run, shapes
from grader.judging import shares
from grader.judging.arrays import OF_WHAT_WENT_IN, drifted, unlike_copies
from grader.judging.checking import Failure, Result, Unable
from grader.judging.differences import ANOTHER_ORDER, AT_ITS_INDEX
from grader.judging.evidence import (
    SENT_WHOLE,
    culprits,
    definition,
    devices_of,
    of_programs,
    probe_gap,
    seen,
    sent_beyond,
    target_of,
    timing_result,
    wanted,
)
from grader.judging.memory import BATCH_STAYS, HELD, left
from grader.judging.programs import compiled_program, not_jitted, target_program
from grader.judging.results import (
    differing_leaf,
    differing_output,
    finite,
    other_parts,
    renamed,
    waiting,
)
from grader.judging.steps import (
    AFTER_THE_STEP,
    BEFORE_IT,
    IN_FULL,
    LOSS_TOO,
    OF_INFINITE,
    OF_LOST,
    TURNED,
    change_of,
    differing_step,
    is_the_others,
    loss_too,
    other_output_change,
    step_error,
    step_in_words,
    step_ratio,
    turned,
)
from grader.judging.words import exchanges, in_memory, plural, where
from grader.records.record import Leaf, Measured, Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File

Shapes = dict[str, tuple[int, ...]]
RTOL, ATOL = 1e-5, 2e-6
"""How far params and loss may be from the reference's: by rounding, and no more."""
SCALARS = 8
"""Bytes that may be exchanged beside the gradients: for the loss, and a count."""


def _runs(record: Record) -> list[Run]:
    """The runs, as the reference's side drew them."""
    return msgspec.convert(wanted(record).facts[RUNS], list[Run])


def _placings(record: Record) -> list[tuple[int, Run]]:
    """The number of each call of `place`, in order, and the run for which it is."""
    runs = enumerate(_runs(record))
    return [(number, run) for at, run in runs for number in (facts.earlier(at), at)]


def _lies(leaf: Leaf, devices: int) -> str:
    """How an array lies, in words; `shards of ...` only if each of all `devices` holds one."""
    if leaf.kind != "jax" or len(leaf.devices) != devices:
        return f"on {where(leaf)} alone" if leaf.kind == "jax" else where(leaf)
    memory = in_memory(leaf)
    if leaf.replicated and (devices > 1 or memory):
        return f"{_copies(devices)}{memory}"
    return f"shards of {leaf.shard_shape} on {plural(devices, 'device')}{memory}"


def _copies(devices: int) -> str:
    """What a copy on each device is called."""
    return f"a full copy on each of {devices} devices" if devices > 1 else "a full copy on 1 device"


@EXERCISE.check(
    ground="observed",
    hints=(
        "The batch keeps its shape; its sharding says how it is split.",
        "jax.device_put(batch, NamedSharding(mesh, P('data'))): 'data' stands for dimension 0.",
    ),
    anchor="pmap-as-jit",
)
def batch_is_split(record: Record) -> Result:
    """`place` gives every device its own rows of the batch, and keeps no other arrays."""
    for number, run in _placings(record):
        name = facts.placed_batch(number)
        leaves = seen(record).values[name]
        if len(leaves) != 2:
            observed = plural(len(leaves), "array")
            return _misplaced(record, 1, "the batch is (inputs, targets)", observed)
        found = (
            _not_split(record, run, leaf, columns, name)
            for leaf, columns in zip(leaves, (run.features, run.targets), strict=True)
        )
        if failure := next(filter(None, found), None):
            return failure
        if failure := differing_leaf(record, name, rtol=0, atol=0):
            unlike = renamed(failure, name, "batch")
            return _misplaced(record, 1, f"{unlike.expected}, as it was given", unlike.observed)
        if more := left(seen(record).facts[facts.left(number)], "place"):
            return Failure(*more, statements.piled(record, "place"), HELD)
    found = (_whole_first(record, number, run) for number, run in _placings(record))
    return next(filter(None, found), None) or probe_gap(seen(record), "transfers")


def _whole_first(record: Record, number: int, run: Run) -> Failure | None:
    """The failure where several devices got rows of others before the batch was split."""
    batch, params = facts.placed_batch(number), facts.placed_params(number)
    found = sent_beyond(record, batch, (batch, params))
    expected = f"each of {run.devices} devices gets its own rows of the batch, and no others"
    if found is None:
        return of_programs(record, expected, "place", facts.programs(number))
    return Failure(expected, found[0], culprits(record, found[1]), SENT_WHOLE)


def _not_split(record: Record, run: Run, leaf: Leaf, columns: int, of: str) -> Failure | None:
    """The failure where an array of the batch is not split by its rows, in the mesh's order."""
    name, devices = f"`batch{leaf.path}`", run.devices
    if leaf.shape != (run.rows, columns):
        expected = f"{name} keeps its shape {(run.rows, columns)}"
        return _misplaced(record, 1, expected, str(leaf.shape))
    own = run.rows // devices
    if _lies(leaf, devices) != f"shards of {(own, columns)} on {plural(devices, 'device')}":
        expected = f"each device holds {own} of the {run.rows} rows of {name}"
        element = int(leaf.path[1:-1]) if leaf.path[1:-1].isdecimal() else None
        return _misplaced(record, 1, expected, _lies(leaf, devices), element)
    right = next((x for x in wanted(record).values[of] if x.path == leaf.path), None)
    if right is not None and (exchanged := other_parts(leaf, right)):
        expected = f"the devices hold the rows of {name} in the order of the mesh"
        made = statements.call(record, "place", "make_mesh", "Mesh")
        if made != definition(record, "place"):
            return Failure(expected, exchanged, made, OWN_MESH)
        return _misplaced(record, 1, expected, exchanged)
    return None


OWN_MESH = (
    "A mesh has its devices in an order of its own. Does the one that this line makes have the "
    "devices of `mesh`, in their order?"
)


def _misplaced(
    record: Record, part: int, expected: str, observed: str, element: int | None = None
) -> Failure:
    """A failure of the first or the second value that `place` returns, or of an element of it."""
    place = statements.result(record, "place", part, 2, element=element)
    return Failure(expected, observed, place, AT_ITS_INDEX * observed.endswith(ANOTHER_ORDER))


@EXERCISE.check(
    ground="observed",
    after=("batch_is_split",),
    hints=(
        "Every device needs all params. A sharding whose spec names no axis, P(), copies them.",
    ),
)
def params_are_copied(record: Record) -> Result:
    """`place` gives every device a copy of all params."""
    for number, run in _placings(record):
        name = facts.placed_params(number)
        if found := _not_copied(record, run, name):
            return _misplaced(record, 0, *found)
        if failure := differing_leaf(record, name, rtol=0, atol=0):
            unlike = renamed(failure, name, "params")
            return _misplaced(record, 0, f"{unlike.expected}, as it was given", unlike.observed)
    return None


def _not_copied(record: Record, run: Run, name: str) -> tuple[str, str] | None:
    """(expected, observed) for the first array of a value that is not whole on all devices.

    The devices are those of the run's mesh, on which the reference's arrays lie.
    """
    right = wanted(record).values[name][0].devices
    for leaf in seen(record).values[name]:
        expected = f"`params{leaf.path}` is {_copies(run.devices)}"
        if leaf.kind != "jax" or len(leaf.devices) != run.devices or not leaf.replicated:
            return expected, _lies(leaf, run.devices)
        if leaf.devices != right:
            return f"{expected}, those of the mesh", f"it is on {where(leaf)}"
        if leaf.memory_kind not in (None, "device"):
            return expected, _lies(leaf, run.devices)
    return None


@EXERCISE.check(
    ground="observed",
    hints=("Return what jax.jit returns. You may use jax.shard_map inside it.",),
)
def one_program(record: Record) -> Result:
    """`make_step` returns a function that jax.jit made."""
    return not_jitted(record, "step", "make_step")


LENGTH = "Only the length of the step is wrong. By what is the gradient multiplied or divided?"
ADDED_UNSEEN = (
    "Inside jax.shard_map, unless check_vma is False, jax.grad adds up by itself the gradients of "
    "params that are equal on all devices. A mean of n equal sums is that sum. Which line divides?"
)
OF_LOSS_FN = (
    "A step takes 0.1 of the gradient of `loss_fn` from the params, once. What else does it do to "
    "one of them?"
)
OF_ALL_ROWS = "The params are right. The loss is a mean, too: over all rows, of all devices."


@EXERCISE.check(
    ground="observed",
    after=("one_program", "params_are_copied"),
    hints=(
        "A sum over n devices is n times their mean. Where are the gradients added, and how often?",
        "In jax.shard_map, jax.grad for params that are equal on all devices already holds the "
        'sum over them: lesson 14, "The sum you did not write".',
    ),
    anchor="what-pmap-does",
)
def same_numbers(record: Record) -> Result:
    """Params and loss are those of the step in pmap, after each step."""
    for number, run in enumerate(_runs(record)):
        before = facts.placed_params(number)
        for step in range(1, run.steps + 1):
            new, loss = facts.params_after(number, step), facts.loss_of(number, step)
            if failure := differing_step(record, new, before, rtol=RTOL, atol=ATOL):
                return _other_numbers(record, renamed(failure, new, "params"), number, step)
            if failure := differing_leaf(record, loss, rtol=RTOL, atol=ATOL):
                return _other_numbers(record, renamed(failure, loss, "loss"), number, step)
            if failure := waiting(record, loss):
                place = statements.result(record, "make_step", 1, 2, inner=True)
                return replace(renamed(failure, loss, "loss"), culprits=place)
            before = new
    return _of_an_odd_step(record)


def _of_an_odd_step(record: Record) -> Failure | None:
    """The failure of a step whose loss is no number, or infinite."""
    run = int(wanted(record).facts[facts.ODD_RUN])
    before = facts.params_after(run, _runs(record)[run].steps - 1)
    for odd in facts.ODD:
        params, loss = facts.odd_params(odd), facts.odd_loss(odd)
        if "NaN" in odd:
            hint, failure = OF_LOST, differing_leaf(record, params, rtol=RTOL, atol=ATOL)
        else:
            hint, failure = (
                OF_INFINITE,
                differing_step(record, params, before, rtol=RTOL, atol=ATOL),
            )
        found, part = failure and renamed(failure, params, "params"), 0
        if not found:
            failure = finite(record, loss)
            found, part = failure and renamed(failure, loss, "loss"), 1
        if found:
            expected = f"{found.expected} after a step with {odd}"
            place = statements.result(record, "make_step", part, 2, inner=True)
            return Failure(expected, found.observed, place, hint)
    return None


def _other_numbers(record: Record, found: Failure, number: int, step: int) -> Failure:
    """The failure of params or of a loss in one run, with what explains it."""
    run = _runs(record)[number]
    expected = f"{found.expected} after {plural(step, 'step')} on {plural(run.devices, 'device')}"
    of_loss = found.expected.startswith("`loss")
    if found.hint == IN_FULL:
        place = statements.result(record, "make_step", 0, 2, inner=True)
        return replace(found, expected=expected, culprits=place)
    if step == run.steps:  # the steps before it are right
        expected += f", the last of them with{' fewer rows, and' * (run.fewer > 0)} targets"
        expected += " that are far away"
        place = statements.result(record, "make_step", int(of_loss), 2, inner=True)
        return Failure(expected, found.observed, place, found.hint or OTHER_SIZE)
    if (
        of_loss
        and step < run.steps
        and is_the_others(record, facts.loss_of(number, step), facts.loss_of(number, step + 1))
    ):
        place = statements.computed(record, "make_step", 1, 2)
        return Failure(expected, f"{found.observed}: {AFTER_THE_STEP}", place, BEFORE_IT)
    length, why = _length(record, number)
    apart = "on all devices that hold it" in found.expected
    place = statements.call(record, "make_step", "value_and_grad", "grad")
    if apart and not of_loss:
        return Failure(expected, found.observed, place, APART)
    if not (of_loss or length or found.hint) and (counts := _counts(record, number)):
        return Failure(expected, f"{found.observed}; {counts}", place, ALL_ROWS)
    if not (of_loss or length) and 0 < (step_error(record, *_first_step(number)) or 0) < ROUNDED:
        rounding = statements.call(record, "make_step", "astype")
        return Failure(expected, f"{found.observed}: it is like rounding", rounding, OF_ROUNDING)
    known = why in (LENGTH, LOSS_TOO, *TURNED) or found.hint in OF_WHAT_WENT_IN
    exchange = not known and not (apart and of_loss)
    hint = OF_ALL_ROWS if of_loss else why or ("" if _by_hand(record) else OF_LOSS_FN)
    place = _stepping(record, int(of_loss), exchange=exchange)
    if why in (LENGTH, LOSS_TOO):
        place = statements.division(record, "make_step") or place
    return Failure(expected, found.observed + length, place, hint if apart else found.hint or hint)


def _by_hand(record: Record) -> bool:
    """Whether the file itself names what adds up over devices."""
    return any(word in record.source for word in ("shard_map", "psum", "pmean"))


ROUNDED = 2**-7
"""How far the first step may be from the right one, in its own lengths, to be a rounded one."""
OF_ROUNDING = "The gradient is float32 all the way to the params. Which line makes it another type?"


def _counts(record: Record, number: int) -> str:
    """How often the rows of each device count in the first step of a run, if not all alike."""
    run, before = _runs(record)[number], facts.placed_params(number)
    values = wanted(record).values
    old = shares.params(values[before])
    batch = [shares.numbers(leaf) for leaf in values[facts.placed_batch(number)]]
    change = change_of(record, *_first_step(number))
    if change is None or run.devices == 1:
        return ""
    if found := shares.of_devices(change, old, batch, run.devices):
        return found
    halves = shares.of_devices(change, old, batch, 2)
    return halves.replace("2 devices", "2 halves of the rows")


ALL_ROWS = "The gradient is a mean over all rows of the batch. Which rows does this line get?"


APART = (
    "Each device has a gradient of its own rows. If nothing averages it over the devices, each "
    "takes a step of its own."
)


def _stepping(record: Record, part: int, *, exchange: bool) -> list[Culprit]:
    """Where the step exchanges something, else where it makes the value that is meant."""
    own = statements.result(record, "make_step", part, 2, inner=True)
    found = statements.call(record, "make_step", "pmean", "psum")
    if exchange and found != definition(record, "make_step") and not (part and _sends(own)):
        return found
    return own


def _sends(places: Sequence[Culprit]) -> bool:
    """Whether a line takes a mean or a sum over devices by itself."""
    return any(name in place.text for place in places for name in ("pmean", "psum"))


def _length(record: Record, run: int) -> tuple[str, str]:
    """How much too long the first step is, where that is all that is wrong, and a hint."""
    said, why = turned(record, *_first_step(run))
    if why:
        return said, why
    ratio = step_ratio(record, *_first_step(run))
    if not ratio:
        return "", ""
    said = f"; the first step {step_in_words(ratio)}"
    runs = _runs(record)
    ratios = [step_ratio(record, *_first_step(at)) or 1 for at in range(len(runs))]
    if any(abs(r - one.devices) > 0.01 * one.devices for r, one in zip(ratios, runs, strict=True)):
        return said, LOSS_TOO if loss_too(record, facts.loss_of(run, 1), ratio) else LENGTH
    devices = runs[run].devices
    if not _by_hand(record):  # then no line adds anything up over devices
        return f"{said}, for {devices} devices", ""
    added = "shard_map" in record.source and not File(record.source).gives("check_vma", False)
    said += f", as if the gradients of {devices} devices were added, and not averaged"
    if not added and loss_too(record, facts.loss_of(run, 1), ratio):
        return said, LOSS_TOO
    return said, ADDED_UNSEEN if added else ""


def _first_step(run: int) -> tuple[str, str]:
    """The names of the params before and after the first step of a run."""
    return facts.placed_params(run), facts.params_after(run, 1)


@EXERCISE.check(
    ground="observed",
    after=("one_program", "params_are_copied"),
    hints=(
        "The next step takes what this one returns. The argument out_shardings of jax.jit says how "
        "that lies.",
    ),
)
def params_stay_copied(record: Record) -> Result:
    """Every device has a copy of all the new params, and the batch is not donated."""
    for number, run in enumerate(_runs(record)):
        if seen(record).facts.get(facts.batch_donated(number)):
            place = statements.call(record, "make_step", "jit")
            observed = "it is: only params may be"
            return Failure("the batch is not donated", observed, place, BATCH_STAYS)
        for step in range(1, run.steps + 1):
            name = facts.params_after(number, step)
            if found := _not_copied(record, run, name):
                place = statements.result(record, "make_step")
                return Failure(f"the new {found[0]}", found[1], place)
            leaves = seen(record).values[name]
            if any(map(unlike_copies, leaves)):
                return None  # these are other numbers, of which `same_numbers` speaks
            for leaf in filter(drifted, leaves):
                device, difference = leaf.unlike or (0, 0.0)
                return Failure(
                    f"all copies of the new `params{leaf.path}` are equal",
                    f"that on device {device} differs from another one by up to {difference:.2g}",
                    statements.result(record, "make_step", 0, 2, inner=True),
                    "What does the step compute in another way on one device than on the others?",
                )
    return None


OTHER_SIZE = (
    "The steps before it, of another size or with smaller gradients, are right. What in the step "
    "depends on a size, or on how large a gradient is?"
)
ONE_MEAN = (
    "Only the gradients and the loss depend on rows of other devices. They need one mean each."
)


@EXERCISE.check(
    ground="program",
    after=("params_are_copied", "same_numbers", "params_stay_copied"),
    hints=(
        "An all-gather makes something whole on every device. What in the step asks for that?",
        ONE_MEAN,
    ),
    anchor="count-the-collectives",
)
def only_the_gradients_travel(record: Record) -> Result:
    """The program's only collectives are all-reduces, of the gradients' bytes and little more."""
    if devices_of(record) == 1:
        return Unable("on one device nothing travels")
    programs = [
        (facts.program_of(at), shapes(run.width, run.features, run.targets), run.devices)
        for at, run in enumerate(_runs(record))
    ]
    programs.append((TIMED, shapes(wanted(record).facts[WIDTH]), devices_of(record)))
    found = (_other_exchange(record, *program) for program in programs)
    return next((one for one in found if one), None)


def _other_exchange(
    record: Record, name: str, params: Shapes, devices: int
) -> Failure | Unable | None:
    """The failure where one program exchanges anything but its gradients and a few scalars."""
    expected = "`step` can be compiled apart from its file"
    measured = compiled_program(record, name, expected, made_by="make_step")
    if not isinstance(measured, Measured):
        return measured
    failure = differing_output(record, name, rtol=2e-5, atol=1e-5)
    if failure := failure or other_output_change(record, name):
        expected, observed = (
            text.replace(f"{name} ", "step's result ")
            for text in (failure.expected, failure.observed)
        )
        hint = failure.hint or OTHER_SIZE
        return Failure(expected, observed, definition(record, "make_step"), hint)
    if devices == 1:
        return None  # nothing travels
    gradients, (width,) = _nbytes(params), params["b1"]
    # In a loop of unknown length, even one round too many shows.
    total = sum(c.nbytes * c.count * (c.runs or 2) for c in measured.collectives)
    times = total / gradients
    more = f"; in all, {total:,} bytes, {times:.2g} times the gradients'" if times > 1.5 else ""
    ops = {c.op for c in measured.collectives}
    if ops == {"all-reduce"} and gradients <= total <= gradients + SCALARS:
        return None
    place, hint = _adding(record), ONE_MEAN
    if "all-gather" in ops:
        place, hint = _asking(record), ""
    elif ops & {"all-to-all", "collective-permute"}:
        place, hint = statements.call(record, "make_step", *REGROUPING), OTHER_ROWS
    return Failure(
        f"only all-reduces: of the gradients, {gradients:,} bytes for a network of width {width}, "
        "and of the loss",
        exchanges(measured.collectives) + more,
        place,
        hint,
    )


REGROUPING = ("swapaxes", "transpose", "moveaxis", "reshape", "permutation", "ppermute", "roll")
OTHER_ROWS = (
    "Rows change their device here. The first rows of the batch lie on the first device, the next "
    "ones on the second. Which line groups, or orders, them in another way?"
)


def _adding(record: Record) -> list[Culprit]:
    """All lines of `make_step` that add something up over devices, else the function."""
    sending = statements.every_sending(record, "make_step", "all-reduce")
    found = sorted(sending, key=lambda place: place.line)
    return found or definition(record, "make_step")


OF_BATCH = r"[\w.]*(with_sharding_constraint|device_put|reshard)\(batch\b.*"
"""How a step says where the batch lies."""


def _asking(record: Record) -> list[Culprit]:
    """What makes an array whole on every device: a call, or the specs of shard_map."""
    own = statements.moving(record, "make_step", "all_gather")
    moved = statements.matching(record, "make_step", OF_BATCH)
    return own or moved or statements.entry(record, "make_step", "in_specs")


def _nbytes(params: Shapes) -> int:
    """Bytes of float32 parameters of these shapes."""
    return 4 * sum(map(prod, params.values()))


@EXERCISE.check(
    ground="target",
    after=("only_the_gradients_travel",),
    hints=(
        "Each all-reduce has a start of its own: the devices wait for each other, then the bytes "
        "travel. XLA for GPUs joins those that are ready together. What makes one wait for "
        "another?",
        "Average all gradients in one call, jax.lax.pmean(grads, 'data'), or leave it to the "
        "compiler. Put nothing between one gradient's mean and the next.",
    ),
    anchor="count-the-collectives",
)
def all_in_one_exchange(record: Record) -> Result:
    """Compiled for the target, all gradients travel in one all-reduce."""
    measured = target_program(record, TIMED, made_by="make_step")
    if not isinstance(measured, Measured):
        return measured
    gradients = _nbytes(shapes(wanted(record).facts[WIDTH]))
    found = [c for c in measured.collectives if c.op != "all-reduce" or c.nbytes > SCALARS]
    whole = [c.nbytes for c in found if (c.op, c.count, c.runs) == ("all-reduce", 1, 1)]
    if len(found) == len(whole) == 1 and 0 <= whole[0] - gradients <= SCALARS:
        return None
    return Failure(
        f"on {target_of(record).title}, one all-reduce for the {gradients:,} bytes of all "
        "gradients",
        exchanges(measured.collectives),
        definition(record, "make_step"),
    )


@EXERCISE.check(
    ground="timing",
    hints=("All devices work at once, each on its rows, in a few large operations.",),
    anchor="count-the-collectives",
)
def as_fast_as_the_reference(record: Record) -> Result:
    """The step takes at most twice the reference's time."""
    return timing_result(record, TIMED, "a step")
