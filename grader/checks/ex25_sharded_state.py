"""ex25_sharded_state: each device holds its share of params and optimizer state, and no more."""

from math import prod
from types import ModuleType
from typing import Any

from grader.checking import Exercise, Failure, Observe, Result, Unable, unpack
from grader.evidence import (
    compiled_program,
    definition,
    devices_of,
    differing_leaf,
    differing_output,
    exchanged,
    not_jitted,
    seen,
    sent,
    target_of,
    target_program,
    wanted,
)
from grader.record import Collective, Leaf, Measured, Record
from grader.words import exchanges, plural, shards

FEATURES, OUTPUTS, ROWS = 20, 5, 4
"""Dimensions that 8 does not divide, and rows on each device."""
LARGE, LARGE_ROWS = (1500, 8192, 100), 8192
"""Features, width and outputs, and rows, of the program for the target."""
HALF = "state on half of the devices"
WORK = 2.5
"""Times the reference's operations: Adam on whole arrays comes to 1.6, all rows to 7."""
TRAVELS = 3.3
"""Times the params' bytes that may travel: params 1, a sum of gradients 2; with moments, 5."""
SCALARS = 1024
"""Bytes that may be whole anywhere: the loss, `count`, what no dimension divides."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Two steps, the program of another size, and a large one for the target."""
    import jax
    import numpy as np

    from grader.probes import training_state

    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    step = submission.make_step(mesh)
    if not observe.jitted("step", step):
        return

    def arguments(width: int, mesh: Any) -> Any:
        sizes = (FEATURES, width, OUTPUTS)
        shapes = training_state.shapes(submission, mesh, sizes, ROWS * mesh.size)
        return training_state.drawn(rng, shapes)

    half = jax.sharding.Mesh(mesh.devices[: mesh.size // 2 or 1], ("data",))
    observe.value(HALF, arguments(3 * half.size, half)[0], data=False)
    state, batch = arguments(width := int(rng.integers(3, 6)) * 16, mesh)
    observe.value("state", state, data=False)
    for when in ("one step", "two steps"):
        state, loss = unpack(step(state, batch), 2, "`step` returns (state, loss)")
        observe.value(f"state after {when}", state)
        observe.value(f"loss of {when}", loss)
    observe.fact("width", width + 32)
    observe.program("step", step, *arguments(width + 32, mesh))
    observe.target("step", step, *training_state.shapes(submission, mesh, LARGE, LARGE_ROWS))


EXERCISE = Exercise(
    title="A state that no device holds whole",
    lesson="lessons/14-collectives-you-can-count",
    anchor="share-the-state",
    edits=("layout", "make_step"),
    drive=drive,
    devices=8,
    hints=(
        "Params, mean and square are three trees of equal shapes. One rule can place all three.",
        "P('data') splits dimension 0, P(None, 'data') dimension 1. Which can be divided by 8?",
        "For each leaf, put 'data' where leaf.shape[d] % mesh.size == 0, or P() if nowhere.",
    ),
)


def _failure(record: Record, expected: str, observed: str, edit: str = "make_step") -> Failure:
    return Failure(expected, observed, definition(record, edit))


@EXERCISE.check(
    ground="observed",
    hints=("Return what jax.jit returns, with Adam inside. jax.shard_map is welcome.",),
)
def one_program(record: Record) -> Result:
    """`make_step` returns a function that jax.jit made."""
    return not_jitted(record, "step", "make_step")


@EXERCISE.check(
    ground="observed",
    after=("one_program",),
    hints=(
        "Which dimensions can be divided, only 0? And are the optimizer's two trees split, too?",
        "Where dimension 0 cannot be divided, another may: P(None, 'data') splits dimension 1.",
        "What can be divided depends on `mesh`, which may have only some of the devices.",
    ),
)
def state_is_shared(record: Record) -> Result:
    """Of every array that can be divided, a device holds one share, params and moments alike."""
    devices = devices_of(record)
    return _beyond_share(record, "state", devices) or _beyond_share(record, HALF, devices // 2 or 1)


def _beyond_share(record: Record, name: str, devices: int) -> Failure | None:
    leaves = seen(record).values[name]
    if not (whole := [leaf for leaf in leaves if _excess(leaf, devices) > 0]):
        return None
    worst = max(whole, key=lambda leaf: _excess(leaf, devices))
    expected = f"on a mesh of {devices} devices, each holds 1/{devices} of `state{worst.path}`, "
    others = f"; {plural(len(whole), 'array')} of {len(leaves)} could be smaller there"
    return _failure(record, f"{expected}which is {worst.shape}", shards(worst) + others, "layout")


def _excess(leaf: Leaf, devices: int) -> int:
    """Elements of it that a device holds beyond its share."""
    parts = devices if any(size % devices == 0 for size in leaf.shape) else 1
    return prod(leaf.shard_shape or leaf.shape) - prod(leaf.shape) // parts


@EXERCISE.check(
    ground="observed",
    after=("one_program",),
    hints=(
        "The loss is a mean over the rows of all devices, and so is its gradient.",
        "In jax.shard_map, psum_scatter adds: divide by mesh.size for a mean.",
    ),
)
def same_numbers(record: Record) -> Result:
    """State and loss are those of one device, after one step and after two."""
    for when in ("one step", "two steps"):
        for name in (f"loss of {when}", f"state after {when}"):
            failure = differing_leaf(record, name, rtol=2e-3, atol=1e-4)
            if failure:
                return _failure(record, failure.expected, failure.observed)
    return None


@EXERCISE.check(
    ground="observed",
    after=("state_is_shared",),
    hints=("The next step takes what this one returns. Constrain the new state by `layout`.",),
)
def state_stays_shared(record: Record) -> Result:
    """The new state lies as the old one did."""
    before, after = seen(record).values["state"], seen(record).values["state after two steps"]
    for old, new in zip(before, after, strict=False):
        if old.shard_shape != new.shard_shape:
            return _failure(record, f"the new `state{old.path}` is {shards(old)}", shards(new))
    return None


@EXERCISE.check(
    ground="program",
    after=("same_numbers", "state_stays_shared"),
    hints=("The caller never uses the old state again: donate it, as in ex14.",),
)
def room_for_one_share(record: Record) -> Result:
    """A device needs room for its share of the state once, not for an old and a new one."""
    measured = compiled_program(record, "step")
    if not isinstance(measured, Measured):
        return measured
    if (memory := measured.memory) is None:
        return Unable("this backend does not say how much memory a program needs")
    params = _params(FEATURES, wanted(record).facts["width"], OUTPUTS)
    limit = 3 * params // devices_of(record) + 4 * ROWS * (FEATURES + OUTPUTS) + SCALARS
    room = memory.arguments + memory.outputs - memory.aliased
    if room <= limit:
        return None
    kept = memory.outputs - memory.aliased
    expected = f"at most {limit:,} bytes for arguments and results: a share of state and rows"
    return _failure(record, expected, f"{room:,} bytes: {kept:,} for results that replace nothing")


def _params(features: int, width: int, outputs: int) -> int:
    """Bytes of the float32 params."""
    return 4 * (features * width + width + width * width + width * outputs + outputs)


def _bytes(found: list[Collective], op: str) -> int:
    return sum(c.nbytes * c.count * c.runs for c in found if c.op == op)


def _travels(record: Record, found: list[Collective], params: int, devices: int) -> Result:
    if isinstance(unknown := exchanged(found), Unable):
        return unknown
    once = params * (devices - 1) // devices
    mine, limit = sent(found, devices), round(TRAVELS * once) + SCALARS
    if mine <= limit:
        return None
    more = f", {_bytes(found, 'all-gather') / params:.1f} times the params gathered"
    expected = f"a device sends at most {limit:,} bytes: params ({once:,}), gradients (twice that)"
    return _failure(record, expected, f"{mine:,} bytes{more}: {exchanges(found)}")


@EXERCISE.check(
    ground="program",
    after=("room_for_one_share",),
    hints=("In jax.shard_map, in_specs say what part of the batch a device gets. P() is all.",),
)
def rows_are_shared(record: Record) -> Result:
    """A device computes with its share of the rows."""
    measured, theirs = compiled_program(record, "step"), record.reference_measured.get("step")
    if not isinstance(measured, Measured):
        return measured
    if theirs is None or not (theirs.flops and measured.flops):
        return Unable("this backend does not say how many operations a program holds")
    if measured.flops <= (limit := WORK * theirs.flops):
        return None
    rows = f"{measured.flops / theirs.flops:.1f} times those for a share of the rows"
    expected = f"at most {limit:,.0f} operations on each of {devices_of(record)} devices"
    return _failure(record, expected, f"{measured.flops:,.0f}, {rows}")


@EXERCISE.check(
    ground="program",
    after=("rows_are_shared",),
    hints=(
        "Params must be gathered to multiply by them. What else is gathered, and what for?",
        "Adam works on each number by itself: on shares as well as on whole arrays.",
    ),
)
def moments_stay(record: Record) -> Result:
    """Params are gathered and gradients are added; the optimizer's moments travel nowhere."""
    measured = compiled_program(record, "step")
    if not isinstance(measured, Measured):
        return measured
    params = _params(FEATURES, wanted(record).facts["width"], OUTPUTS)
    wrong = differing_output(record, "step", rtol=2e-3, atol=1e-4)
    return wrong or _travels(record, measured.collectives, params, devices_of(record))


@EXERCISE.check(
    ground="target",
    after=("moments_stay",),
    hints=(
        "About once the params' bytes: does anything ask for the gradient whole, everywhere?",
        'Other sums are of the activations: are the rows split over "data" in all of the step?',
    ),
    anchor="on-eight-h200",
)
def on_the_target(record: Record) -> Result:
    """Compiled for the target, a device receives its share of the gradient, and no more."""
    measured = target_program(record, "step")
    if not isinstance(measured, Measured):
        return measured
    found, devices = measured.collectives, target_of(record).devices
    whole, params = _bytes(found, "all-reduce"), _params(*LARGE)
    if whole > SCALARS:
        expected = f"all-reduces of at most {SCALARS:,} bytes"
        times = f"{whole / params:.2f} times the params', received by all {devices} devices whole"
        return _failure(record, expected, f"{whole:,} bytes, {times}")
    return _travels(record, found, params, devices)
