"""Drives ex19_shard_batch: splits seven batches over meshes, and takes a loss for six.

There are three meshes: one axis over all devices, two axes, of which "data" is the second, and
three, of which it is the first. It is longer than the others together once, and shorter once. So
neither the number of devices nor the first or the longest axis is right for all, and the rows are
drawn so that each of them asks for another number of added rows. One batch needs none, one has a
single row, and one of those on several axes has fewer rows than parts. A second batch of the same
shape follows on one mesh, in the same arrays, which lie column by column and are filled with other
numbers, and then comes the one with a single row. The last batch is split over some of the devices,
in one axis, or copied to each of them, where "data" has the length 1 beside another axis.

Drawn are the rows and columns of the batches (one of them, which is drawn, has 30 to 59 rows and
more in each part), the order of the devices in each mesh, the names of its other axes, and all
numbers. Inputs have more columns than targets, so that neither pass for the other; in the batch on
two axes they have as many, so that no table of shapes tells them apart, and nobody can write into
them. In a batch of three rows or more, all numbers of one row are 0; in that on three axes, one
target is very large. Where the file names numbers, the batch of many rows has more than each of
them, up to 2,000, the full batch more columns, up to MOST_COLUMNS, that target is larger, up to
MOST_FAR, so are two numbers of the second batch of a shape, and the last batch has now and then as
many rows as a number says.

`mean_loss` gets batches that the drive itself has split, so that it is judged apart from
`shard_batch`. Their added rows hold drawn numbers, most of them large, and count unless the mask
takes them out. The weights lie on each device of the mesh; for one batch, which is drawn, they are
NumPy's. The loss of two batches is taken under jit, too. Of one batch, it is taken five times more:
where the mask marks another number of rows, and with a NaN or an infinite number among the targets
or the inputs.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import ModuleType
from typing import Any

import jax
import msgspec
import numpy as np

from grader.checks.ex19_shard_batch.facts import (
    AGAIN,
    ARRAYS,
    BATCHES,
    MARKED,
    MISSING,
    REPEATED,
    SQUARE,
    UNDER_JIT,
    Batch,
    changed_of,
    constants_of,
    told_of,
    uneven_of,
)
from grader.judging.words import plural
from grader.probes import dumped
from grader.probes.observe import Observe, unpack
from grader.stages.drawn import beside, beyond, far, one_of

UNEVEN = re.compile(r"array axis 0 is partitioned .* shape: \(([\d, ]+)\)", re.DOTALL)
"""What JAX says of rows that it cannot split, with the shape of their array."""
OTHERS = ("model", "tensor", "pipe", "expert", "x", "rows", "batch")
"""How the other axes of a mesh may be called."""
FAR = 1e4
"""The target that is far from all others."""
MOST_ROWS, MOST_COLUMNS, MOST_FAR = 2000, 256, 1e15
"""Up to where rows, columns and that target reach the numbers that the file names."""
ADDED = (0, 6)
"""The decimal logarithm of how large the numbers of added rows are, beside the own ones."""
PROMISE = "`shard_batch` returns (inputs, targets, mask)"


def _batches(devices: int, rng: Any, features: int) -> list[Batch]:
    """The batches, whose inputs have so many features, in the order of their names."""
    half = devices // 2 or 1
    second, first = (int(n) for n in rng.permutation([half, devices // half]))
    few, long = rng.integers(1, 10, 2), int(rng.integers(60, 250))
    for each in (devices, devices * features):
        long = beyond(rng, long, MOST_ROWS // devices - 1, each=each)
    times = [int(n) for n in rng.permutation([*few, long])]
    times.insert(2 if second > first else 3, 0)  # fewer rows than parts, where there are more parts
    some = int(rng.integers(1, max(devices, 2)))
    one, other = (int(rng.choice(_telling(n, devices // n))) for n in (second, first))
    two, apart = min(2, devices), rng.spawn(1)[0]
    fewer = int(apart.integers(two, max(two, devices - 1) + 1))
    own = one_of(rng, int(apart.integers(1, 8 * fewer)), range(1, MOST_ROWS + 1))
    fewer = fewer if apart.integers(4) else 1
    alone = fewer if apart.integers(2) else 1
    return [
        Batch(parts=devices, rows=times[0] * devices, devices=devices),
        Batch(parts=devices, rows=times[1] * devices + some, devices=devices),
        Batch(parts=devices, rows=1, devices=devices),
        Batch(parts=second, rows=times[2] * devices + one, devices=devices),
        Batch(parts=first, rows=times[3] * devices + other, devices=devices, first=True),
        Batch(parts=alone, rows=own, devices=fewer),
    ]


def _telling(parts: int, others: int) -> list[int]:
    """How many rows one part may have, so that `parts` lack others than `others` would.

    All of them where none tells: on few devices.
    """
    ragged = range(1, max(parts, 2))
    return [n for n in ragged if -n % parts != -n % others] or [*ragged]


def _mesh(devices: Any, batch: Batch, rng: Any) -> Any:
    """A mesh whose axis "data" has as many devices as the batch has parts.

    Another axis has the others, if there are any, or two after it.
    """
    devices = rng.permutation(devices)[: batch.devices]
    if batch.parts == devices.size:
        return jax.sharding.Mesh(devices, ("data",))
    rest = devices.size // batch.parts
    one, two = map(str, rng.choice(OTHERS, 2, replace=False))
    data = {"data": batch.parts}
    some = 2 if rest > 2 and rest % 2 == 0 else rest
    axes = data | {one: some, two: rest // some} if batch.first else {one: rest} | data
    return jax.sharding.Mesh(devices.reshape(*axes.values()), (*axes,))


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Let the submission split each batch, and take the loss of one that the drive has split."""
    devices = np.array(jax.devices()[: len(jax.devices()) // 2 * 2 or 1])
    features, width = map(int, rng.integers((6, 2), (11, 6)))
    mesh: Any = None
    batches = _batches(devices.size, rng, features)
    of_numpy = str(beside(rng).choice(BATCHES))
    usual, wide = features, beyond(rng, features, MOST_COLUMNS)
    apart, more = rng.spawn(2)  # a `shard_batch` that raises draws nothing from the first one
    for name, batch in zip(BATCHES, batches, strict=True):
        observe.fact(name, msgspec.to_builtins(batch))
        rows, mesh = batch.rows, mesh if name == BATCHES[2] else _mesh(devices, batch, rng)
        features = wide if name == BATCHES[0] else usual
        inputs = rng.normal(3, 1, (batch.full, features)).astype(np.float32)
        columns = 1 if name == BATCHES[-1] else width
        targets = rng.normal(3, 1, (batch.full, columns)).astype(np.float32)
        if rows >= 3:
            blank = int(rng.integers(rows))
            inputs[blank] = targets[blank] = 0
        if batch.first:
            targets[int(rng.integers(rows)), 0] = max(FAR, far(rng, MOST_FAR))
        inputs = inputs[:, :columns].copy() if name == SQUARE else inputs
        order = "F" if name == REPEATED else "C"
        given = tuple(array[:rows].copy(order) for array in (inputs, targets))
        for array in given:
            array.flags.writeable = name != SQUARE
        with _noting_what_is_uneven(observe, name):
            _split(submission, observe, name, mesh, given)
            if name == REPEATED:
                observe.fact(AGAIN, msgspec.to_builtins(batch))
                others = _with_missing_numbers(apart, batch, inputs[:rows] + 1, targets[:rows] - 1)
                given = tuple(map(_filled, given, others))
                _split(submission, observe, AGAIN, mesh, given)
        weights = rng.normal(size=(features, columns)).astype(np.float32)[: inputs.shape[1]]
        for array in (inputs, targets):
            array[rows:] *= 10 ** rng.uniform(*ADDED)
        mask = (np.arange(batch.full) < rows).astype(np.float32)
        if observe.reference:
            observe.fact(f"slips of {name}", _slips(batch.parts, weights, inputs, targets, mask))
        placed = _placed(mesh, weights, inputs, targets, mask)
        placed = (weights, *placed[1:]) if name == of_numpy else placed
        observe.value(f"loss of {name}", submission.mean_loss(*placed))
        if name in UNDER_JIT:
            with suppress(Exception):  # nobody asks for a function that can be traced
                observe.value(UNDER_JIT[name], jax.jit(submission.mean_loss)(*placed))
        if name == REPEATED:
            _more_losses(submission, observe, more, batch, mesh, weights, inputs, targets, mask)


def _more_losses(
    submission: ModuleType,
    observe: Observe,
    rng: Any,
    batch: Batch,
    mesh: Any,
    weights: Any,
    *arrays: Any,
) -> None:
    """Take the loss where other rows count, and where a number is missing, or infinite."""
    near = range(batch.full - batch.parts + 1, batch.full + 1)
    others = [rows for rows in near if rows not in (0, batch.rows)]
    rows = int(rng.choice(others or range(1, batch.rows)))

    def loss(name: str, key: str, change: Callable[[Any], Any]) -> None:
        """The loss where the numbers of one array are what `change` makes of them."""
        changed = dict(zip(ARRAYS, arrays, strict=True))
        changed[key] = change(changed[key].copy())
        observe.value(name, submission.mean_loss(*_placed(mesh, weights, *changed.values())))

    loss(MARKED, "mask", lambda mask: (np.arange(len(mask)) < rows).astype(mask.dtype))
    for (key, number), name in MISSING.items():
        loss(name, key, partial(_losing, int(rng.integers(batch.rows)), number))


def _losing(row: int, number: float, array: Any) -> Any:
    """The array, with another number in a row."""
    array[row, 0] = number
    return array


@contextmanager
def _noting_what_is_uneven(observe: Observe, name: str) -> Iterator[None]:
    """A block in which JAX may refuse to split an array: its shape is kept for the batch."""
    try:
        yield
    except ValueError as error:
        if not (uneven := UNEVEN.search(str(error))):
            raise
        observe.fact(uneven_of(name), [int(size) for size in uneven[1].split(",") if size])


def _placed(mesh: Any, weights: Any, *batch: Any) -> tuple[Any, ...]:
    """The arguments of a loss: the weights on each device of the mesh, and the batch split."""
    whole, split = (jax.NamedSharding(mesh, spec) for spec in (jax.P(), jax.P("data")))
    return jax.device_put(weights, whole), *jax.device_put(batch, split)


def _with_missing_numbers(rng: Any, batch: Batch, *arrays: Any) -> Iterator[Any]:
    """Own rows, of which one holds a NaN and an infinite number.

    It is a row that is no model for an added one: neither the last nor among the first. Another
    number is further from 0 than those that the file names.
    """
    if large := far(rng, float(np.finfo(np.float32).max)):
        for array in arrays:
            array.flat[int(rng.integers(array.size))] = rng.choice((-1, 1)) * large
    row = int(rng.integers(batch.full - batch.rows, batch.rows - 1))
    for number, array in zip((np.nan, np.inf), arrays, strict=True):
        array[row, int(rng.integers(array.shape[1]))] = number
        yield array


def _filled(array: Any, numbers: Any) -> Any:
    """The array, filled with other numbers, or a new one if it was given another shape."""
    if array.shape != numbers.shape:
        return numbers
    array[...] = numbers
    return array


def _split(
    submission: ModuleType, observe: Observe, name: str, mesh: Any, given: tuple[Any, ...]
) -> None:
    """Let the submission split the batch `name`."""
    inputs, targets = (array.copy() for array in given)
    with dumped.programs() as programs, observe.phase(name):
        made = unpack(submission.shard_batch(mesh, *given), 3, PROMISE)
        observe.value(name, dict(zip(ARRAYS, made, strict=True)))
    rows = {number for array in (inputs, targets) for number in array.ravel().tolist() if number}
    told = {number for program in programs for number in dumped.numbers(program)}
    observe.fact(told_of(name), len(rows & told))
    constants = (nbytes for program in programs for nbytes in dumped.constants(program))
    observe.fact(constants_of(name), sum(constants))
    pairs = zip(given, (inputs, targets), strict=True)
    same = (np.array_equal(*pair, equal_nan=True) for pair in pairs)
    observe.fact(
        changed_of(name), [key for key, kept in zip(ARRAYS, same, strict=False) if not kept]
    )


def _slips(parts: int, weights: Any, inputs: Any, targets: Any, mask: Any) -> dict[str, float]:
    """The loss that each well-known mistake gives, by the mistake in words."""
    (full, width), columns, own = targets.shape, inputs.shape[1], int(mask.sum())
    differences = inputs @ weights - targets
    errors = (differences**2).mean(axis=1)
    total, added = (errors * mask).sum(), plural(full - own, "added row")
    sums, counts = (x.reshape(parts, -1).sum(axis=1) for x in (errors * mask, mask))
    means = sums / np.maximum(counts, 1)
    of_parts = f"this is a mean of the means of the {parts} parts"
    slips = {
        f"the errors of the {added} are in the mean": errors.mean(),
        f"the errors of the {added} are in the sum": errors.sum() / own,
        f"the sum is divided by {full}, as if the {added} counted": total / full,
        f"the sum is divided by {plural(own, 'row')}, not by their {own * width} values": (
            total * width / own
        ),
        f"the sum is divided by the {own * columns} values of the inputs, not by the "
        f"{own * width} of the targets": total * width / columns / own,
        "this is a sum over all values, not a mean": total * width,
        "this is a sum over the rows, not a mean": total,
        f"{of_parts}, which all count alike": means.mean(),
        f"{of_parts} that have own rows": means[counts > 0].mean(),
        "this is the mean of the absolute errors, not of the squared ones": (
            (abs(differences).mean(axis=1) * mask).sum() / own
        ),
        "this is the mean of the errors themselves, not of the squared ones": (
            (differences.mean(axis=1) * mask).sum() / own
        ),
        "the mask takes out the predictions of the added rows, and their targets stay": (
            ((inputs @ weights * mask[:, None] - targets) ** 2).sum() / own / width
        ),
        "the mask is an index, which takes row 0 for each 0, and row 1 for each 1": (
            errors[mask.astype(int)].mean()
        ),
        "the errors of a row are averaged, and that mean is squared": (
            (differences.mean(axis=1) ** 2 * mask).sum() / own
        ),
        "this is the square root of the mean of the squared errors": np.sqrt(total / own),
        "this is half of the mean of the squared errors": total / own / 2,
        "this is twice the mean of the squared errors": total / own * 2,
    }
    return {text: float(loss) for text, loss in slips.items()}
