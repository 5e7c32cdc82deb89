"""Drives ex22_pmap_to_jit: takes steps on several meshes, and exports them.

Drawn: for each of three runs the devices of the mesh and their order (all, and a number between, in
any order, and then one device), the width of the network, the rows of the batch and the steps (2 to
6), so that a step that counts jax.devices(), or 8, is wrong on one of them. Width and rows differ,
so that a mean over the wrong dimension shows. One narrow network has so many rows that those of one
device have more bytes than all params; of the others, one is wide. It is not the one on a single
device. Some params are 0, as biases are at first. Each step takes the params that the one before
returned. In one run gradients are small, and in the last step of each they are large; that of the
run on one device gets fewer rows. One run, of several devices where there are any, takes three
steps more: in one the targets of a row are NaN, in one its inputs, and in one targets are so far
away that the loss is infinite. The step of each run is exported, too. So is a large one, with
enough work to drown what a call costs: it is for all devices, in another order, gets two sets of
inputs, whose targets are far away, is timed, and is compiled for the target as well. Before each
run, `place` gets other arrays of the same sizes: what it made of them is looked at, too, and
nothing holds it, nor what it got. Some matrices that `place` gets lie column by column in memory,
alone or as parts of larger ones. Where the file names numbers, the run with many rows has more
columns of targets than each of these that is below MOST_TARGETS, the other one of several devices
has more features and more hidden units, and that on one device even more hidden units; and the
targets of the last steps are further away.
"""

import math
import weakref
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
from grader.probes import alive, exchanges
from grader.probes.observe import Misused, Observe, from_last, left_alone, unpack
from grader.stages.drawn import (
    beside,
    beyond,
    copied,
    far,
    odd_batches,
    some_blank_rows,
    some_by_columns,
    some_zeros,
    with_rows,
    with_targets,
)

SIZES = ((1, 5), (9, 129)), ((5, 13), (5, 13)), ((1, 13), (1, 9))
"""Width in sixteens and rows on one device in eights, from and below: one run has each, in any
order. Twice as many rows are as likely as half of them."""
STEPS = (1, 6)
"""Steps of a run, and one more with targets that are far away: from, and below."""
MOST_TARGETS, MOST_FEATURES, MOST_WIDTHS = 128, 512, (512, 4096)
"""Up to where runs reach the numbers that the file names; widths on several devices, and on one."""
LARGE = (14, 18), (28, 36)
"""Of the program that is timed, the same width and rows, on a mesh of all devices."""

FAR = 64
"""How far its targets are from 0: some gradients are larger than 1."""
SMALL, FARTHER = 1e-5, 1e6
"""How large the targets of one run are, with the weights that lead to them, and how far those of
the last step of each run: some gradients are smaller than 1e-5, and some larger than 1000."""
MOST_FAR, BESIDE = 1e9, 1e3
"""Up to where these targets go beyond the numbers that the file names, and how many times as far:
gradients are smaller than targets."""


def _params(rng: Any, sizes: Any, far: float) -> dict[str, Any]:
    """NumPy float32 parameters of these shapes, for targets that are at most `far` away from 0."""
    drawn = {name: rng.standard_normal(shape) / 8 for name, shape in sizes.items()}
    drawn["w2"] *= min(far, 1)
    return {name: some_zeros(rng, value.astype(np.float32)) for name, value in drawn.items()}


def _batch(rng: Any, rows: int, sizes: Any, far: float) -> tuple[Any, Any]:
    """NumPy float32 inputs and targets for params of these shapes; at most `far` away from 0."""
    features, columns = sizes["w1"][0], sizes["w2"][1]
    inputs = rng.standard_normal((rows, features)).astype(np.float32)
    targets = (far * np.tanh(inputs[:, np.arange(columns) % features])).astype(np.float32)
    if far > 1:
        some_blank_rows(rng.spawn(1)[0], inputs, targets)
    return inputs, targets


PLACED, STEPPED = "`place` returns (params, batch)", "`step` returns (params, loss)"


def _fresh(rng: Any, sizes: Any, rows: int, far: float) -> tuple[Any, Any]:
    """Fresh params and a fresh batch, in NumPy."""
    given = _params(rng, sizes, far), _batch(rng, rows, sizes, far)
    ordered: tuple[Any, Any] = some_by_columns(beside(rng), given)
    return ordered


def _placed(submission: ModuleType, mesh: Any, given: tuple[Any, Any]) -> Any:
    """Params and a batch, placed by the submission."""
    with left_alone("place", given):
        both = unpack(submission.place(mesh, *given), 2, PLACED)
    mine: Any = jax.tree.structure(tuple(both))
    if mine == jax.tree.structure(given[::-1]):
        raise Misused(PLACED, "it returned the batch first, and then the params")
    shapes_of = [[np.shape(x) for x in jax.tree.leaves(batch)] for batch in (both[1], given[1])]
    if shapes_of[0] == shapes_of[1][::-1] != shapes_of[1]:
        promise = "`place` returns the batch in the order in which it came, (inputs, targets)"
        raise Misused(promise, "it returned (targets, inputs)")
    return both


def _mesh(rng: Any, count: int) -> Any:
    """A mesh of so many devices, in a drawn order."""
    return jax.sharding.Mesh(rng.permutation(np.array(jax.devices()))[:count], ("data",))


def _counts(rng: Any) -> list[int]:
    """How many devices the mesh of each run has: all, and a number between, and then one."""
    most = len(jax.devices())
    between = rng.spawn(1)[0].choice(range(2, most)) if most > 2 else most
    return [*map(int, rng.permutation([between, most])), 1]


def _sizes(rng: Any) -> list[Any]:
    """Of each run, its entry of `SIZES`: on one device, no row can travel, so few will do there."""
    drawn = [SIZES[int(at)] for at in rng.permutation(len(SIZES))]
    return drawn if drawn[-1] != SIZES[0] else drawn[::-1]


def _run(rng: Any, count: int, width: Any, rows: Any) -> Run:
    """A run on so many devices, which divide each dimension: what splits a wrong one works."""
    sizes = _far(rng, count, (width, rows), 16 * int(rng.integers(*width)))
    wide, features, targets = (count * math.ceil(size / count) for size in sizes)
    each, steps = 8 * int(math.exp(rng.uniform(*map(math.log, rows)))), int(rng.integers(*STEPS))
    each = max(each, 16) if count == 1 else each
    fewer = 8 * int(beside(rng).integers(1, each // 8)) if count == 1 else 0
    return Run(count, wide, features, targets, count * each, steps + 1, fewer)


def _far(rng: Any, count: int, sizes: Any, width: int) -> tuple[int, int, int]:
    """Width, features and targets of a run on so many devices, where the file names numbers."""
    if sizes == SIZES[0]:
        return width, FEATURES, beyond(rng, TARGETS, MOST_TARGETS)
    if count == 1:
        return beyond(rng, width, MOST_WIDTHS[1], each=FEATURES), FEATURES, TARGETS
    features = beyond(rng, FEATURES, MOST_FEATURES, each=width)
    return beyond(rng, width, MOST_WIDTHS[0], each=FEATURES), features, TARGETS


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Take the steps, and export the programs, in full float32 precision."""
    # A GPU would otherwise round the products, and so what is compared.
    with jax.default_matmul_precision("highest"):
        runs = [
            _run(rng, count, width, rows)
            for count, (width, rows) in zip(_counts(rng), _sizes(rng), strict=True)
        ]
        observe.fact(RUNS, msgspec.to_builtins(runs))
        apart = beside(rng)
        lost = int(apart.integers(len(runs) - 1))
        observe.fact(facts.ODD_RUN, lost)
        farther = max(FARTHER, BESIDE * far(rng, MOST_FAR))
        scales = [1.0, *map(float, rng.spawn(1)[0].permutation([SMALL, 1]))]
        placed = [
            _place_run(submission, observe, rng, at, run, scale)
            for at, (run, scale) in enumerate(zip(runs, scales, strict=True))
        ]
        for number, (run, (mesh, params, batch)) in enumerate(zip(runs, placed, strict=True)):
            step = submission.make_step(mesh)
            if not observe.jitted("step", step):
                return
            observe.program(facts.program_of(number), step, params, batch)  # it may donate params
            of_batch = _asked(step, params, batch)[-len(batch) :]
            observe.fact(facts.batch_donated(number), any(each.donated for each in of_batch))
            near = _take_steps(step, observe, number, run, (params, batch, farther))
            if number == lost:
                for odd, given in zip(facts.ODD, odd_batches(apart, batch), strict=True):
                    params, loss = unpack(step(copied(near), given), 2, STEPPED)
                    observe.value(facts.odd_params(odd), params)
                    observe.value(facts.odd_loss(odd), loss)
        _export_large(submission, observe, rng)


def _place_run(
    submission: ModuleType, observe: Observe, rng: Any, number: int, run: Run, scale: float
) -> Any:
    """(mesh, params, batch) of one run, on a mesh of its own; targets are at most `scale`."""
    mesh = _mesh(rng, run.devices)
    before, gone = alive.nbytes(scalars=True), list[Any]()
    for name in (facts.earlier(number), number):
        params = batch = None  # nothing holds what the first call made
        sizes = shapes(run.width, run.features, run.targets)
        given = _fresh(rng, sizes, run.rows, scale)
        with observe.phase(facts.placed_batch(name)), exchanges.programs() as told:
            params, batch = _placed(submission, mesh, given)
        observe.fact(facts.programs(name), told)
        left = alive.left_beside((params, batch), before, scalars=True)
        observe.fact(facts.left(name), left or alive.held(gone))
        gone = [weakref.ref(array) for array in jax.tree.leaves(given)]
        observe.value(facts.placed_params(name), params)
        observe.value(facts.placed_batch(name), batch)
    return mesh, params, batch


def _asked(step: Any, *arguments: Any) -> list[Any]:
    """What the step makes of each array of its arguments; nothing if it cannot be traced."""
    try:
        return jax.tree.leaves(step.trace(*arguments).args_info)
    except (TypeError, ValueError):  # the exported program reports it
        return []


def _take_steps(step: Any, observe: Observe, number: int, run: Run, given: Any) -> Any:
    """The steps of one run, each with the params that the one before returned.

    Returns a copy of those with which the last one begins: larger ones are rounded by more.

    `given` are the first params, the batch, and how far its targets are in the last step.
    """
    params, batch, farther = given
    before = params
    for index in range(1, run.steps + 1):
        if index == run.steps:
            near, batch = copied(params), with_targets(batch, farther)
            batch = with_rows(batch, run.fewer) if run.fewer else batch
        with from_last("params", before, params, STEPPED):
            made = step(params, batch)
        before, (params, loss) = params, unpack(made, 2, STEPPED)
        observe.value(facts.params_after(number, index), params)
        observe.value(facts.loss_of(number, index), loss)
    return near


def _export_large(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Export the program that is timed, and compiled for the target."""
    mesh = _mesh(rng, len(jax.devices()))
    step = submission.make_step(mesh)
    if not observe.jitted("step", step):
        return
    width, rows = (int(rng.integers(*span)) for span in LARGE)
    observe.fact(WIDTH, 16 * width)
    for take in (observe.program, observe.program, observe.target):
        given = _fresh(rng, shapes(16 * width), 8 * mesh.size * rows, FAR)
        take(TIMED, step, *_placed(submission, mesh, given))
