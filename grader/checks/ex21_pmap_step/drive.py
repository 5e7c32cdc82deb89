"""Drives ex21_pmap_step: places the params and takes a few steps on fresh rows, four times.

Drawn: for each run the devices and their order (all, and a number between, in any order, and then
one of them), so that neither the order nor the length of jax.devices() is the right one; the width
of the network, the rows of one device, and the steps (2 to 5). The third run has the devices and
the width of an earlier one, of several devices, and other params. Some params are 0, as biases are
at first. Those that `replicate` gets have 0 to 2 dimensions, and one has 3 to 5; each array of a
run has another dtype, but for one that is like that of 3 to 5 dimensions, and each dtype comes once
at least; one array more has a dtype of 64 bits. Some of their integers are the least and the
largest of their dtype, some of their floats are NaN, infinite or -0.0. One matrix of each run lies
column by column in memory, and another one and the array of 3 to 5 dimensions are parts of larger
ones whose axes lie in another order. Before one of these calls, which is drawn, `replicate` gets
the same devices in another order. In one run of several devices gradients are small, and in the
last step of each they are large. One run takes three steps more: in one the targets of a row are
NaN, in one its inputs, and in one targets are so far away that the loss is infinite. The rows of
one device are like each other and unlike those of the next, so that a gradient of one device's rows
is far from the mean; some rows are 0. Three programs of the step are compiled. Two are for one row
on each device and for many, which are drawn. Their networks have as many params, and rows of
another length: what the devices exchange is the same for both if no row leaves its device. The
third has one row on each, and twice as many params: what is exchanged beside the gradient, whatever
its size, shows. How the devices of each run exchange something, and how many bytes, is kept, too,
and is to be no other way, and no more for each param, than in these programs.

Where the file names numbers, the first run has a wider network than each of these that is below
MOST_WIDTH, the second one more rows on a device, and in the third one `replicate` gets more arrays,
and a large one. The targets of the last steps are further away.

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
from grader.probes import alive, exchanges
from grader.probes.observe import Misused, Observe, from_last, left_alone, unpack
from grader.records.record import Collective
from grader.stages.drawn import (
    OVERFLOWING,
    beside,
    beyond,
    far,
    some_blank_rows,
    some_odd,
    some_zeros,
    with_gaps,
)

PROMISE = "`update` returns (params, loss)"
FEATURES, OUTPUTS = 5, 2
RUNS_OF_SEVERAL = 3
"""The first runs, which are those of several devices."""
WIDTHS, ROWS, STEPS = (4, 12), (1, 17), (1, 5)
"""Of the steps, there is one more in each run."""
MANY = (200, 400)
"""How many rows a device has in the second program: from, and below. In the first, it has one."""
FAR = 64
"""How far the targets of the programs are from 0: some gradients are larger than 1."""
DTYPES = (
    *("float32", "float16", "bfloat16", "int32", "int16", "int8", "uint32", "uint16", "uint8"),
    *("bool", "complex64"),
)
"""The dtypes of what `replicate` gets, and its copies have; steps are taken in float32."""
OF_64_BITS = ("int64", "uint64", "float64", "complex128")
"""Those of one more array in each run, of which JAX makes dtypes with half of the bits."""
SMALL, FARTHER = 1e-5, 4096
"""How large the targets of one run are, with the weights that lead to them, and how far those of
the last step of each run: some gradients are smaller than 1e-5, and some larger than 100."""
MOST_WIDTH, MOST_ROWS, MOST_ARRAYS, MOST_NUMBERS = 512, 1000, 100, 50_000
"""Up to where runs reach the numbers that the file names."""
MOST_FAR, BESIDE = 1e9, 1e3
"""Up to where targets go beyond these, and how many times as far: gradients are smaller."""
MANY_ROWS_RUN, MANY_ARRAYS = 1, 2
"""Which run has the most rows, and in which one `replicate` gets the most arrays."""
PER_UNIT = {10: 12, 12: 10, 15: 8, 20: 6}
"""Widths of networks with 120 params, and how many params a hidden unit then has."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Take steps with pmap on several lists of devices, and export the step."""
    most = len(jax.devices())
    counts = [most, int(rng.choice(range(2, most) or [most]))]
    sides = [
        (list(rng.permutation(np.array(jax.devices()))[: int(count)]), int(rng.integers(*WIDTHS)))
        for count in rng.permutation(counts)
    ]
    sides[0] = sides[0][0], beyond(rng, sides[0][1], MOST_WIDTH, each=FEATURES)
    sides.append(sides[int(rng.integers(len(sides)))])
    alone = rng.permutation(np.array(jax.devices()))[:1]
    sides.append((list(alone), int(rng.integers(*WIDTHS))))
    scales, runs = [*rng.permutation([SMALL, 1, 1]), 1], []
    dtypes = [*rng.permutation(DTYPES).tolist(), str(rng.choice(DTYPES))]
    apart = rng.spawn(1)[0]
    lost, turned = map(int, apart.integers(RUNS_OF_SEVERAL, size=2))
    farther = max(FARTHER, BESIDE * far(rng, MOST_FAR))
    # A GPU would otherwise round the products, and so what is compared.
    with jax.default_matmul_precision("highest"):
        for number, ((devices, width), scale) in enumerate(zip(sides, scales, strict=True)):
            targets = [float(scale)] * int(rng.integers(*STEPS)) + [farther]
            runs.append(Run([device.id for device in devices], len(targets)))
            params = _params(rng, width, FEATURES, OUTPUTS)
            given = _given(apart, params, dtypes[3 * number : 3 * number + 3])
            given |= _more(apart, len(given)) if number == MANY_ARRAYS else {}
            if number == turned:
                with observe.unwatched():
                    submission.replicate(given, np.roll(devices, 1).tolist())
            _replicate(submission, observe, number, devices, given)
            params["w2"] *= np.float32(scale)
            step, copies, batch = _steps(submission, observe, rng, number, devices, params, targets)
            if number == lost:
                observe.fact(facts.ODD_RUN, number)
                _odd_steps(observe, apart, step, copies, batch)
        observe.fact(RUNS, msgspec.to_builtins(runs))
        _export(submission, observe, rng)


def _params(rng: Any, width: int, features: int, outputs: int) -> dict[str, Any]:
    """NumPy float32 params of a network with so many hidden units."""
    shapes = {"w1": (features, width), "b1": (width,), "w2": (width, outputs)}
    drawn = {k: (rng.standard_normal(s) / 2).astype(np.float32) for k, s in shapes.items()}
    return {name: some_zeros(rng, array) for name, array in drawn.items()}


def _given(rng: Any, params: dict[str, Any], dtypes: list[str]) -> dict[str, Any]:
    """The arrays of `params`, one of more dimensions and one of none, each of another dtype."""
    kernel = rng.standard_normal(rng.integers(1, 4, int(rng.integers(3, 6))).tolist())
    every = params | {"kernel": kernel, "scale": rng.standard_normal(())}
    more = rng.permutation([one for one in DTYPES if one not in dtypes])[:2].tolist()
    kinds = {name: jax.numpy.dtype(one) for name, one in zip(every, [*dtypes, *more], strict=True)}
    given = {name: _of_dtype(x, kinds[name]) for name, x in every.items()}
    # "b1" is compared first, and more can be said of finite numbers.
    odd = (x for name, x in given.items() if name != "b1" or x.dtype.kind in "iu")
    some_odd(rng.spawn(1)[0], *odd)
    # One more of the same shape and dtype, which no place that is kept for both can tell apart.
    twin = _of_dtype(beside(rng).standard_normal(kernel.shape), kinds["kernel"])
    columns = str(rng.choice(["w1", "w2"]))
    given |= {"twin": twin, columns: np.asfortranarray(given[columns])}
    apart = beside(rng)
    other = "w2" if columns == "w1" else "w1"
    given[other] = with_gaps(given[other], (1, 0))
    given["kernel"] = with_gaps(given["kernel"], apart.permutation(kernel.ndim).tolist())
    wide = np.dtype(str(apart.choice(OF_64_BITS)))
    return given | {"wide": _of_dtype(apart.standard_normal(3), wide)}


def _more(rng: Any, arrays: int) -> dict[str, Any]:
    """So many arrays that there are more than the file names, and a large one; or none."""
    count = beyond(rng, arrays, MOST_ARRAYS) - arrays
    many = {f"more{index}": rng.standard_normal(2).astype("float32") for index in range(count)}
    size = beyond(rng, 1, MOST_NUMBERS, each=1)
    return many | {"large": rng.standard_normal(size).astype("float32")} if size > 1 else many


def _of_dtype(numbers: Any, dtype: Any) -> Any:
    """A NumPy array of a dtype: of whole and of complex numbers as well."""
    fitting = abs(numbers) if dtype.kind == "u" else numbers
    return np.asarray(9 * fitting * (1 + 1j if dtype.kind == "c" else 1)).astype(dtype)


def _replicate(
    submission: ModuleType, observe: Observe, run: int, devices: list[Any], given: dict[str, Any]
) -> None:
    """Let the submission copy the params, and look at the copies."""
    arrays = alive.nbytes(scalars=True)
    with (
        left_alone("replicate", given),
        observe.phase("replicate"),
        exchanges.programs() as told,
    ):
        copies = submission.replicate(given, devices)
    observe.fact(facts.programs(run), told)
    observe.value(facts.copies(run), copies)
    observe.fact(facts.slices(run), _slices(copies))
    del copies
    observe.fact(facts.left(run), alive.left_beside((), arrays, scalars=True))


def _steps(
    submission: ModuleType,
    observe: Observe,
    rng: Any,
    run: int,
    devices: list[Any],
    params: dict[str, Any],
    targets: list[float],
) -> Any:
    """Take steps on fresh rows; returns the step, the copies before the last one, and its batch.

    `targets` says of each step how far they are at most from 0.
    """
    rows, copies = int(rng.integers(*ROWS)), _copies(params, devices)
    rows = beyond(rng, rows, MOST_ROWS, each=FEATURES) if run == MANY_ROWS_RUN else rows
    observe.value(facts.start(run), copies)
    step, before = submission.make_step(devices), copies
    found: list[Collective] = []
    for number, most in enumerate(targets, 1):
        drawn = _rows(rng, len(devices), rows, params, most)
        batch = [submission.split(x, devices) for x in drawn]
        with (
            from_last("params", before, copies, PROMISE),
            observe.phase(facts.STEPS),
            exchanges.launched() as sent,
        ):
            made = step(copies, *batch)
        found += sent
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
    observe.fact(facts.exchanged(run), msgspec.to_builtins(found))
    return step, before, batch


def _odd_steps(observe: Observe, rng: Any, step: Any, copies: Any, batch: list[Any]) -> None:
    """Take a step with each of `ODD`: with NaN among the rows of one device, and with far targets.

    Each begins with the same params.
    """
    inputs, targets = batch
    row = tuple(map(int, rng.integers(targets.shape[:2])))
    lost = [np.array(array) for array in batch]
    for array in lost:
        array[row] = np.nan
    distant = np.float32(OVERFLOWING / abs(targets).max()) * targets
    odd = (inputs, lost[1]), (lost[0], targets), (inputs, distant)
    for name, given in zip(facts.ODD, odd, strict=True):
        params, losses = unpack(step(copies, *given), 2, PROMISE)
        observe.value(facts.odd_params(name), params)
        observe.value(facts.odd_losses(name), losses)


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
        batch = [submission.split(x, devices) for x in _rows(rng, len(devices), rows, params, FAR)]
        observe.program(name, step, jax.tree.map(np.asarray, _copies(params, devices)), *batch)


def _rows(rng: Any, devices: int, rows: int, params: Any, far: float) -> tuple[Any, Any]:
    """Inputs and targets of (devices * rows) rows, NumPy float32, as the params take them.

    Each device's rows lie around a middle of their own, but for some that are blank. The targets
    are at most `far` away from 0.
    """
    features, outputs = len(params["w1"]), params["w2"].shape[1]
    middle = np.repeat(np.arange(devices), rows)[:, None]
    inputs = (rng.standard_normal((devices * rows, features)) + middle / 4).astype(np.float32)
    targets = (far * np.tanh(inputs[:, :outputs] + middle)).astype(np.float32)
    some_blank_rows(rng, inputs, targets)
    return inputs, targets


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
