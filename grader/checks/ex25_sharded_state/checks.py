"""Checks of ex25_sharded_state: each device's share of the state, the numbers, and what travels.

The program ground judges memory, operations and exchanged bytes on the devices at hand; the
target ground judges exchanged bytes again, for the GPU's compiler.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from math import prod

import msgspec

from grader.checks.ex25_sharded_state import EXERCISE
from grader.checks.ex25_sharded_state.facts import (
    AFTER,
    ALONE,
    BLANK,
    DONATED,
    EVEN,
    EXCHANGED,
    FAR_AWAY,
    GONE,
    LARGE,
    LOST,
    ODD,
    ON,
    PROGRAMS,
    SOME,
    STEP,
    STEPPED,
    Program,
    Sizes,
    param_shapes,
)
from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import calls_of, definition, devices_of, given, seen, target_of, wanted
from grader.judging.programs import (
    beyond_own_rows,
    compiled_program,
    exchanged,
    exchanged_by,
    not_jitted,
    sent,
    target_program,
)
from grader.judging.results import differing_leaf, differing_output, other_parts, renamed, waiting
from grader.judging.steps import (
    AFTER_THE_STEP,
    BEFORE_IT,
    OF_LOST,
    change_error,
    change_ratio,
    is_the_others,
    other_float32_step,
    other_moment,
)
from grader.judging.words import exchanges, in_memory, plural, shards
from grader.records.record import Collective, Leaf, Measured, Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File

TRAVELS = 2
"""A device may send this many times the bytes of the params: 1 to gather them, and 1 to add the
gradients to shares. A sum that an all-reduce gives to every device takes 1 more."""
HELD = 0.6
"""Shares of the state that a step may hold beyond what the reference holds while it runs."""
SCALARS, WHOLE = 16, 512
"""Bytes that may travel beside arrays of the state, for the loss and `count`; and bytes that arrays
which cannot be divided may take here."""


def _failure(record: Record, expected: str, observed: str, edit: str = "make_step") -> Failure:
    return Failure(expected, observed, definition(record, edit))


@EXERCISE.check(
    ground="observed",
    hints=("Return what jax.jit returns, with Adam inside it. jax.shard_map is fine too.",),
)
def one_program(record: Record) -> Result:
    """`make_step` returns a function that jax.jit made."""
    return not_jitted(record, "step", "make_step")


@EXERCISE.check(
    ground="observed",
    after=("one_program",),
    hints=(
        "Which dimensions of this shape can be divided by the size of the mesh? One of them is "
        "split.",
        "Where dimension 0 cannot be divided, try another: P(None, 'data') splits dimension 1.",
        "The number to divide by is the size of `mesh`, which may have only some of the devices.",
    ),
)
def state_is_shared(record: Record) -> Result:
    """Each device holds one share of every array that can be divided, params and moments alike."""
    asked: dict[str, int] = wanted(record).facts[ON]
    found = (_beyond_share(record, name, count) for name, count in asked.items())
    return next(filter(None, found), None)


def _beyond_share(record: Record, name: str, devices: int) -> Failure | None:
    leaves = seen(record).values[name]
    if not (whole := [leaf for leaf in leaves if _excess(leaf, devices) > 0]):
        return _on_the_host(record, name)
    worst = max(whole, key=lambda leaf: (_is_param(leaf), _excess(leaf, devices)))
    why = _just_as_long(record, whole, devices) or _why_whole(whole, name, devices_of(record))
    place = _laying(record, worst, divided=not why)
    divided = statements.remainder(record, "layout")
    if len(divided) == 1 and MESH_DIVIDED.search(divided[0].text):
        place, why = divided, OTHER_WAY_ROUND
    if name == SOME:
        known = statements.remainder(record, "layout")
        known = place if known == definition(record, "layout") else known
        place = calls_of(record, MACHINE) or known
    elif _small_alone(record):
        place, why = statements.by_size(record, "layout") or place, SMALL
    return Failure(
        f"on a mesh of {devices} devices, each device holds 1/{devices} of `state{worst.path}`, "
        f"whose shape is {worst.shape}",
        f"{shards(worst)}; larger than one share: {len(whole)} of {plural(len(leaves), 'array')}",
        place,
        why,
    )


MESH_DIVIDED = re.compile(r"(mesh\.size|device_count\(\)|mesh\.shape\[[^]]*\]) % ")
OTHER_WAY_ROUND = (
    "`a % b` is what is left when a is divided by b. Here the size of the mesh is divided. Which "
    "of the two is to be divided?"
)
OF_A_KIND = "A sharding that names no kind of memory is in the device's. Which line names another?"


def _on_the_host(record: Record, name: str) -> Failure | None:
    """The failure of an array that `layout` puts into host memory."""
    if (found := waiting(record, name)) is None:
        return None
    place = statements.call(record, "layout", "with_memory_kind", "NamedSharding")
    return replace(renamed(found, name, "state"), culprits=place, hint=OF_A_KIND)


MACHINE = ("jax.devices", "jax.device_count", "jax.local_devices", "jax.local_device_count")
"""What tells of the machine, whatever the mesh is."""
SMALL = (
    "All arrays that are left whole are smaller than each one that is split. A small one can be "
    "divided, too. Which line asks for the size?"
)


def _small_alone(record: Record) -> bool:
    """Whether all arrays that are whole are smaller than those that are split, of any shape."""
    asked: dict[str, int] = wanted(record).facts[ON]
    whole, split = list[Leaf](), list[int]()
    for name, devices in asked.items():
        for leaf in seen(record).values[name]:
            if _excess(leaf, devices) > 0:
                whole.append(leaf)
            elif prod(leaf.shard_shape or leaf.shape) < prod(leaf.shape):
                split.append(prod(leaf.shape))
    shapes = {len(leaf.shape) for leaf in whole}
    return len(shapes) > 1 and max(prod(leaf.shape) for leaf in whole) < min(split, default=0)


def _laying(record: Record, leaf: Leaf, *, divided: bool) -> list[Culprit]:
    """Where `layout` leaves this array whole; `divided` says that its only `%` may be at fault."""
    found = statements.left_whole(record, "layout", leaf.path.rpartition("['")[2].rstrip("']"))
    if found == definition(record, "layout") and divided:
        found = statements.remainder(record, "layout")
    if found != definition(record, "layout"):
        return found
    return statements.call(record, "layout", "NamedSharding", "P", "PartitionSpec")


def _is_param(leaf: Leaf) -> bool:
    return leaf.path.startswith("['params']")


def _just_as_long(record: Record, whole: list[Leaf], devices: int) -> str:
    """The hint where all arrays have one dimension to divide, as long as the mesh.

    Those of a single name may be whole for their name, unless the file compares sizes.
    """
    fit = {size for leaf in whole for size in leaf.shape if size % devices == 0}
    names = {leaf.path.rpartition("[")[2] for leaf in whole}
    compares = re.search(r"[\w\])] [<>] [\w(]", record.source)
    return AS_LONG if fit == {devices} and devices > 1 and (len(names) > 1 or compares) else ""


AS_LONG = (
    "What can be divided there is just as long as the mesh: each device gets one row or column. "
    "Which comparison leaves that out?"
)


def _why_whole(whole: list[Leaf], name: str, devices: int) -> str:
    """The hint for what all of these arrays have in common, or ""."""
    if name == SOME:
        return (
            f"On the mesh of all {devices} devices, every array is split as it should be. What "
            "does `layout` take from the machine, or know by heart, that it could ask `mesh` for?"
        )
    if all(len(leaf.shape) == 1 for leaf in whole):
        return (
            "Only arrays of one dimension are wrong. That dimension can be divided like any other."
        )
    trees = sorted({leaf.path.partition("']")[0].removeprefix("['") for leaf in whole})
    if len(trees) == 1:
        others = " and ".join(sorted({"mean", "params", "square"} - {*trees}))
        return (
            f"All that is wrong lies in `{trees[0]}`; {others} are right. By what does `layout` "
            "tell them apart?"
        )
    if not any(map(_is_param, whole)):
        return "The params are right. The optimizer's two trees are as large: how are they split?"
    if name == EVEN:
        return (
            "Another state, of other sizes and on other devices, is split as it should be. Does "
            "`layout` look at each shape and at `mesh`, or does it know them?"
        )
    return ""


def _excess(leaf: Leaf, devices: int) -> int:
    """Elements of `leaf` that a device holds beyond its share."""
    parts = devices if any(size % devices == 0 for size in leaf.shape) else 1
    return prod(leaf.shard_shape or leaf.shape) - prod(leaf.shape) // parts


@EXERCISE.check(
    ground="observed",
    after=("one_program",),
    hints=(
        "The loss is a mean over the rows of all devices, and so is its gradient.",
        "In jax.shard_map, psum_scatter adds. Divide by mesh.size for a mean.",
    ),
)
def same_numbers(record: Record) -> Result:
    """After one step and after two, state and loss are the same as on one device."""
    mine, theirs, before = seen(record).values, wanted(record).values, "state"
    for when in AFTER:
        after = f"state after {when}"
        for name, off in ((f"loss of {when}", OF_LOSS), (after, OF_STATE)):
            if failure := differing_leaf(record, name, rtol=off[0], atol=off[1]):
                return _other_numbers(record, failure, name)
        if failure := _stepped_otherwise(record, theirs[before], mine[after], theirs[after]):
            return failure
        before = after
    for when in ODD:
        for part, name in enumerate((f"state after {when}", f"loss of {when}")):
            if failure := differing_leaf(record, name, rtol=OF_STATE[0], atol=OF_STATE[1]):
                place = statements.computed(record, "make_step", part, 2)
                return replace(failure, culprits=place, hint=OF_ODD[when])
    return None


OF_ODD = {
    LOST: OF_LOST,
    GONE: OF_LOST,
    FAR_AWAY: (
        "Where the loss is infinite, the gradient may be finite, and the step is taken as any "
        "other. Which line treats it as another one?"
    ),
    BLANK: (
        "Where the loss is 0, so is the gradient. Adam counts the step all the same, and its "
        "moments decay. Which line treats such a step as another one?"
    ),
    ALONE: (
        "On one device, the step is the same as on several. Which line makes another one for a "
        "mesh of one device?"
    ),
}
"""The hints for steps that are taken otherwise than all others."""
OF_LOSS, OF_STATE = (2e-5, 1e-6), (2e-3, 1e-4)
"""By how much a loss, or a state, may differ, of itself and of the largest number: where a gradient
is rounded to another number near 0, Adam makes of it a step that is as long as any."""


def _stepped_otherwise(
    record: Record, old: Sequence[Leaf], mine: Sequence[Leaf], theirs: Sequence[Leaf]
) -> Failure | None:
    """The failure where a step from `old` changed the params otherwise, or a moment.

    All three hold the same arrays; the params of `old` have the paths of a state.
    """
    triples = list(zip(old, mine, theirs, strict=False))
    params = [leaves for leaves in triples if _is_param(leaves[0])]
    if found := other_float32_step(*zip(*params, strict=True)):
        expected = found.expected.replace("`params", "`state")
        return replace(found, expected=expected, culprits=_made(record), hint=OF_ADAM)
    for order, tree in enumerate(("mean", "square"), 1):
        pairs = [(got, right) for one, got, right in triples if one.path.startswith(f"['{tree}']")]
        if found := other_moment("state", pairs, order):
            return replace(found, culprits=_made(record))
    return None


def _made(record: Record) -> list[Culprit]:
    """Where the step makes the new state."""
    return statements.computed(record, "make_step", 0, 2)


COUNTED = (
    "Each step calls `adam` once, and returns the state that `adam` made. How often does yours, "
    "and which state does it return?"
)


def _other_numbers(record: Record, failure: Failure, name: str) -> Failure:
    """The failure of a state or a loss, with what its count and its moments tell of it."""
    part = 1 if name.startswith("loss") else 0
    place = statements.computed(record, "make_step", part, 2)
    if not part and "['count']" in failure.expected:
        return replace(failure, culprits=place, hint=COUNTED)
    if part and is_the_others(record, f"loss of {AFTER[0]}", f"loss of {AFTER[1]}"):
        return Failure(failure.expected, f"{failure.observed}: {AFTER_THE_STEP}", place, BEFORE_IT)
    if not part and (ratio := _of_gradients(record)):
        observed = f"{failure.observed}; the gradient is {ratio:.4g} times the reference's"
        place = statements.division(record, "make_step") or place
        return Failure(failure.expected, observed, place, SCALED)
    by_hand = "shard_map" in record.source
    hint = failure.hint or ("" if by_hand else OF_LOSS_FN if part else OF_ADAM)
    return replace(failure, culprits=place, hint=hint)


def _of_gradients(record: Record) -> float | None:
    """By which factor the gradient of the first step is wrong, by the mean that `adam` keeps."""
    mine, theirs = seen(record).values, wanted(record).values
    after = f"state after {AFTER[0]}"
    before, got, want = (
        [leaf for leaf in leaves if leaf.path.startswith("['mean']")]
        for leaves in (theirs["state"], mine[after], theirs[after])
    )
    return change_ratio(before, got, want, keep=0.9)


SCALED = (
    "The loss is a mean over the rows of all devices, and its gradient is right as it is. By what "
    "is it multiplied, or divided?"
)
OF_LOSS_FN = "The loss is `loss_fn` of the old params and of the whole batch."
OF_ADAM = (
    "The new state is what `adam` makes of the whole old state and of the gradient of `loss_fn`. "
    "What else does the step do to one of them?"
)


@EXERCISE.check(
    ground="observed",
    after=("state_is_shared",),
    hints=(
        "The next step takes the state that this one returns. Constrain it to the shardings of "
        "`layout`.",
    ),
)
def state_stays_shared(record: Record) -> Result:
    """The new state is sharded like the old one."""
    values = seen(record).values
    before, after = values["state"], values[f"state after {AFTER[-1]}"]
    for old, new in zip(before, after, strict=False):
        if old.shard_shape != new.shard_shape:
            failure = _failure(record, f"the new `state{old.path}` is {shards(old)}", shards(new))
            names = ("with_sharding_constraint", "shard_map", "jit")
            return replace(failure, culprits=statements.call(record, "make_step", *names))
        if in_memory(new):
            expected = f"the new `state{new.path}` is in device memory"
            return _failure(record, expected, f"it is in {new.memory_kind} memory")
        if exchanged := other_parts(new, old):
            expected = f"each device holds the part of `state{old.path}` that it held before"
            return _failure(record, expected, exchanged)
    return None


@EXERCISE.check(
    ground="program",
    after=("same_numbers", "state_stays_shared"),
    hints=("The caller never uses the old state again: donate it, as in ex14.",),
)
def room_for_one_share(record: Record) -> Result:
    """A device has to hold one share of the state, not an old and a new one."""
    programs = _programs(record).items()
    found = (_more_than_a_share(record, name, program) for name, program in programs)
    return next((one for one in found if one), None) or _kept_alone(record)


def _kept_alone(record: Record) -> Result:
    """The failure where a step for one device keeps the old state beside the new one."""
    if seen(record).facts.get(DONATED, True):
        return None
    expected = "on a mesh of one device, too, a step donates the state that it gets"
    observed = "it does not: the device has to hold the old state and the new one"
    return Failure(expected, observed, statements.call(record, "make_step", "jit"))


def _more_than_a_share(record: Record, name: str, program: Program) -> Result:
    """The failure where a program needs room for more than a device's share."""
    measured = compiled_program(record, name, made_by="make_step")
    if isinstance(measured, Failure) and "different devices" in measured.observed:
        return replace(measured, hint=OF_ANOTHER_MESH)
    if not isinstance(measured, Measured):
        return measured
    if (memory := measured.memory) is None:
        return Unable("this backend does not say how much memory a program needs")
    sizes = program.sizes
    batch = 4 * program.rows * (sizes.features + sizes.outputs)
    limit = 3 * _share_bytes(sizes, program.devices) + batch + WHOLE
    room = memory.arguments + memory.outputs - memory.aliased
    if room <= limit:
        return None
    kept = memory.outputs - memory.aliased
    failure = _failure(
        record,
        f"at most {limit:,} bytes for arguments and results: one share of state and batch",
        f"{room:,} bytes, {kept:,} of them for results that replace no argument",
    )
    return replace(failure, culprits=statements.call(record, "make_step", "jit"))


OF_ANOTHER_MESH = (
    "Steps are made for several meshes. Does this one know another mesh than the one that it is "
    "made for, be it one of an earlier call?"
)


def _programs(record: Record) -> dict[str, Program]:
    """The exported programs, as the reference drew them."""
    return msgspec.convert(wanted(record).facts[PROGRAMS], dict[str, Program])


def _params_bytes(sizes: Sizes) -> int:
    """Bytes of the float32 params."""
    return 4 * sum(prod(shape) for shape in param_shapes(sizes).values())


def _share_bytes(sizes: Sizes, devices: int) -> int:
    """Bytes of the params that a device holds: of an array that cannot be cut, all of it."""
    shapes = param_shapes(sizes).values()
    return sum(4 * prod(s) // (devices if any(n % devices == 0 for n in s) else 1) for s in shapes)


def _undivided_bytes(sizes: Sizes, devices: int) -> int:
    """Bytes of the params of which no dimension can be divided."""
    shapes = param_shapes(sizes).values()
    return sum(4 * prod(s) for s in shapes if all(n % devices for n in s))


def _travels(
    record: Record, found: list[Collective], params: int, devices: int, spare: int = SCALARS
) -> Result:
    """The failure where a device sends too much; `params` are the bytes of the params.

    `spare` bytes are allowed for what stays whole.
    """
    if isinstance(unknown := exchanged(found), Unable):
        return unknown
    once = params * (devices - 1) // devices
    everywhere = min(1, exchanged_by(found, "all-reduce") / params)
    mine, limit = sent(found, devices), round((TRAVELS + everywhere) * once) + spare
    gathered = exchanged_by(found, "all-gather") / params
    if exchanged_by(found, "all-gather") > params:
        return _failure(
            record,
            f"all-gathers return {params:,} bytes: the params, once",
            f"{exchanges(found)}; the all-gathers return {gathered:.4g} times the bytes of the "
            "params",
        )
    if mine <= limit:
        return None
    return _failure(
        record,
        f"{SENDS} {limit:,} bytes: {once:,} for the params, and the others for the gradients",
        f"{mine:,} bytes: {exchanges(found)}; the all-gathers return {gathered:.4g} times the "
        "bytes of the params",
    )


@EXERCISE.check(
    ground="program",
    after=("room_for_one_share",),
    hints=("In jax.shard_map, in_specs say which rows of the batch a device gets. P() means all.",),
)
def rows_are_shared(record: Record) -> Result:
    """Each device computes with its own share of the rows."""
    measured = compiled_program(record, STEP, made_by="make_step")
    if not isinstance(measured, Measured):
        return measured
    return beyond_own_rows(record, STEP, "make_step", hint="")


@EXERCISE.check(
    ground="program",
    after=("rows_are_shared",),
    hints=(
        "Params must be gathered to multiply by them. What else is gathered, and why?",
        "Adam treats each number by itself, so it works on shares as well as on whole arrays.",
    ),
)
def moments_stay(record: Record) -> Result:
    """Params are gathered once, gradients added once, and the optimizer's moments stay."""
    found = (_moved(record, name, program) for name, program in _programs(record).items())
    failure = next((one for one in found if one), None) or _moved_in_the_steps(record)
    if isinstance(failure, Failure) and failure.expected.startswith(SENDS):
        return _apart(record, failure) or failure
    return failure


SENDS = "each device sends at most"
ALONG = (
    "Adam needs the same part of a param, of its gradient and of both moments. Along which "
    "dimension does `layout` split each of them?"
)


def _apart(record: Record, failure: Failure) -> Failure | None:
    """The failure where a moment is split along another dimension than its param; else None."""
    leaves = {leaf.path: leaf for leaf in seen(record).values["state"]}
    for path, leaf in leaves.items():
        param = leaves.get("['params']" + path.removeprefix("['mean']").removeprefix("['square']"))
        if param and param.shard_shape != leaf.shard_shape:
            why = (
                f"`state{path}` lies as {shards(leaf)}, and `state{param.path}` as {shards(param)}"
            )
            place = statements.laid(record, "layout", leaf)
            place = place or statements.call(record, "layout", "NamedSharding", "P")
            return Failure(failure.expected, f"{why}; it sends {failure.observed}", place, ALONG)
    return None


def _moved_in_the_steps(record: Record) -> Result:
    """The failure where one of the steps that were taken sent more."""
    program = msgspec.convert(wanted(record).facts[STEPPED], Program)
    params = _params_bytes(program.sizes)
    for step in msgspec.convert(seen(record).facts[EXCHANGED], list[list[Collective]]):
        found = _travels(record, step, params, program.devices)
        if isinstance(found, Failure) and (asking := _asking(record, step)):
            found = replace(found, culprits=asking)
        if found:
            return found
    return None


def _moved(record: Record, name: str, program: Program) -> Result:
    """The failure where a program gives other numbers, or sends more than params and gradients."""
    measured = compiled_program(record, name, made_by="make_step")
    if not isinstance(measured, Measured):
        return measured
    for number, (part, off) in enumerate((("", OF_STATE), ("[1]", OF_LOSS))):
        if wrong := differing_output(record, name, rtol=off[0], atol=off[1], part=part):
            return replace(wrong, culprits=statements.computed(record, "make_step", number, 2))
    if rounded := _rounded(record, name, measured):
        return rounded
    if other := _changed(record, name, measured):
        return other
    params = _params_bytes(program.sizes)
    found = _travels(record, measured.collectives, params, program.devices)
    gathered = _of_the_batch(program, measured.collectives)
    again = statements.reading(record, "make_step", "checkpoint")
    if isinstance(found, Failure) and again and _twice(measured.collectives, program):
        return replace(found, culprits=again, hint=GATHERED_AGAIN)
    if isinstance(found, Failure) and (asking := _asking(record, measured.collectives)):
        found = replace(found, culprits=asking)
    if not isinstance(found, Failure) or not gathered:
        return found
    sizes = " and ".join(f"{size:,}" for size in gathered)
    observed = f"the batch is gathered, in arrays of {sizes} bytes. {found.observed}"
    return replace(found, observed=observed, hint=GATHERED_BATCH)


def _changed(record: Record, name: str, measured: Measured) -> Failure | None:
    """The failure where a program made another state, by less than what is compared shows."""
    old = [_of_state(leaf) for leaf in given(record, name)]
    theirs = [_of_state(leaf) for leaf in record.reference_measured[name].outputs]
    return _stepped_otherwise(record, old, measured.outputs, theirs)


def _of_state(leaf: Leaf) -> Leaf:
    """An argument or a result of the step, with the path that it has in the state."""
    return msgspec.structs.replace(leaf, path=leaf.path.removeprefix("[0]"))


EXACT = 2**-14
"""By how much of its own length the gradient may differ from the reference's. Right answers were
seen to differ by 2**-20, gradients that are rounded to float16 by 2**-12."""


def _rounded(record: Record, name: str, measured: Measured) -> Failure | None:
    """The failure where the gradient, of which `adam` adds a tenth to the mean, was rounded."""
    theirs = record.reference_measured[name]
    old, mine, right = (
        [leaf for leaf in leaves if leaf.path.startswith("[0]['mean']")]
        for leaves in (given(record, name), measured.outputs, theirs.outputs)
    )
    apart = change_error(old, mine, right, keep=0.9)
    if apart is None or apart <= EXACT:
        return None
    place = statements.call(record, "make_step", "astype", "value_and_grad", "grad")
    observed = f"it differs from that by 1 part in {1 / apart:.0f} of its length"
    return Failure("the gradient is the reference's, in float32", observed, place, FLOAT32)


FLOAT32 = (
    "So small a difference is like rounding. Of which type is a gradient while it is exchanged?"
)


def _asking(record: Record, found: list[Collective]) -> list[Culprit]:
    """The calls in `make_step` that send or move an array which is not the new state."""
    own = statements.moving(record, "make_step")
    ops = {c.op for c in found} & {"collective-permute", "all-to-all"} or {"all-gather"}
    sending = (statements.every_sending(record, "make_step", op) for op in sorted(ops))
    if asked := own or next(filter(None, sending), []):
        return asked
    return _making_whole(record) if "all-gather" in ops else []


def _making_whole(record: Record) -> list[Culprit]:
    """The only spec in `make_step` that splits nothing, or what it is given to; else nothing."""
    whole = statements.left_whole(record, "make_step", "")
    if whole == definition(record, "make_step"):
        return []
    file = File(record.source)  # what `layout` leaves whole is its own matter
    return [place for place in whole if file.top_level_at(place.line) != "layout"]


def _twice(found: list[Collective], program: Program) -> bool:
    """Whether all-gathers return each of the params that can be divided twice, and nothing else."""
    sizes = sorted(c.nbytes for c in found if c.op == "all-gather" for _ in range(c.count * c.runs))
    shapes = param_shapes(program.sizes).values()
    split = [4 * prod(s) for s in shapes if any(n % program.devices == 0 for n in s)]
    return sizes == sorted(split * 2)


GATHERED_AGAIN = (
    "Each of the params is gathered twice. What jax.checkpoint wraps is computed once more in the "
    "backward pass, and so is a gather inside it."
)
GATHERED_BATCH = (
    'The rows of the batch are split over "data", and stay so. Which line asks for all of them on '
    "each device?"
)


def _of_the_batch(program: Program, found: list[Collective]) -> list[int]:
    """The bytes of whole arrays of the batch that all-gathers return, and no param's."""
    sizes = program.sizes
    rows = 4 * program.rows * program.devices
    params = {4 * prod(shape) for shape in param_shapes(sizes).values()}
    batch = [rows * width for width in (sizes.features, sizes.outputs)]
    returned = {c.nbytes for c in found if c.op == "all-gather"}
    return [size for size in batch if size in returned - params]


@EXERCISE.check(
    ground="program",
    after=("moments_stay",),
    hints=(
        "Of whole arrays, a step needs the params and one set of gradients. What else does yours "
        "keep, and until when?",
    ),
)
def nothing_else_is_held(record: Record) -> Result:
    """While it works, a device holds no more beside its share than the reference does."""
    found = (_held_beside(record, name, program) for name, program in _programs(record).items())
    return next((one for one in found if one), None)


def _held_beside(record: Record, name: str, program: Program) -> Result:
    """The failure where a program needs more room than the reference's while it runs."""
    measured = compiled_program(record, name, made_by="make_step")
    theirs = record.reference_measured.get(name)
    if not isinstance(measured, Measured):
        return measured
    if measured.memory is None or theirs is None or theirs.memory is None:
        return Unable("this backend does not say how much memory a program needs")
    share = 3 * _params_bytes(program.sizes) // program.devices
    limit = theirs.memory.temporaries + round(HELD * share)
    if measured.memory.temporaries <= limit:
        return None
    failure = _failure(
        record,
        f"at most {limit:,} bytes beside arguments and results: the gathered params, their "
        "gradients and some activations",
        f"{measured.memory.temporaries:,} bytes; one share of the state is {share:,}",
    )
    return replace(failure, culprits=_making_whole(record) or failure.culprits)


@EXERCISE.check(
    ground="target",
    after=("nothing_else_is_held",),
    hints=(
        "About as many bytes as the params have? Then something asks for the whole gradient on "
        "every device.",
        'Other all-reduces add activations. Are the rows split over "data" throughout the step?',
    ),
    anchor="on-eight-h200",
)
def on_the_target(record: Record) -> Result:
    """On the target, each device receives its own share of the gradient, and no more."""
    measured = target_program(record, "step", made_by="make_step")
    if not isinstance(measured, Measured):
        return measured
    found, devices = measured.collectives, target_of(record).devices
    whole, params = exchanged_by(found, "all-reduce"), _params_bytes(LARGE)
    most = SCALARS + _undivided_bytes(LARGE, devices)
    if whole > most:
        return _failure(
            record,
            f"all-reduces of at most {most:,} bytes",
            f"{whole:,} bytes, {whole / params:.2f} times those of the params; each of the "
            f"{devices} devices receives all of them",
        )
    return _travels(record, found, params, devices, most)
