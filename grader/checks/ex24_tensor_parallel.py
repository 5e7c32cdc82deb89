"""ex24_tensor_parallel: weights split so that a block's devices meet once, within a budget."""

from math import prod
from types import ModuleType
from typing import Any, NamedTuple

from grader.checking import Exercise, Failure, Misused, Observe, Result, Unable, unpack
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
    target_of,
    target_program,
    wanted,
)
from grader.record import Collective, Measured, Record
from grader.words import exchanges, plural, shards

BLOCKS, DATA = 2, 2
LARGE = {"rows": 16384, "features": 4096, "hidden": 16384}
"""Sizes of the program for the target. Like the one that runs here, it is bfloat16."""
SPLIT = ("up", "up_bias", "down")
SLACK = 1.1
SCALARS = 64  # bytes that may travel beside the budget: the loss


def _mesh() -> Any:
    """Two rows of devices, which are "data"; the axis "model" comes first."""
    import jax
    import numpy as np

    devices = np.array(jax.devices())
    grid = devices[: len(devices) // DATA * DATA].reshape(DATA, -1)
    return jax.sharding.Mesh(grid.T, ("model", "data"))


def _structs(features: int, hidden: int, dtype: str, blocks: int = BLOCKS) -> list[dict[str, Any]]:
    import jax

    shapes = {
        "up": (features, hidden),
        "up_bias": (hidden,),
        "down": (hidden, features),
        "down_bias": (features,),
    }
    block = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape in shapes.items()}
    return [dict(block) for _ in range(blocks)]


def _layout(submission: ModuleType, mesh: Any, structs: Any) -> Any:
    """The learner's layout, if it is one."""
    import jax

    layout, trees = submission.layout(mesh, structs), jax.tree.structure
    kinds = sorted({type(leaf).__name__ for leaf in jax.tree.leaves(layout)})
    if kinds != ["NamedSharding"] or str(trees(structs)) != str(trees(layout)):
        promise = "`layout` returns a NamedSharding for each array, in a tree like `params`"
        size = f"{len(layout)} of " if isinstance(layout, list) else ""
        got = f"a {type(layout).__name__} of {size}{', '.join(kinds)}"
        raise Misused(promise, f"for {len(structs)} blocks it returned {got}")
    return layout


def _arguments(rng: Any, mesh: Any, layout: Any, structs: Any, rows: int) -> tuple[Any, Any]:
    """Params as the layout says, and a batch of `rows` rows split over "data"."""
    import jax
    import numpy as np

    up = structs[0]["up"]
    params = jax.tree.map(lambda s: (0.15 * rng.standard_normal(s.shape)).astype(s.dtype), structs)
    inputs = rng.standard_normal((rows, up.shape[0])).astype(up.dtype)
    split = jax.NamedSharding(mesh, jax.P("data"))
    return jax.device_put(params, layout), jax.device_put(
        (inputs, np.tanh(inputs).astype(up.dtype)), split
    )


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Two steps in float32, the program in bfloat16, and the same of large sizes for the target."""
    mesh = _mesh()
    step = submission.make_step(mesh)
    if not observe.jitted("step", step):
        return
    _layout(submission, mesh, _structs(8, 16, "float32", BLOCKS + 1))
    features, hidden = int(rng.integers(3, 6)) * 8, int(rng.integers(6, 9)) * 16
    structs = _structs(features, hidden, "float32")
    layout = _layout(submission, mesh, structs)
    params, batch = _arguments(rng, mesh, layout, structs, 16)
    observe.value("params", params)
    for when in ("one step", "two steps"):
        params, loss = unpack(step(params, batch), 2, "`step` returns (params, loss)")
        observe.value(f"params after {when}", params)
        observe.value(f"loss of {when}", loss)
    sizes = {"rows": 32 * mesh.size, "features": features + 8, "hidden": hidden + 32}
    structs = _structs(sizes["features"], sizes["hidden"], "bfloat16")
    layout = _layout(submission, mesh, structs)
    observe.fact("sizes", sizes)
    observe.program("step", step, *_arguments(rng, mesh, layout, structs, sizes["rows"]))
    observe.target("step", step, *_large(submission, mesh))


def _large(submission: ModuleType, mesh: Any) -> tuple[Any, Any]:
    """Arguments for the target, as shapes."""
    import jax

    structs = _structs(LARGE["features"], LARGE["hidden"], "bfloat16")
    layout, split = _layout(submission, mesh, structs), jax.NamedSharding(mesh, jax.P("data"))
    params = jax.tree.map(lambda struct, place: struct.update(sharding=place), structs, layout)
    shape = LARGE["rows"], LARGE["features"]
    return params, (jax.ShapeDtypeStruct(shape, "bfloat16", sharding=split),) * 2


EXERCISE = Exercise(
    title="Split a network over two axes",
    lesson="lessons/14-collectives-you-can-count",
    anchor="split-the-weights",
    edits=("layout", "make_step"),
    drive=drive,
    devices=8,
    fewest_gpus=4,
    hints=(
        "How can `up` be split so that a device's part of the product needs no other part?",
        "`down` meets these hidden units. Split it so that each device multiplies what it has.",
        "Split hidden in both matrices: the columns of `up`, the rows of `down`.",
    ),
)


def _failure(record: Record, expected: str, observed: str, edit: str = "layout") -> Failure:
    return Failure(expected, observed, definition(record, edit))


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
        "P('model') splits dimension 0 over \"model\"; P(None, 'model') splits dimension 1.",
        "A bias lies like what it is added to: hidden units, or the outputs of a block.",
    ),
)
def weights_are_split(record: Record) -> Result:
    """Of all but `down_bias`, a device holds one part in as many as "model" has devices."""
    for leaf in seen(record).values["params"]:
        split = any(f"'{name}'" in leaf.path for name in SPLIT)
        parts = devices_of(record) // DATA if split else 1
        if not split and leaf.shard_shape != leaf.shape:
            return _failure(record, f"`params{leaf.path}` is whole on each device", shards(leaf))
        if leaf.kind != "jax" or prod(leaf.shard_shape or ()) * parts > prod(leaf.shape):
            expected = f"a device holds 1/{parts} of `params{leaf.path}`, which is {leaf.shape}"
            return _failure(record, expected, shards(leaf))
    return None


@EXERCISE.check(
    ground="observed",
    after=("one_program",),
    hints=(
        "In jax.shard_map a device computes a part: psum over the axis it was split over.",
        "What all devices add before a psum is counted as often as there are devices.",
    ),
)
def same_numbers(record: Record) -> Result:
    """Params and loss are those of one device, after one step and after two."""
    for when in ("one step", "two steps"):
        for name in (f"loss of {when}", f"params after {when}"):
            failure = differing_leaf(record, name, rtol=1e-3, atol=5e-5)
            if failure:
                observed = failure.observed + _length(record)
                return _failure(record, failure.expected, observed, "make_step")
    return None


def _length(record: Record) -> str:
    """By how much the first step is too long or too short, where that is all that is wrong."""
    ratio = step_ratio(record, "params", "params after one step")
    return f"; the first step is {ratio:.4g} times as long as the reference's" if ratio else ""


@EXERCISE.check(
    ground="observed",
    after=("weights_are_split",),
    hints=("The next step takes what this one returns. Constrain the new params by `layout`.",),
)
def params_stay_split(record: Record) -> Result:
    """The new params lie as the old ones did."""
    before, after = seen(record).values["params"], seen(record).values["params after two steps"]
    for old, new in zip(before, after, strict=False):
        if old.shard_shape != new.shard_shape:
            expected = f"the new `params{old.path}` is {shards(old)}"
            return _failure(record, expected, shards(new), "make_step")
    return None


class _Budget(NamedTuple):
    """Bytes that a step of these sizes has to send, as they arrive on one device."""

    rows: int
    features: int
    hidden: int
    model: int
    itemsize: int
    """2 for bfloat16, but 4 on a CPU, whose compiler widens a sum before it sends it."""

    @property
    def outputs(self) -> int:
        """A block's outputs: forward in every block, backward in all but the first."""
        return self.itemsize * (self.rows // DATA) * self.features

    @property
    def gradient(self) -> int:
        """What one device holds of the gradient, added over "data"."""
        split = (2 * self.features + 1) * self.hidden
        return self.itemsize * BLOCKS * (split // self.model + self.features)

    def total(self, *, loop: bool) -> int:
        """A loop over blocks cannot leave the first one's out."""
        return (2 * BLOCKS - (not loop)) * self.outputs + self.gradient

    def odd(self, found: list[Collective]) -> str:
        """What travels, and need not."""
        gathered = {c.nbytes for c in found if c.op == "all-gather"}
        units = self.rows // DATA * self.hidden
        if any(0 <= c.nbytes - size * units <= SCALARS for c in found for size in (2, 4)):
            return ": the hidden units travel"
        if self.itemsize == 2 and any(c.nbytes == 2 * self.outputs for c in found):
            return ": outputs travel as float32"
        matrix = 2 * self.features * self.hidden
        if gathered & {matrix, matrix // self.model}:
            return ": a matrix is gathered"
        rows = 2 * self.rows * self.features in gathered
        return ": the rows of all devices are gathered" if rows else ""


def _within(record: Record, found: list[Collective], budget: _Budget) -> Result:
    total = exchanged(found)
    if isinstance(total, Unable):
        return total
    allowed = budget.total(loop=any(c.runs == BLOCKS for c in found))
    if total <= SLACK * allowed + SCALARS:
        return None
    return _failure(
        record,
        f"about {allowed:,} bytes: {plural(2 * BLOCKS - 1, 'all-reduce')} of a block's "
        f"{budget.outputs:,} bytes of outputs, and a gradient of {budget.gradient:,}",
        f"{total:,} bytes: {exchanges(found)}{budget.odd(found)}",
        _at_fault(record),
    )


def _at_fault(record: Record) -> str:
    """Which edit to look at: the step, if the params lie as the reference's."""
    mine, theirs = (found.values["params"] for found in (seen(record), wanted(record)))
    alike = all(a.shard_shape == b.shard_shape for a, b in zip(mine, theirs, strict=False))
    return "make_step" if alike else "layout"


@EXERCISE.check(
    ground="program",
    after=("weights_are_split", "same_numbers", "params_stay_split"),
    hints=(
        "An all-gather between the products: the second needs other devices' hidden units.",
        "PyTorch's nn.Linear is (out, in). Here the columns of `up` are the hidden units.",
        "More all-reduces of outputs than blocks take: is the forward pass of a block run again, "
        "or the batch not split as it came?",
    ),
)
def within_budget(record: Record) -> Result:
    """The program sends a block's outputs once each way, its part of the gradient, and no more."""
    measured = compiled_program(record, "step")
    if not isinstance(measured, Measured):
        return measured
    itemsize = 4 if record.machine and record.machine.platform == "cpu" else 2
    model = devices_of(record) // DATA
    budget = _Budget(**wanted(record).facts["sizes"], model=model, itemsize=itemsize)
    wrong = differing_output(record, "step", rtol=5e-2, atol=2e-2, any_float=("[1]",))
    if wrong:
        return _failure(record, wrong.expected, wrong.observed, "make_step")
    return _within(record, measured.collectives, budget)


@EXERCISE.check(
    ground="target",
    after=("within_budget",),
    hints=("Params and batch are bfloat16 there. Does your step widen what it sends?",),
    anchor="on-eight-h200",
)
def on_the_target(record: Record) -> Result:
    """Compiled for the target, in bfloat16, the step stays within half the budget."""
    measured = target_program(record, "step")
    if not isinstance(measured, Measured):
        return measured
    model = target_of(record).devices // DATA
    return _within(record, measured.collectives, _Budget(**LARGE, model=model, itemsize=2))
