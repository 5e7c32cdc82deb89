"""ex23_one_allreduce: of all micro-batches together, the devices exchange one gradient."""

from math import prod
from types import ModuleType
from typing import Any

from grader.arrays import load
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
    step_ratio,
    target_program,
    target_reference,
    wanted,
)
from grader.record import Collective, Measured, Record
from grader.words import exchanges, where

FEATURES, TARGETS = 24, 8
SEEN = 1e-5
"""By how much params of about 0.1 may differ between devices: nothing should."""
LARGE = {"w1": (2048, 8192), "b1": (8192,), "w2": (8192, 1024)}
"""Params of the program for the target; a device takes micro-batches of `LARGE_ROWS`."""
LARGE_ROWS = 8192
ROOM = 2.5
"""Intermediate results on the target, against the reference's. Right answers were seen to need up
to 1.6 times that; all micro-batches at once, 4 at the least, n times."""


def _shapes(width: int) -> dict[str, tuple[int, ...]]:
    return {"w1": (FEATURES, width), "b1": (width,), "w2": (width, TARGETS)}


def _mesh() -> Any:
    import jax
    import numpy as np

    return jax.sharding.Mesh(np.array(jax.devices()), ("data",))


def _arguments(rng: Any, mesh: Any, width: int, count: int, rows: int) -> tuple[Any, Any, Any]:
    """Params on every device; `count` micro-batches of `rows` rows a device, split."""
    import jax
    import numpy as np

    def draw(shape: tuple[int, ...], scale: float = 1.0) -> Any:
        return (scale * rng.standard_normal(shape)).astype(np.float32)

    params = {name: draw(shape, 0.2) for name, shape in _shapes(width).items()}
    inputs = draw((count, rows * mesh.size, FEATURES))
    targets = np.tanh(inputs[..., :TARGETS]) + draw((1, mesh.size * rows, 1))
    whole, split = jax.NamedSharding(mesh, jax.P()), jax.NamedSharding(mesh, jax.P(None, "data"))
    placed: tuple[Any, Any, Any] = jax.device_put((params, inputs, targets), (whole, split, split))
    return placed


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Two steps, and the program for another number of micro-batches."""
    import jax

    # Highest: so that a GPU does not round what is to be compared.
    with jax.default_matmul_precision("highest"):
        _drive(submission, observe, rng)


def _drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    mesh = _mesh()
    step = submission.make_step(mesh)
    if not observe.jitted("step", step):
        return
    width, count, rows = int(rng.integers(5, 9)) * 16, int(rng.integers(3, 6)), 4
    params, *batch = _arguments(rng, mesh, width, count, rows)
    observe.value("params before", params)
    for when in ("one step", "two steps"):
        params, losses = unpack(step(params, *batch), 2, "`step` returns (params, losses)")
        observe.value(f"params after {when}", params)
        observe.value(f"losses of {when}", losses)
    with observe.unwatched():
        observe.fact("spread", _spread(params))
    width, count = width + 16, 9 - count
    observe.fact("gradient", {"width": width, "micro-batches": count})
    observe.program("step", step, *_arguments(rng, mesh, width, count, rows))
    observe.target("step", step, *_large(mesh, count))


def _large(mesh: Any, count: int) -> tuple[Any, Any, Any]:
    """Arguments as `_arguments` gives them, without values."""
    import jax

    def struct(shape: tuple[int, ...], *spec: str | None) -> Any:
        place = jax.NamedSharding(mesh, jax.P(*spec))
        return jax.ShapeDtypeStruct(shape, "float32", sharding=place)

    params = {name: struct(shape) for name, shape in LARGE.items()}
    lead = (count, LARGE_ROWS * mesh.size)
    inputs = struct((*lead, LARGE["w1"][0]), None, "data")
    return params, inputs, struct((*lead, LARGE["w2"][1]), None, "data")


def _spread(params: Any) -> list[Any]:
    """[path, device, difference from the first device] of what differs most; else nothing."""
    import jax
    import numpy as np

    found: list[list[Any]] = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        shards = [np.asarray(shard.data) for shard in getattr(leaf, "addressable_shards", ())]
        alike = [s for s in enumerate(shards) if s[1].shape == shards[0].shape]
        found += [
            [jax.tree_util.keystr(path), i, float(abs(s - shards[0]).max())] for i, s in alike
        ]
    return max(found, key=lambda place: place[2], default=[])


EXERCISE = Exercise(
    title="Send the gradient once",
    lesson="lessons/14-collectives-you-can-count",
    anchor="one-all-reduce",
    edits=("make_step",),
    drive=drive,
    devices=8,
    hints=(
        "Where does the exchange stand: in the loop over micro-batches, or behind it?",
        "The mean over devices of a sum is the sum of the means. Add up first, on each device.",
        "Take pmean out of `add`, and apply it to `total` after the scan.",
    ),
)


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
        "The gradients of all devices have to meet before the params take them.",
    ),
    anchor="a-promise-nobody-checks",
)
def devices_agree(record: Record) -> Result:
    """After a step every device holds the same params."""
    devices = devices_of(record)
    for leaf in seen(record).values["params after two steps"]:
        whole = leaf.kind == "jax" and leaf.replicated and len(leaf.devices) == devices
        if not whole:
            return Failure(
                f"the new `params{leaf.path}` is a full copy on each of {devices} devices",
                f"shards of {leaf.shard_shape}" if leaf.shard_shape else where(leaf),
                definition(record, "make_step"),
            )
    spread = seen(record).facts["spread"]
    if not spread or spread[2] <= SEEN:
        return None
    path, device, difference = spread
    return Failure(
        "all devices hold the same params after two steps",
        f"`params{path}` on device {device} differs by up to {difference:.2g} from device 0: "
        "each device follows a gradient of its own",
        definition(record, "make_step"),
    )


@EXERCISE.check(
    ground="observed",
    after=("devices_agree",),
    hints=(
        "Count who adds and who divides: over the rows, over micro-batches, over devices.",
        "By default (check_vma=True) jax.grad inside shard_map already sums the gradient of "
        "params that are equal on all devices. With check_vma=False it does not.",
        "`losses` is each device's own mean, (devices,): no exchange is needed for it.",
    ),
    anchor="the-sum-you-did-not-write",
)
def same_numbers(record: Record) -> Result:
    """Params and losses are the reference's, after one step and after two."""
    for when in ("one step", "two steps"):
        if failure := differing_leaf(record, f"params after {when}", rtol=1e-5, atol=2e-6):
            return _with_length(record, failure)
        if failure := differing_leaf(record, f"losses of {when}", rtol=1e-5, atol=2e-6):
            observed = failure.observed + _alike(record, f"losses of {when}")
            return Failure(failure.expected, observed, definition(record, "make_step"))
    return None


def _alike(record: Record, name: str) -> str:
    """What wrong losses are, if they are all the same."""
    losses = [x for leaf in seen(record).values[name] if leaf.data for x in load(leaf.data).flat]
    alike = len(losses) > 1 and len(set(losses)) == 1
    return f"; all {len(losses)} are equal, not each the mean of its own rows" if alike else ""


def _with_length(record: Record, failure: Failure) -> Failure:
    """Tell how many times too long the step is, where that is all that is wrong."""
    ratio = step_ratio(record, "params before", "params after one step")
    devices = devices_of(record)
    length = f"; the step is {ratio:.3g} times as long as the reference's" if ratio else ""
    if ratio and abs(ratio - devices) < 0.01 * devices:
        length += f": the {devices} devices' gradients are added, and no mean is taken"
    return Failure(failure.expected, failure.observed + length, definition(record, "make_step"))


@EXERCISE.check(
    ground="program",
    after=("same_numbers",),
    hints=(
        "A collective in a loop runs once a turn. What stands in the scan's body?",
        "With check_vma=True a sum may stand there that you did not write: it is where params "
        "that are equal on all devices meet rows that are not.",
        "The losses stay where they are: out_specs P('data') hands out one a device.",
    ),
)
def gradient_travels_once(record: Record) -> Result:
    """The program's only collectives are all-reduces, in all of exactly the gradient's bytes."""
    measured = compiled_program(record, "step")
    if not isinstance(measured, Measured):
        return measured
    if devices_of(record) == 1:
        return Unable("on one device nothing travels")
    sizes = wanted(record).facts["gradient"]
    shapes, count = _shapes(sizes["width"]), sizes["micro-batches"]
    wrong = differing_output(record, "step", rtol=1e-5, atol=2e-6)
    return wrong or _travels_once(record, measured.collectives, shapes, count)


def _travels_once(
    record: Record, found: list[Collective], shapes: dict[str, tuple[int, ...]], count: int
) -> Result:
    total = exchanged(found)
    if isinstance(total, Unable):
        return total
    gradient = 4 * sum(prod(shape) for shape in shapes.values())
    if {c.op for c in found} == {"all-reduce"} and total == gradient:
        return None
    times = total // gradient if total % gradient == 0 else 0
    reason = f": in all {times} times the gradient" if times > 1 else ""
    reason += ", once for each micro-batch" if times == count else ""
    return Failure(
        f"one all-reduce of the gradient's {gradient:,} bytes",
        exchanges(found) + reason,
        definition(record, "make_step"),
    )


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
    measured = target_program(record, "step")
    if not isinstance(measured, Measured):
        return measured
    count = wanted(record).facts["gradient"]["micro-batches"]
    if problem := _travels_once(record, measured.collectives, LARGE, count):
        return problem
    reference = target_reference(record, "step")
    if reference is None or reference.memory is None or measured.memory is None:
        return Unable("the compiler does not say how much memory the program needs")
    mine, theirs = measured.memory.temporaries, reference.memory.temporaries
    if mine <= ROOM * theirs:
        return None
    return Failure(
        f"at most {ROOM * theirs / 2**30:.2f} GiB of intermediate results on a device",
        f"{mine / 2**30:.2f} GiB: several of the {count} micro-batches are there at once",
        definition(record, "make_step"),
    )
