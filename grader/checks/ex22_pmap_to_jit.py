"""ex22_pmap_to_jit: one jitted step over a mesh, which exchanges the gradients and no more.

Judged on the devices at hand, and as compiled for a target; nothing depends on how many
devices there are.
"""

from types import ModuleType
from typing import Any

from grader.checking import Exercise, Failure, Observe, ProgramTiming, Result, Unable, unpack
from grader.evidence import (
    compiled_program,
    definition,
    devices_of,
    differing_leaf,
    not_jitted,
    seen,
    step_ratio,
    target_of,
    target_program,
    timing_result,
    wanted,
)
from grader.record import Leaf, Measured, Record
from grader.words import exchanges, where

SIZES = ((24, 64), (40, 192))
TIMED = (256, 2048)
"""Width and rows of the timed program: enough work to drown what a call costs."""
SCALARS = 64
"""Bytes that may be exchanged beside the gradients: the loss, a count."""


def _params(rng: Any, width: int) -> dict[str, Any]:
    """NumPy float32 parameters: (32, width), (width,), (width, 8)."""
    import numpy as np

    shapes = {"w1": (32, width), "b1": (width,), "w2": (width, 8)}
    return {k: (rng.standard_normal(s) / 8).astype(np.float32) for k, s in shapes.items()}


def _batch(rng: Any, rows: int) -> tuple[Any, Any]:
    """NumPy float32 inputs (rows, 32) and targets (rows, 8)."""
    import numpy as np

    inputs = rng.standard_normal((rows, 32)).astype(np.float32)
    return inputs, np.tanh(inputs[:, :8])


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Two steps for each of two sizes, and the program of a larger one."""
    import jax

    # Highest: so that a GPU does not round what is to be compared.
    with jax.default_matmul_precision("highest"):
        _drive(submission, observe, rng)


def _drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """All devices take the first size and the program, every other one the second size."""
    import jax
    import numpy as np

    def placed(mesh: Any, width: int, rows: int) -> Any:
        promise = "`place` returns (params, batch)"
        both = submission.place(mesh, _params(rng, width), _batch(rng, rows))
        return unpack(both, 2, promise)

    for (width, rows), devices in zip(SIZES, (jax.devices()[::-2], jax.devices()), strict=True):
        mesh = jax.sharding.Mesh(np.array(devices), ("data",))
        step = submission.make_step(mesh)
        observe.jitted("step", step)
        observe.fact(f"devices, width {width}", mesh.size)
        params, batch = placed(mesh, width, rows)
        observe.value(f"params {width}", params)
        observe.value(f"batch {width}", batch, data=False)
        for count in ("one step", "two steps"):
            params, loss = unpack(step(params, batch), 2, "`step` returns (params, loss)")
            observe.value(f"params after {count}, width {width}", params)
            observe.value(f"loss of {count}, width {width}", loss)
    for _ in range(2):
        observe.program("step", step, *placed(mesh, *TIMED))
    observe.target("step", step, *placed(mesh, *TIMED))


EXERCISE = Exercise(
    title="The same step, without pmap",
    lesson="lessons/13-pmap-and-after",
    anchor="pmap-as-jit",
    edits=("place", "make_step"),
    drive=drive,
    devices=8,
    program_timing=ProgramTiming("step", at_most=2.0),
    hints=(
        "pmap split the batch, copied the params and ran a program. What of it is a sharding?",
        "Under jax.jit no axis has a name: the step sees the whole batch, and a mean over its rows "
        "is the mean over all devices already. What is left for pmean to do?",
        "NamedSharding(mesh, P('data')) splits dimension 0, NamedSharding(mesh, P()) nothing.",
        "Write the step for the whole batch, without pmean, and jit it: the compiler sees how "
        "its arguments are split, and adds the all-reduce that a mean over all rows needs.",
    ),
)


def _devices(record: Record, width: int) -> int:
    """How many devices the step of this width was made for."""
    count: int = wanted(record).facts[f"devices, width {width}"]
    return count


def _lies(leaf: Leaf, devices: int) -> str:
    """How an array lies on the devices, in words; `shards of ...` only if all hold one."""
    if leaf.kind != "jax" or len(leaf.devices) != devices:
        return f"on {where(leaf)} alone" if leaf.kind == "jax" else where(leaf)
    if leaf.replicated and devices > 1:
        return f"a full copy on each of {devices} devices"
    return f"shards of {leaf.shard_shape} on {devices} devices"


@EXERCISE.check(
    ground="observed",
    hints=(
        "The batch keeps its shape; its sharding says how it is split.",
        "jax.device_put(batch, NamedSharding(mesh, P('data'))): 'data' stands for dimension 0.",
    ),
    anchor="pmap-as-jit",
)
def batch_is_split(record: Record) -> Result:
    """`place` gives every device its own rows of the batch."""
    for width, rows in SIZES:
        devices, leaves = _devices(record, width), seen(record).values[f"batch {width}"]
        if len(leaves) != 2:
            return _misplaced(record, "the batch is (inputs, targets)", f"{len(leaves)} arrays")
        for leaf, features in zip(leaves, (32, 8), strict=True):
            name = f"`batch{leaf.path}`"
            if leaf.shape != (rows, features):
                return _misplaced(
                    record, f"{name} keeps its shape {(rows, features)}", str(leaf.shape)
                )
            want = leaf.shape if devices == 1 else (rows // devices, features)
            if _lies(leaf, devices) != f"shards of {want} on {devices} devices":
                expected = f"{name} of {rows} rows is {rows // devices} rows on each device"
                return _misplaced(record, expected, _lies(leaf, devices))
    return None


def _misplaced(record: Record, expected: str, observed: str) -> Failure:
    return Failure(expected, observed, definition(record, "place"))


@EXERCISE.check(
    ground="observed",
    after=("batch_is_split",),
    hints=("Every device needs all params: a sharding whose spec names no axis, P().",),
)
def params_are_copied(record: Record) -> Result:
    """`place` gives every device a copy of all params."""
    found = _not_copied(record, ["params {}"])
    return found and _misplaced(record, *found)


def _not_copied(record: Record, names: list[str]) -> tuple[str, str] | None:
    """The first array under one of these names that is not whole on all devices of its mesh."""
    for width, _ in SIZES:
        devices, values = _devices(record, width), seen(record).values
        for leaf in (leaf for name in names for leaf in values[name.format(width)]):
            if leaf.kind != "jax" or len(leaf.devices) != devices or not leaf.replicated:
                expected = f"`params{leaf.path}` is a full copy on each of {devices} devices"
                return expected, _lies(leaf, devices)
    return None


@EXERCISE.check(
    ground="observed",
    hints=("Return what jax.jit returns. jax.shard_map inside it is welcome.",),
)
def one_program(record: Record) -> Result:
    """`make_step` returns a function that jax.jit made."""
    return not_jitted(record, "step", "make_step")


@EXERCISE.check(
    ground="observed",
    after=("one_program",),
    hints=(
        "A sum over n devices is n times their mean. Who adds the gradients, and how often?",
        "In jax.shard_map, jax.grad for params that are equal on all devices already holds the "
        'sum over them: lesson 14, "The sum you did not write".',
    ),
    anchor="what-pmap-does",
)
def same_numbers(record: Record) -> Result:
    """Params and loss are those of the step in pmap, after one step and after two."""
    for width, _ in SIZES:
        for count in ("one step", "two steps"):
            for what in ("params after", "loss of"):
                name = f"{what} {count}, width {width}"
                if failure := differing_leaf(record, name, rtol=1e-5, atol=2e-6):
                    return _with_length(record, failure, width)
    return None


def _with_length(record: Record, failure: Failure, width: int) -> Failure:
    """Tell by how much the step is too long or too short, where that is all that is wrong."""
    ratio = step_ratio(record, f"params {width}", f"params after one step, width {width}")
    length = f"; the first step is {ratio:.4g} times as long as the reference's" if ratio else ""
    place = definition(record, "make_step")
    return Failure(failure.expected, failure.observed + length, place)


@EXERCISE.check(
    ground="observed",
    after=("one_program", "params_are_copied"),
    hints=("The next step takes what this one returns. out_shardings of jax.jit decide it.",),
)
def params_stay_copied(record: Record) -> Result:
    """The new params are a copy on every device again."""
    found = _not_copied(
        record, [f"params after {n}, width {{}}" for n in ("one step", "two steps")]
    )
    return found and Failure(f"the new {found[0]}", found[1], definition(record, "make_step"))


@EXERCISE.check(
    ground="program",
    after=("params_are_copied", "same_numbers", "params_stay_copied"),
    hints=(
        "An all-gather makes something whole on every device. What in the step asks for that?",
        "Only the gradients, and the loss, depend on rows of other devices: one mean of each.",
    ),
    anchor="count-the-collectives",
)
def only_the_gradients_travel(record: Record) -> Result:
    """Of the program's collectives there are only all-reduces, of the gradients' bytes."""
    measured = compiled_program(record, "step")
    if not isinstance(measured, Measured):
        return measured
    if devices_of(record) == 1:
        return Unable("on one device nothing travels")
    gradients = _gradient_bytes()
    total = sum(c.nbytes * c.count * (c.runs or 2) for c in measured.collectives)
    ops = {c.op for c in measured.collectives}
    if ops == {"all-reduce"} and gradients <= total <= gradients + SCALARS:
        return None
    return Failure(
        f"all-reduces of {gradients:,} bytes, the gradients', and of the loss",
        exchanges(measured.collectives),
        definition(record, "make_step"),
    )


def _gradient_bytes() -> int:
    """Bytes of the float32 parameters of the exported program."""
    width = TIMED[0]
    return 4 * (32 * width + width + width * 8)


@EXERCISE.check(
    ground="target",
    after=("only_the_gradients_travel",),
    hints=(
        "Each all-reduce starts anew: the devices meet, then the bytes travel. XLA for GPUs joins "
        "all that are ready together. What makes one wait for another?",
        "Average all gradients in one call, jax.lax.pmean(grads, 'data'), or leave it to the "
        "compiler; nothing between them.",
    ),
    anchor="count-the-collectives",
)
def all_in_one_exchange(record: Record) -> Result:
    """Compiled for the target, all gradients travel in one all-reduce."""
    measured = target_program(record, "step")
    if not isinstance(measured, Measured):
        return measured
    found = [c for c in measured.collectives if c.op != "all-reduce" or c.nbytes > SCALARS]
    whole = [c.nbytes for c in found if (c.op, c.count, c.runs) == ("all-reduce", 1, 1)]
    if len(found) == len(whole) == 1 and 0 <= whole[0] - _gradient_bytes() <= SCALARS:
        return None
    return Failure(
        f"on {target_of(record).title}, one all-reduce for the {_gradient_bytes():,} bytes of all "
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
    return timing_result(record, "step", "a step")
