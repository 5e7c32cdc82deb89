"""Drives ex21_pmap_step: places the params and takes a few steps on fresh rows, three times.

Drawn: for each run the devices and their order (two of them, all, and a number between, in any
order of runs), so that neither the order nor the length of jax.devices() is the right one; the
width of the network, the rows of one device, and the steps (1 to 4). The rows of one device are
like each other and unlike those of the next, so that a gradient of one device's rows is far from
the mean. Two programs of the step are compiled, for one row on each device and for many, which are
drawn: what the devices exchange is the same for both if no row leaves its device.

`update` starts from copies that the drive has placed, so that it is judged apart from
`replicate`. `make_step` is not the learner's to edit, so the step is pmap's.
"""

from types import ModuleType
from typing import Any

import jax
import msgspec
import numpy as np

from grader.checks.ex21_pmap_step import facts
from grader.checks.ex21_pmap_step.facts import FEW_ROWS, MANY_ROWS, RUNS, Run
from grader.probes.observe import Misused, Observe, from_last, unpack

PROMISE = "`update` returns (params, loss)"
FEATURES = 5
WIDTHS, ROWS, STEPS = (4, 12), (2, 7), (1, 5)
MANY = (12, 60)
"""How many rows a device has in the second program: from, and below. In the first, it has one."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Take steps with pmap on several lists of devices, and export the step."""
    most = len(jax.devices())
    counts = [min(2, most), most, int(rng.integers(min(2, most), most + 1))]
    runs = []
    for number, count in enumerate(rng.permutation(counts)):
        devices = list(rng.permutation(np.array(jax.devices()))[: int(count)])
        runs.append(Run([device.id for device in devices], int(rng.integers(*STEPS))))
        _run(submission, observe, rng, number, devices, runs[-1].steps)
    observe.fact(RUNS, msgspec.to_builtins(runs))
    _export(submission, observe, rng)


def _params(rng: Any) -> dict[str, Any]:
    """NumPy float32 params of a network of a drawn width."""
    width = int(rng.integers(*WIDTHS))
    shapes = {"w1": (FEATURES, width), "b1": (width,), "w2": (width, 2)}
    return {k: (rng.standard_normal(s) / 2).astype(np.float32) for k, s in shapes.items()}


def _run(
    submission: ModuleType, observe: Observe, rng: Any, run: int, devices: list[Any], steps: int
) -> None:
    """Place params once, and take steps."""
    params, rows = _params(rng), int(rng.integers(*ROWS))
    with observe.phase("replicate"):
        copies = submission.replicate(params, devices)
    observe.value(facts.copies(run), copies)
    observe.fact(facts.slices(run), _slices(copies))
    copies = _copies(params, devices)
    observe.value(facts.start(run), copies)
    step, before = submission.make_step(devices), copies
    for number in range(1, steps + 1):
        drawn = _rows(rng, len(devices), rows)
        batch = [submission.split(x, devices) for x in drawn]
        with from_last("params", before, copies, PROMISE):
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


def _loss(copies: Any, inputs: Any, targets: Any) -> float:
    """The loss of all rows, which a known mistake returns with the params after the step."""
    params = {name: np.asarray(each)[0] for name, each in copies.items()}
    hidden = np.tanh(inputs @ params["w1"] + params["b1"])
    return float(np.mean((hidden @ params["w2"] - targets) ** 2))


def _export(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Export the step for one row and for many, on all devices."""
    devices = jax.devices()
    params = _params(rng)
    step = submission.make_step(devices)
    for name, rows in ((FEW_ROWS, 1), (MANY_ROWS, int(rng.integers(*MANY)))):
        batch = [submission.split(x, devices) for x in _rows(rng, len(devices), rows)]
        observe.program(name, step, jax.tree.map(np.asarray, _copies(params, devices)), *batch)


def _rows(rng: Any, devices: int, rows: int) -> tuple[Any, Any]:
    """Inputs (devices * rows, 5) and targets (devices * rows, 2), NumPy float32.

    Each device's rows lie around a middle of their own.
    """
    middle = np.repeat(np.arange(devices), rows)[:, None]
    inputs = (rng.standard_normal((devices * rows, FEATURES)) + middle / 4).astype(np.float32)
    return inputs, np.tanh(inputs[:, :2] + middle).astype(np.float32)


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
