"""ex21_pmap_step: pmap's copies of the params, and what keeps them equal.

The devices come in an order of their own. `make_step` is not the learner's to edit, so the
step is pmap's.
"""

from types import ModuleType
from typing import Any

from grader.arrays import load
from grader.checking import Exercise, Failure, Misused, Observe, Result, unpack
from grader.evidence import (
    culprits,
    definition,
    differing_leaf,
    events,
    probe_gap,
    seen,
    wanted,
)
from grader.record import Leaf, Record
from grader.words import plural, where

PROMISE = "`update` returns (params, loss)"
STEPS = 3
LOSSES = "losses of step 1"
"""Later ones depend on the steps."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Place params once, and take three steps on fresh rows."""
    import jax
    import numpy as np

    found = list(rng.permutation(np.array(jax.devices())))
    devices = found[:-2] if len(found) > 3 else found  # what counts is what `devices` holds
    width, rows = int(rng.integers(4, 9)), len(devices) * int(rng.integers(2, 5))
    shapes = {"w1": (5, width), "b1": (width,), "w2": (width, 2)}
    params = {k: (rng.standard_normal(s) / 2).astype(np.float32) for k, s in shapes.items()}
    observe.fact("devices", len(devices))
    observe.fact("order", [device.id for device in devices])
    with observe.phase("replicate"):
        copies = submission.replicate(params, devices)
    observe.value("copies", copies)
    observe.fact("slices", _slices(copies))
    copies = _copies(params, devices)  # so that `update` is judged apart from `replicate`
    observe.value("start", copies)
    step = submission.make_step(devices)
    for number in range(1, STEPS + 1):
        # Rows of one device are like each other, and unlike those of the next.
        middle = np.repeat(np.arange(len(devices)), rows // len(devices))[:, None]
        inputs = (rng.standard_normal((rows, 5)) + middle / 4).astype(np.float32)
        targets = np.tanh(inputs[:, :2] + middle).astype(np.float32)
        batch = [submission.split(x, devices) for x in (inputs, targets)]
        like: Any = jax.tree.structure(copies)
        copies, losses = unpack(step(copies, *batch), 2, PROMISE)
        if jax.tree.structure(copies) != like:
            raise Misused(PROMISE, "the first of the two that it returned is no tree like `params`")
        observe.value(f"params after step {number}", copies)
        observe.value(f"losses of step {number}", losses)


def _copies(params: Any, devices: list[Any]) -> Any:
    """What `replicate` is to return."""
    import jax
    import numpy as np

    mesh = jax.sharding.Mesh(np.array(devices), ("device",))
    stacked = {name: np.stack([x] * len(devices)) for name, x in params.items()}
    return jax.device_put(stacked, jax.NamedSharding(mesh, jax.P("device")))


def _slices(copies: Any) -> list[list[int]]:
    """For each array with one slice on each device, those devices in order of the slices."""
    import jax

    found = []
    for leaf in jax.tree.leaves(copies):
        if isinstance(leaf, jax.Array) and leaf.ndim:
            shards = sorted(leaf.addressable_shards, key=lambda shard: shard.index[0].start or 0)
            one_each = len({shard.index[0].start for shard in shards}) == leaf.shape[0]
            found.append([shard.device.id for shard in shards] if one_each else [])
    return found


EXERCISE = Exercise(
    title="A step in pmap",
    lesson="lessons/13-pmap-and-after",
    anchor="what-pmap-does",
    edits=("replicate", "update"),
    drive=drive,
    devices=8,
    fewest_gpus=2,
    hints=(
        "pmap keeps nothing equal by itself: it runs one program on each device, with that "
        "device's slice of every argument.",
        'Inside `update`, "batch" is the name of all devices: what is asked for by that name is '
        "exchanged between them.",
        'jax.lax.pmean((loss, grads), "batch") before the params change; and jax.device_put with '
        "a sharding that splits the first axis of the stacked params.",
    ),
)


def _devices(record: Record) -> int:
    devices: int = wanted(record).facts["devices"]
    return devices


@EXERCISE.check(
    ground="observed",
    hints=(
        "Slice i must lie on device i, and nowhere else. Where do the slices lie now?",
        "np.stack leaves all slices in one place. A sharding that names no axis, P(), puts all of "
        "them on every device.",
        'A mesh of `devices` in their order, whose only axis is called "name", and P("name"): the '
        "first axis of each array is split, one slice a device.",
    ),
    anchor="a-copy-for-each-device",
)
def one_copy_on_each_device(record: Record) -> Result:
    """`replicate` gives each device one copy of the params, its own."""
    count = _devices(record)
    for leaf, want in zip(*_both(record, "copies"), strict=False):
        if leaf.shape != want.shape or _lies(leaf, count) != _lies(want, count):
            expected = f"`params{want.path}` is {want.shape}, {_lies(want, count)}"
            observed = f"{leaf.shape}, {_lies(leaf, count)}"
            return Failure(expected, observed, definition(record, "replicate"))
    if failure := differing_leaf(record, "copies", rtol=0, atol=0):
        return Failure(failure.expected, failure.observed, definition(record, "replicate"))
    order = wanted(record).facts["order"]
    found = next((found for found in seen(record).facts["slices"] if found != order), order)
    if found != order:
        expected = f"slices 0, 1, ... lie on the devices {order}, as the list `devices` has them"
        return Failure(expected, f"they lie on {found}", definition(record, "replicate"))
    return None


@EXERCISE.check(
    ground="observed",
    after=("one_copy_on_each_device",),
    hints=(
        "jax.numpy makes its arrays on the default device. Is there room for all copies on it?",
        "np.stack stays on the host. One device_put with the right sharding sends each slice to "
        "its device.",
    ),
    anchor="a-copy-for-each-device",
)
def straight_to_its_device(record: Record) -> Result:
    """Each copy goes straight from the host to its device."""
    found = list(events(seen(record), "d2d", phase="replicate"))
    if found:
        observed = f"{plural(sum(e.count for e in found), 'copy')} from device to device"
        expected = "copies go from the host to their devices"
        return Failure(expected, observed, culprits(record, found))
    return probe_gap(seen(record), "transfers")


def _both(record: Record, name: str) -> tuple[list[Leaf], list[Leaf]]:
    return seen(record).values[name], wanted(record).values[name]


def _lies(leaf: Leaf, count: int) -> str:
    """Where an array lies, in words; the same words for any set of devices."""
    if leaf.kind != "jax":
        return where(leaf)
    if len(leaf.devices) != count:
        return f"all on {where(leaf)}"
    if leaf.replicated and count > 1:
        return f"whole on each of {count} devices"
    return f"in slices {leaf.shard_shape} on {plural(count, 'device')}"


@EXERCISE.check(
    ground="observed",
    hints=(
        "What one device subtracts must be what all the others subtract. Is the gradient?",
        "A mean of the loss does not make the gradient a mean: jax.grad inside pmap gives the "
        "gradient of this device's own loss. Exchange the gradients.",
    ),
    anchor="a-copy-for-each-device",
)
def copies_stay_equal(record: Record) -> Result:
    """After each step all copies of the params are equal, to the last bit."""
    import numpy as np

    for number in range(1, STEPS + 1):
        for leaf in seen(record).values[f"params after step {number}"]:
            values = _values(leaf)
            if leaf.shape[:1] != (_devices(record),) or values is None:
                continue  # `steps_along_the_mean` compares shapes
            apart = np.abs(values - values[:1]).reshape(len(values), -1).max(axis=1)
            if apart.any():
                many = int((apart > 0).sum())
                observed = f"after step {number}, {many} of {len(values)} copies differ from the "
                observed += f"first, by up to {float(apart.max()):.3g}{_exchanged(record)}"
                expected = f"all copies of `params{leaf.path}` are equal"
                return Failure(expected, observed, definition(record, "update"))
    return None


def _exchanged(record: Record) -> str:
    """That the loss is a mean, where what changes the params is none."""
    if differing_leaf(record, LOSSES, rtol=1e-3, atol=1e-5):
        return ""
    return ": the loss is the mean over all devices, the gradient is not"


def _values(leaf: Leaf) -> Any:
    """The values of a float array, or None."""
    try:
        values = load(leaf.data or b"")
    except ValueError:
        return None
    return values if values.dtype.kind == "f" and values.shape == leaf.shape else None


@EXERCISE.check(
    ground="observed",
    after=("copies_stay_equal",),
    hints=(
        "A sum over the devices is as many times longer as there are devices.",
        "jax.lax.pmean is psum divided by the number of devices.",
    ),
    anchor="a-copy-for-each-device",
)
def steps_along_the_mean(record: Record) -> Result:
    """Each step is along the mean gradient over the rows of all devices."""
    for number in range(1, STEPS + 1):
        name = f"params after step {number}"
        if failure := differing_leaf(record, name, rtol=1e-3, atol=1e-5):
            observed = failure.observed + _length(record)
            return Failure(failure.expected, observed, definition(record, "update"))
    return None


def _length(record: Record) -> str:
    """How much longer the first step is than the reference's, if it has the same direction."""
    import numpy as np

    start, after = _both(record, "start"), _both(record, "params after step 1")
    steps = []
    for before, now in zip(start, after, strict=True):
        pairs = [(_values(a), _values(b)) for a, b in zip(before, now, strict=False)]
        if any(a is None or b is None or a.shape != b.shape for a, b in pairs):
            return ""
        steps.append(np.concatenate([(b - a).ravel() for a, b in pairs]))
    mine, theirs = steps
    if mine.shape != theirs.shape:
        return ""
    ratio = float(mine @ theirs / (theirs @ theirs))
    same = np.allclose(mine, ratio * theirs, rtol=1e-2, atol=1e-2 * float(abs(theirs).max()))
    return f"; the first step is {ratio:.4g} times as long as the mean's" if same else ""


@EXERCISE.check(
    ground="observed",
    hints=("The loss of one device's rows is not the loss. pmean takes trees: (loss, grads).",),
)
def losses_are_the_mean(record: Record) -> Result:
    """Each device returns the same loss, the mean over all rows."""
    import numpy as np

    failure = differing_leaf(record, LOSSES, rtol=1e-3, atol=1e-5)
    if failure is None:
        return None
    values = [_values(leaf) for leaf in seen(record).values[LOSSES]]
    own = len(values) == 1 and values[0] is not None and np.ptp(values[0]) > 0
    observed = failure.observed + (", each device its own" if own else "")
    return Failure(failure.expected, observed, definition(record, "update"))
