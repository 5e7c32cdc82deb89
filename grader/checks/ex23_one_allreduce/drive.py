"""Drives ex23_one_allreduce: takes a few steps, and exports the step for four sizes.

Drawn: the order of the devices in each mesh, of which the one for the steps has from two devices to
all but one; and for the steps and for each of the four programs the width of the network, the rows
of a micro-batch and the number of micro-batches (2 to 32): a program whose bytes are right for one
number of micro-batches is not right for all. Some params are 0, as biases are at first. The targets
of the programs are far away, so that the gradients are large. Two programs are for all devices, and
two, of few and of many micro-batches, for the devices that take the steps. One of these two has as
many rows of each on a device. The target's program has large params, so
that its memory shows how many micro-batches it holds.

With check_vma=False, an array may say that it is replicated and hold other numbers on each device:
the copies on all devices are compared after each step.
"""

from types import ModuleType
from typing import Any

import jax
import numpy as np

from grader.checks.ex23_one_allreduce.facts import (
    AFTER,
    BATCH,
    COUNT,
    DEVICES,
    FEATURES,
    FEW,
    LARGE,
    MANY,
    OTHER,
    STEP,
    TARGETS,
    shapes,
)
from grader.probes.observe import Observe, from_last, unpack
from grader.stages.drawn import some_zeros

ROWS, WIDTHS = (2, 8), (4, 10)
"""Rows of a micro-batch on one device, and width in sixteens: from, and below."""
COUNTS = {STEP: (4, 8), OTHER: (8, 33), FEW: (2, 8), MANY: (8, 17)}
"""Of each program, its number of micro-batches: from, and below."""
LARGE_ROWS = 8192
"""The same for the target."""
FAR = 32
"""How far the targets of the programs are from 0: some gradients are larger than 1."""
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
        width, count = _width(rng), int(rng.integers(2, 7))
        params, *batch = _arguments(rng, mesh, width, count)
        observe.fact(COUNT, count)
        observe.value("params before", params)
        observe.value(BATCH, tuple(batch))
        before = params
        for when in AFTER:
            with from_last("params", before, params, PROMISE):
                made = step(params, *batch)
            before, (params, losses) = params, unpack(made, 2, PROMISE)
            observe.value(f"params after {when}", params)
            observe.value(f"losses of {when}", losses)
        some, few, drawn = mesh, step, {}
        mesh = _mesh(rng, most)
        step = submission.make_step(mesh)
        if not observe.jitted("step", step):
            return
        alike_in = str(rng.choice([FEW, MANY]))
        for name, counts in COUNTS.items():
            width, count = _width(rng), int(rng.integers(*counts))
            drawn[name] = {"width": width, "micro-batches": count}
            made, over = (few, some) if name in (FEW, MANY) else (step, mesh)
            alike = name == alike_in
            observe.program(name, made, *_arguments(rng, over, width, count, FAR, alike=alike))
        observe.fact("gradient", drawn)
        observe.target(STEP, step, *_large(mesh, drawn[STEP]["micro-batches"]))


def _mesh(rng: Any, count: int) -> Any:
    """A mesh of so many devices, in a drawn order."""
    return jax.sharding.Mesh(rng.permutation(np.array(jax.devices()))[:count], ("data",))


def _width(rng: Any) -> int:
    return 16 * int(rng.integers(*WIDTHS))


def _arguments(
    rng: Any, mesh: Any, width: int, count: int, far: int = 1, *, alike: bool = False
) -> tuple[Any, Any, Any]:
    """Params on every device; inputs and targets of `count` micro-batches, split by rows.

    The targets are `far` times as far from 0 as the network's outputs.

    A device has not as many rows of one as there are micro-batches, so that neither number passes
    for the other; it has just as many if they are to be `alike`. Each row of the targets has an
    offset of its own, so that the devices' gradients differ.
    """

    def draw(shape: tuple[int, ...], scale: float = 1.0) -> Any:
        return (scale * rng.standard_normal(shape)).astype(np.float32)

    params = {name: some_zeros(rng, draw(shape, 0.2)) for name, shape in shapes(width).items()}
    each = count if alike else int(rng.choice([n for n in range(*ROWS) if n != count]))
    rows = each * mesh.size
    inputs = draw((count, rows, FEATURES))
    targets = far * (np.tanh(inputs[..., :TARGETS]) + draw((1, rows, 1)))
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
