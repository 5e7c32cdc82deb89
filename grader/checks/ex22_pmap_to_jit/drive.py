"""Drives ex22_pmap_to_jit: takes steps on several meshes, and exports them.

Drawn: for each of three runs the devices of the mesh and their order (two devices, four, and all
devices, in any order), the width of the network, the rows of the batch and the steps (1 to
5), so that a step that counts jax.devices(), or 8, is wrong on one of them. Width and rows differ,
so that a mean over the wrong dimension shows. One narrow network has so many rows that those of one
device have more bytes than all params; of the others, one is wide. Some params are 0, as biases are
at first. Each step takes the params that the one before returned. The step of each run is exported,
too. So is a large one, with enough work to drown what a call
costs: it is for all devices, in another order, gets two sets of inputs, whose targets are far away,
is timed, and is compiled for the target as well. Before each run, `place` gets other arrays of the
same sizes: what it made of them is looked at, too, and nothing holds it.
"""

from types import ModuleType
from typing import Any

import jax
import msgspec
import numpy as np

from grader.checks.ex22_pmap_to_jit import facts
from grader.checks.ex22_pmap_to_jit.facts import (
    FEATURES,
    RUNS,
    TARGETS,
    TIMED,
    WIDTH,
    Run,
    shapes,
)
from grader.probes import alive
from grader.probes.observe import Misused, Observe, from_last, unpack
from grader.stages.drawn import some_zeros

SIZES = ((1, 5), (9, 13)), ((5, 13), (5, 13)), ((1, 13), (1, 9))
"""Width in sixteens and rows on one device in eights, from and below: one run has each, in any
order."""
STEPS = (1, 6)
"""Steps of a run: from, and below."""
LARGE = (14, 18), (28, 36)
"""Of the program that is timed, the same width and rows, on a mesh of all devices."""

FAR = 64
"""How far its targets are from 0: some gradients are larger than 1."""


def _params(rng: Any, width: int) -> dict[str, Any]:
    """NumPy float32 parameters of a network of this width."""
    drawn = {name: rng.standard_normal(shape) / 8 for name, shape in shapes(width).items()}
    return {name: some_zeros(rng, value.astype(np.float32)) for name, value in drawn.items()}


def _batch(rng: Any, rows: int, far: int) -> tuple[Any, Any]:
    """NumPy float32 inputs (rows, 32) and targets (rows, 8), at most `far` away from 0."""
    inputs = rng.standard_normal((rows, FEATURES)).astype(np.float32)
    return inputs, far * np.tanh(inputs[:, :TARGETS])


PLACED, STEPPED = "`place` returns (params, batch)", "`step` returns (params, loss)"


def _placed(
    submission: ModuleType, rng: Any, mesh: Any, width: int, rows: int, far: int = 1
) -> Any:
    """Fresh params and a fresh batch, placed by the submission."""
    given = _params(rng, width), _batch(rng, rows, far)
    both = unpack(submission.place(mesh, *given), 2, PLACED)
    mine: Any = jax.tree.structure(tuple(both))
    if mine == jax.tree.structure(given[::-1]):
        raise Misused(PLACED, "it returned the batch first, and then the params")
    return both


def _mesh(rng: Any, count: int) -> Any:
    """A mesh of so many devices, in a drawn order."""
    return jax.sharding.Mesh(rng.permutation(np.array(jax.devices()))[:count], ("data",))


def _counts(rng: Any) -> list[int]:
    """How many devices the mesh of each run has: two, four, and all."""
    most = len(jax.devices())
    return [min(int(count), most) for count in rng.permutation([2, 4, most])]


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Take the steps, and export the programs, in full float32 precision."""
    # A GPU would otherwise round the products, and so what is compared.
    with jax.default_matmul_precision("highest"):
        runs = [
            Run(
                devices=count,
                width=16 * int(rng.integers(*width)),
                rows=count * 8 * int(rng.integers(*rows)),
                steps=int(rng.integers(*STEPS)),
            )
            for count, (width, rows) in zip(_counts(rng), rng.permutation(SIZES), strict=True)
        ]
        observe.fact(RUNS, msgspec.to_builtins(runs))
        placed = [_place_run(submission, observe, rng, at, run) for at, run in enumerate(runs)]
        for number, (run, (mesh, params, batch)) in enumerate(zip(runs, placed, strict=True)):
            step = submission.make_step(mesh)
            if not observe.jitted("step", step):
                return
            observe.program(facts.program_of(number), step, params, batch)  # it may donate them
            _take_steps(step, observe, number, run, params, batch)
        _export_large(submission, observe, rng)


def _place_run(submission: ModuleType, observe: Observe, rng: Any, number: int, run: Run) -> Any:
    """(mesh, params, batch) of one run, on a mesh of its own."""
    mesh = _mesh(rng, run.devices)
    before = alive.nbytes()
    for name in (facts.earlier(number), number):
        params = batch = None  # nothing holds what the first call made
        with observe.phase(facts.placed_batch(name)):
            params, batch = _placed(submission, rng, mesh, run.width, run.rows)
        observe.fact(facts.left(name), alive.left_beside((params, batch), before))
        observe.value(facts.placed_params(name), params)
        observe.value(facts.placed_batch(name), batch)
    return mesh, params, batch


def _take_steps(
    step: Any, observe: Observe, number: int, run: Run, params: Any, batch: Any
) -> None:
    """The steps of one run, each with the params that the one before returned."""
    before = params
    for index in range(1, run.steps + 1):
        with from_last("params", before, params, STEPPED):
            made = step(params, batch)
        before, (params, loss) = params, unpack(made, 2, STEPPED)
        observe.value(facts.params_after(number, index), params)
        observe.value(facts.loss_of(number, index), loss)


def _export_large(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Export the program that is timed, and compiled for the target."""
    mesh = _mesh(rng, len(jax.devices()))
    step = submission.make_step(mesh)
    if not observe.jitted("step", step):
        return
    width, rows = (int(rng.integers(*span)) for span in LARGE)
    observe.fact(WIDTH, 16 * width)
    for take in (observe.program, observe.program, observe.target):
        take(TIMED, step, *_placed(submission, rng, mesh, 16 * width, 8 * mesh.size * rows, FAR))
