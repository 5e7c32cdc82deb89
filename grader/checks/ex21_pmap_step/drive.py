"""Drives ex21_pmap_step: places the params and takes a few steps on fresh rows, four times.

Drawn: for each run the devices and their order (two of them, all, and a number between, in any
order of runs), so that neither the order nor the length of jax.devices() is the right one; the
width of the network, the rows of one device, and the steps (1 to 4). The last run has the devices
and the width of an earlier one, and other params. Some params are 0, as biases are at first. The
rows of one device are like each other and unlike those of the next, so that a gradient of one
device's rows is far from the mean. Three programs of the step are compiled. Two are for one row on
each device and for many, which are drawn. Their networks have as many params, and rows of another
length: what the devices exchange is the same for both if no row leaves its device. The third has
one row on each, and twice as many params: what is exchanged beside the gradient, whatever its size,
shows. How the devices of each run exchange something is kept, too, and is to be no other way than
in these programs.

`update` starts from copies that the drive has placed, so that it is judged apart from `replicate`.
`make_step` is not the learner's to edit, so the step is pmap's.
"""

from types import ModuleType
from typing import Any

import jax
import msgspec
import numpy as np

from grader.checks.ex21_pmap_step import facts
from grader.checks.ex21_pmap_step.facts import FEW_ROWS, MANY_ROWS, RUNS, TWICE, Run
from grader.probes import alive
from grader.probes.observe import Misused, Observe, from_last, unpack
from grader.stages.drawn import some_zeros

PROMISE = "`update` returns (params, loss)"
FEATURES, OUTPUTS = 5, 2
WIDTHS, ROWS, STEPS = (4, 12), (1, 17), (1, 5)
MANY = (24, 60)
"""How many rows a device has in the second program: from, and below. In the first, it has one."""
FAR = 64
"""How far its targets are from 0: some gradients are larger than 1."""
PER_UNIT = {10: 12, 12: 10, 15: 8, 20: 6}
"""Widths of networks with 120 params, and how many params a hidden unit then has."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Take steps with pmap on several lists of devices, and export the step."""
    most = len(jax.devices())
    counts = [min(2, most), most, int(rng.choice(range(3, most) or [most]))]
    sides = [
        (list(rng.permutation(np.array(jax.devices()))[: int(count)]), int(rng.integers(*WIDTHS)))
        for count in rng.permutation(counts)
    ]
    sides.append(sides[int(rng.integers(len(sides)))])
    runs = []
    for number, (devices, width) in enumerate(sides):
        runs.append(Run([device.id for device in devices], int(rng.integers(*STEPS))))
        _run(submission, observe, rng, number, devices, width, runs[-1].steps)
    observe.fact(RUNS, msgspec.to_builtins(runs))
    _export(submission, observe, rng)


def _params(rng: Any, width: int, features: int, outputs: int) -> dict[str, Any]:
    """NumPy float32 params of a network with so many hidden units."""
    shapes = {"w1": (features, width), "b1": (width,), "w2": (width, outputs)}
    drawn = {k: (rng.standard_normal(s) / 2).astype(np.float32) for k, s in shapes.items()}
    return {name: some_zeros(rng, array) for name, array in drawn.items()}


def _run(
    submission: ModuleType,
    observe: Observe,
    rng: Any,
    run: int,
    devices: list[Any],
    width: int,
    steps: int,
) -> None:
    """Place params of a network of this width once, and take steps."""
    params = _params(rng, width, FEATURES, OUTPUTS)
    rows = int(rng.integers(*ROWS))
    arrays = alive.nbytes()
    with observe.phase("replicate"):
        copies = submission.replicate(params, devices)
    observe.value(facts.copies(run), copies)
    observe.fact(facts.slices(run), _slices(copies))
    del copies
    observe.fact(facts.left(run), alive.left_beside((), arrays))
    copies = _copies(params, devices)
    observe.value(facts.start(run), copies)
    step, before = submission.make_step(devices), copies
    for number in range(1, steps + 1):
        drawn = _rows(rng, len(devices), rows, params)
        batch = [submission.split(x, devices) for x in drawn]
        with from_last("params", before, copies, PROMISE), observe.phase(facts.STEPS):
            made = step(copies, *batch)
        before, (copies, losses) = copies, unpack(made, 2, PROMISE)
        structure: Any = jax.tree.structure(before)
        if structure != jax.tree.structure(copies):
            raise Misused(PROMISE, "the first value that it returned is not a tree like `params`")
        observe.value(facts.params(run, number), copies)
        observe.value(facts.losses(run, number), losses)
        if number == 1 and observe.reference:
            known = np.full(len(devices), _loss(copies, *drawn), np.float32)
            observe.value(f"{facts.losses(run, 1)}, {facts.NEW_PARAMS}", known)
            observe.value(facts.batch(run), drawn)


def _loss(copies: Any, inputs: Any, targets: Any) -> float:
    """The loss of all rows, which a known mistake returns with the params after the step."""
    params = {name: np.asarray(each)[0] for name, each in copies.items()}
    hidden = np.tanh(inputs @ params["w1"] + params["b1"])
    return float(np.mean((hidden @ params["w2"] - targets) ** 2))


def _export(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Export the step for one row and for many, and for twice the params, on all devices."""
    devices = jax.devices()
    step = submission.make_step(devices)
    (few, many), outputs = rng.choice(list(PER_UNIT), 2, replace=False), rng.permutation([1, 2])
    drawn = (
        (FEW_ROWS, 1, few, 1, outputs[0]),
        (MANY_ROWS, int(rng.integers(*MANY)), many, 1, outputs[1]),
        (TWICE, 1, few, 2, outputs[0]),
    )
    for name, rows, width, times, columns in drawn:
        features = PER_UNIT[int(width)] - 1 - int(columns)
        params = _params(rng, times * int(width), features, int(columns))
        far = FAR if name == MANY_ROWS else 1
        batch = [submission.split(x, devices) for x in _rows(rng, len(devices), rows, params, far)]
        observe.program(name, step, jax.tree.map(np.asarray, _copies(params, devices)), *batch)


def _rows(rng: Any, devices: int, rows: int, params: Any, far: int = 1) -> tuple[Any, Any]:
    """Inputs and targets of (devices * rows) rows, NumPy float32, as the params take them.

    Each device's rows lie around a middle of their own. The targets are at most `far` away from 0.
    """
    features, outputs = len(params["w1"]), params["w2"].shape[1]
    middle = np.repeat(np.arange(devices), rows)[:, None]
    inputs = (rng.standard_normal((devices * rows, features)) + middle / 4).astype(np.float32)
    return inputs, (far * np.tanh(inputs[:, :outputs] + middle)).astype(np.float32)


def _copies(params: Any, devices: list[Any]) -> Any:
    """What `replicate` is to return."""
    mesh = jax.sharding.Mesh(np.array(devices), ("device",))
    stacked = {name: np.stack([x] * len(devices)) for name, x in params.items()}
    return jax.device_put(stacked, jax.NamedSharding(mesh, jax.P("device")))


def _slices(copies: Any) -> list[list[int]]:
    """For each array, the ids of its devices in the order of its slices.

    The list is empty for an array that has not exactly one slice on each device.
    """
    found = []
    for leaf in jax.tree.leaves(copies):
        if isinstance(leaf, jax.Array) and leaf.ndim:
            shards = sorted(leaf.addressable_shards, key=lambda shard: shard.index[0].start or 0)
            one_each = len({shard.index[0].start for shard in shards}) == leaf.shape[0]
            found.append([shard.device.id for shard in shards] if one_each else [])
    return found
