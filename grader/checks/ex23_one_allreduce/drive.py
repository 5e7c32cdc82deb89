"""Drives ex23_one_allreduce: takes a few steps, and exports the step for four sizes.

Drawn: the order of the devices in each mesh, of which the one for the steps has from two devices to
all but one; and for the steps and for each of the four programs the width of the network, the rows
of a micro-batch and the number of micro-batches (1 to 32): a program whose bytes are right for one
number of micro-batches is not right for all. Some params are 0, as biases are at first. The targets
of the programs are far away, so that the gradients are large; in two more steps that are taken,
they are small, and then larger. In three more, the targets of a drawn row are NaN, its inputs are,
and targets are so far away that the losses are infinite. One more step is taken on a mesh of one
device. Some rows of the programs are 0. Two programs are for all devices, each on a mesh of its
own, so that a step that was made for one is wrong on the other, and two, of one and of many
micro-batches, for the devices that take the steps, of which it is written down, too, what they
exchange. On all devices and on these, one program has as many rows of each on a device; another one
on all devices has a single row of each. The target's program has large params, so that its memory
shows how many micro-batches it holds. Where the file names numbers, the program of one micro-batch
has more rows of it than each of these that is below MOST_ROWS, that of many has a wider network,
some numbers of micro-batches are such numbers, and the targets of the long step are further away.

With check_vma=False, an array may say that it is replicated and hold other numbers on each device:
the copies on all devices are compared after each step.
"""

from types import ModuleType
from typing import Any

import jax
import msgspec
import numpy as np

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
    FEATURES,
    FEW,
    LARGE,
    MANY,
    ODD,
    OTHER,
    STEP,
    TARGETS,
    shapes,
)
from grader.probes import exchanges
from grader.probes.observe import Observe, from_last, unpack
from grader.stages.drawn import (
    OVERFLOWING,
    among,
    beside,
    beyond,
    copied,
    far,
    named,
    some_blank_rows,
    some_zeros,
    with_targets,
)

ROWS, WIDTHS = (2, 8), (4, 10)
"""Rows of a micro-batch on one device, and width in sixteens: from, and below."""
COUNTS = {
    STEP: ((4, 8),),
    OTHER: ((2, 4), (8, 33)),
    FEW: ((1, 2),),
    MANY: ((7, 17), (17, 33)),
}
"""Of each program, its number of micro-batches: from, and below, in one span of these."""
LARGE_ROWS = 8192
"""The same for the target."""
FAR = 32
"""How far the targets of the programs are from 0: some gradients are larger than 1."""
SMALL = 1e-5
"""How far those of one more step are, and how large the weights are that lead to them: some
gradients are smaller than 1e-6."""
MOST_ROWS, MOST_WIDTH = 1000, 64
"""Up to where programs reach the numbers that the file names: rows of a micro-batch on one device,
and width in sixteens."""
MOST_FAR, BESIDE = 1e31, 1e3
"""Up to where targets go beyond these, and how many times as far: gradients are smaller."""
FARTHER = 1e6
"""How far those of the last step are: some gradients are larger than 1000."""
PROMISE = "`step` returns (params, losses)"


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Take the steps, and export the programs, in full float32 precision."""
    # A GPU would otherwise round the products, and so what is compared.
    with jax.default_matmul_precision("highest"):
        most = jax.device_count()
        mesh = _mesh(rng, int(rng.integers(2, max(most, 3))) if most > 1 else 1)
        observe.fact(DEVICES, mesh.size)
        step = submission.make_step(mesh)
        if not observe.jitted("step", step):
            return
        width, count = _width(rng), among(rng, (2, 7))
        params, *batch = _arguments(rng, mesh, width, count)
        observe.fact(COUNT, count)
        observe.value("params before", params)
        observe.value(BATCH, tuple(batch))
        before, sent = params, list[Any]()
        for when in AFTER:
            with (
                from_last("params", before, params, PROMISE),
                exchanges.launched() as found,
            ):
                made = step(params, *batch)
            sent.append(msgspec.to_builtins(found))
            before, (params, losses) = params, unpack(made, 2, PROMISE)
            observe.value(f"params after {when}", params)
            observe.value(f"losses of {when}", losses)
        observe.fact(EXCHANGED, sent)
        params = params | {"w2": _times(params["w2"], SMALL)}
        observe.value(BEFORE_SMALL, params)
        farther = max(FARTHER, BESIDE * far(rng, MOST_FAR))
        for name, most_far in ((AFTER_SMALL, SMALL), (AFTER_FAR, farther)):
            made = step(params, *with_targets(tuple(batch), most_far))
            params = unpack(made, 2, PROMISE)[0]
            observe.value(name, params)
        some, few, steps, drawn = mesh, step, (width, count), {}
        mesh = _mesh(rng, most)
        step = submission.make_step(mesh)
        if not observe.jitted("step", step):
            return
        for name, spans in COUNTS.items():
            width, count = _width(rng), int(rng.integers(*rng.choice(spans)))
            width = beyond(rng, width // 16, MOST_WIDTH, each=16) * 16 if name == MANY else width
            count = _named_count(rng, count, (spans[0][0], spans[-1][-1]))
            drawn[name] = {"width": width, "micro-batches": count}
            made, over = (few, some) if name in (FEW, MANY) else (step, mesh)
            if name == OTHER:
                over = _mesh(beside(rng), most)
                made = submission.make_step(over)
            each = {STEP: count, MANY: count, OTHER: 1}.get(name)
            each = beyond(rng, 0, MOST_ROWS, each=FEATURES) or each if name == FEW else each
            observe.program(name, made, *_arguments(rng, over, width, count, FAR, each))
        observe.fact("gradient", drawn)
        observe.target(STEP, step, *_large(mesh, drawn[STEP]["micro-batches"]))
        apart, each = rng.spawn(1)[0], batch[0].shape[1] // some.size
        params, *batch = _arguments(apart, some, steps[0], steps[1], 1, each)
        observe.value(BEFORE_ODD, params)
        for name, odd in zip(ODD, _odd(apart, *batch), strict=True):
            _step_apart(observe, name, few, (copied(params), *odd))
        alone = _mesh(apart, 1)
        given = _arguments(apart, alone, _width(apart), int(apart.integers(2, 7)))
        _step_apart(observe, ALONE, submission.make_step(alone), given)


def _step_apart(observe: Observe, name: str, step: Any, given: Any) -> None:
    """Take a step, and keep what it makes under the name of it."""
    params, losses = unpack(step(*given), 2, PROMISE)
    observe.value(f"params after {name}", params)
    observe.value(f"losses of {name}", losses)


def _odd(rng: Any, inputs: Any, targets: Any) -> tuple[Any, Any, Any]:
    """Three batches: the targets of a row are NaN, its inputs are, or losses are infinite."""
    row = tuple(map(int, rng.integers(targets.shape[:2])))

    def lost(array: Any) -> Any:
        drawn = np.array(array)
        drawn[row] = np.nan
        return jax.device_put(drawn, array.sharding)

    return (
        (inputs, lost(targets)),
        (lost(inputs), targets),
        with_targets((inputs, targets), OVERFLOWING),
    )


def _times(array: Any, factor: float) -> Any:
    """An array with smaller numbers, placed alike."""
    return jax.device_put(np.float32(factor) * np.asarray(array), array.sharding)


def _mesh(rng: Any, count: int) -> Any:
    """A mesh of so many devices, in a drawn order."""
    return jax.sharding.Mesh(rng.permutation(np.array(jax.devices()))[:count], ("data",))


def _named_count(rng: Any, usual: int, span: tuple[int, int]) -> int:
    """`usual`, or, where the file names some, a number of micro-batches in the span."""
    some = [int(number) for number in named(rng) if number in range(*span)]
    return int(rng.choice(some)) if some else usual


def _width(rng: Any) -> int:
    return 16 * int(rng.integers(*WIDTHS))


def _arguments(
    rng: Any, mesh: Any, width: int, count: int, far: int = 1, each: int | None = None
) -> tuple[Any, Any, Any]:
    """Params on every device; inputs and targets of `count` micro-batches, split by rows.

    The targets are `far` times as far from 0 as the network's outputs.

    A device has `each` rows of one. If that is drawn, it is another number than that of the
    micro-batches, so that neither passes for the other. Each row of the targets has an
    offset of its own, so that the devices' gradients differ.
    """

    def draw(shape: tuple[int, ...], scale: float = 1.0) -> Any:
        return (scale * rng.standard_normal(shape)).astype(np.float32)

    params = {name: some_zeros(rng, draw(shape, 0.2)) for name, shape in shapes(width).items()}
    each = each or int(rng.choice([n for n in range(*ROWS) if n != count]))
    rows = each * mesh.size
    inputs = draw((count, rows, FEATURES))
    targets = far * (np.tanh(inputs[..., :TARGETS]) + draw((1, rows, 1)))
    if far > 1:
        some_blank_rows(rng.spawn(1)[0], inputs, targets)
    whole, split = jax.NamedSharding(mesh, jax.P()), jax.NamedSharding(mesh, jax.P(None, "data"))
    placed: tuple[Any, Any, Any] = jax.device_put((params, inputs, targets), (whole, split, split))
    return placed


def _large(mesh: Any, count: int) -> tuple[Any, Any, Any]:
    """Arguments as `_arguments` gives them, as shapes, of the sizes for the target."""

    def struct(shape: tuple[int, ...], *spec: str | None) -> Any:
        place = jax.NamedSharding(mesh, jax.P(*spec))
        return jax.ShapeDtypeStruct(shape, "float32", sharding=place)

    params = {name: struct(shape) for name, shape in LARGE.items()}
    features, targets = LARGE["w1"][0], LARGE["w2"][1]
    rows = LARGE_ROWS * mesh.size
    return (
        params,
        struct((count, rows, features), None, "data"),
        struct((count, rows, targets), None, "data"),
    )
