"""ex19_shard_batch: full and ragged batches, split over a mesh, each row counted once.

Two meshes: one axis over all devices, and two axes of which "data" is the last.
"""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from grader.arrays import figures, load
from grader.checking import Exercise, Failure, Observe, Result, unpack
from grader.evidence import culprits, definition, events, probe_gap, seen, wanted
from grader.record import Leaf, Record
from grader.words import plural, where

ROWS = ("inputs", "targets", "mask")
TAKEN_OUT = 1e18
"""Added numbers below this have a square that a factor of 0 takes out: it is finite in float32."""


def _batches(devices: int, rng: Any) -> list[tuple[str, int, int]]:
    """Batches as (name, parts, rows): `parts` is the length of the axis "data"."""
    some = int(rng.integers(1, max(devices, 2)))
    return [
        ("the full batch", devices, 3 * devices),
        ("the ragged batch", devices, 2 * devices + some),
        ("the batch with a single row", devices, 1),
        ("the batch on two axes", devices // 2 or 1, 6 * (devices // 2 or 1) + 1),
    ]


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Shard each batch; take the loss of others, filled up by the drive with rows that count."""
    import jax
    import numpy as np

    devices = np.array(jax.devices()[: len(jax.devices()) // 2 * 2 or 1])
    width = int(rng.integers(2, 6))
    for name, parts, rows in _batches(devices.size, rng):
        mesh = jax.sharding.Mesh(devices, ("data",))
        if parts != devices.size:
            mesh = jax.sharding.Mesh(devices.reshape(-1, parts), ("model", "data"))
        full = rows + -rows % parts
        inputs, targets = (rng.normal(3, 1, (full, size)).astype(np.float32) for size in (6, width))
        observe.fact(name, [parts, rows, devices.size])
        with observe.phase(name):
            promise = "`shard_batch` returns (inputs, targets, mask)"
            batch = unpack(submission.shard_batch(mesh, inputs[:rows], targets[:rows]), 3, promise)
        with observe.unwatched():
            observe.value(name, dict(zip(ROWS, batch, strict=True)))
        weights = rng.normal(size=(6, width)).astype(np.float32)
        filled = inputs, targets, (np.arange(full) < rows).astype(np.float32)
        observe.fact(f"slips of {name}", _slips(weights, *filled))
        loss = submission.mean_loss(
            jax.device_put(weights, jax.NamedSharding(mesh, jax.P())),
            *jax.device_put(filled, jax.NamedSharding(mesh, jax.P("data"))),
        )
        observe.value(f"loss of {name}", loss)


def _slips(weights: Any, inputs: Any, targets: Any, mask: Any) -> dict[str, float]:
    """What well-known mistakes give for the loss, by what they are."""
    (full, width), own = targets.shape, int(mask.sum())
    errors = ((inputs @ weights - targets) ** 2).mean(axis=1)
    total, said = (errors * mask).sum(), plural(full - own, "added row")
    slips = {
        f"the errors of the {said} are in the mean": errors.mean(),
        f"the errors of the {said} are in the sum": errors.sum() / own,
        f"divided by {full}, as if the {said} counted": total / full,
        f"divided by {plural(own, 'row')}, of {width} values each": total * width / own,
        "a sum over all values, not a mean": total * width,
        "a sum over the rows, not a mean": total,
    }
    return {text: float(loss) for text, loss in slips.items()}


EXERCISE = Exercise(
    title="Shard a batch, the ragged one too",
    lesson="lessons/12-meshes-and-shardings",
    anchor="the-ragged-batch",
    edits=("shard_batch", "mean_loss"),
    drive=drive,
    devices=8,
    fewest_gpus=4,
    hints=(
        "Into how many parts does P('data') cut, on a mesh of 8 devices? On one of 4 x 2?",
        "Add rows with NumPy before jax.device_put. mesh.shape['data'] is the number of parts.",
        "-rows % parts rows are missing. A mean over the own rows is the sum of mask * error, "
        "divided by the sum of mask.",
    ),
)


def _cases(record: Record) -> Iterator[tuple[str, int, int, int]]:
    """(name, parts, rows, devices) of each batch, as the reference was given it."""
    for name in wanted(record).facts:
        if name.startswith("the "):
            yield name, *wanted(record).facts[name]


def _full(parts: int, rows: int) -> int:
    """The rows with the fewest that can be split."""
    return rows + -rows % parts


def _failure(record: Record, expected: str, observed: str, name: str) -> Failure:
    return Failure(expected, f"{observed}, for {name}", definition(record, "shard_batch"))


def _leaf(record: Record, name: str, key: str) -> Leaf:
    """An array of a batch; one that is no single leaf becomes what it is."""
    found = [x for x in seen(record).values[name] if x.path.startswith(f"['{key}']")]
    return found[0] if len(found) == 1 else Leaf("", "other", "tree of several values")


@EXERCISE.check(
    ground="observed",
    hints=(
        "P() names no axis: every device gets all rows, and works through all of them.",
        'Only the axis "data" of the mesh splits the rows; another axis may hold copies.',
    ),
    anchor="read-a-sharding",
)
def batch_is_split(record: Record) -> Result:
    """Every batch is split over the axis "data", the ragged one too."""
    for name, parts, rows, devices in _cases(record):
        for key in ROWS:
            leaf = _leaf(record, name, key)
            if len(leaf.devices) != devices or _parts(leaf) != parts or not _by_data(leaf, parts):
                expected = f'`{key}` is split by "data" into {plural(parts, "part")}'
                return _failure(record, expected, _said(leaf, devices), f"{name} of {rows}")
    return None


def _said(leaf: Leaf, devices: int) -> str:
    """How an array lies, in words."""
    if leaf.kind != "jax" or len(leaf.devices) != devices:
        return f"it lies on {where(leaf)} alone" if leaf.kind == "jax" else where(leaf)
    parts = _parts(leaf)
    return "all its rows lie on each device" if parts == 1 else f"{parts} parts, by {leaf.spec}"


def _by_data(leaf: Leaf, parts: int) -> bool:
    """Whether the spec, where there is one, names the axis; another may be as long."""
    return leaf.spec is None or parts == 1 or "'data'" in leaf.spec


def _parts(leaf: Leaf) -> int:
    """Into how many parts the rows are split, and nothing else is; else 0."""
    if not leaf.shape or not leaf.shard_shape or not leaf.shard_shape[0]:
        return 0
    whole = leaf.shape[1:] == leaf.shard_shape[1:]
    return leaf.shape[0] // leaf.shard_shape[0] if whole else 0


@EXERCISE.check(
    ground="observed",
    after=("batch_is_split",),
    hints=(
        "An axis of a mesh is not always as long as jax.devices().",
        "-rows % parts is the number of rows that are missing, and 0 where none is.",
    ),
)
def as_few_rows_as_it_takes(record: Record) -> Result:
    """A batch keeps its rows, and gets as few more as it takes."""
    for name, parts, rows, _ in _cases(record):
        for key in ROWS:
            leaf, want = _leaf(record, name, key), _full(parts, rows)
            if leaf.shape[:1] != (want,):
                more = f"{rows}, and {want - rows} more" if want > rows else "those of the batch"
                expected = f"`{key}` has {plural(want, 'row')}: {more}"
                got = leaf.shape[0] if leaf.shape else 0
                lost = f": {rows - got} are lost" if got < rows else ""
                return _failure(record, expected, f"{plural(got, 'row')}{lost}", name)
    return None


@EXERCISE.check(
    ground="observed",
    after=("as_few_rows_as_it_takes",),
    hints=("The batch's own rows come first, as they were; the mask tells them from the others.",),
)
def mask_marks_the_own_rows(record: Record) -> Result:
    """The batch's own rows come first, unchanged, and the mask marks them alone."""
    import numpy as np

    for name, _, rows, _ in _cases(record):
        for key in ROWS:
            leaf, want = _leaf(record, name, key), _reference(record, name, key)
            judged = want.shape[0] if key == "mask" else rows
            got = load(leaf.data or b"") if leaf.data else np.empty(0)
            if leaf.dtype != str(want.dtype) or got.shape != want.shape:
                expected = f"`{key}` is an array {want.dtype}{list(want.shape)}"
                return _failure(record, expected, f"{leaf.dtype}{list(leaf.shape)}", name)
            wrong = np.nonzero(np.reshape(got != want, (len(want), -1))[:judged].any(axis=1))[0]
            if wrong.size:
                row = int(wrong[0])
                expected, observed = _rows(want[row], got[row])
                observed += _in_front(want, got, rows)
                return _failure(record, f"`{key}` at row {row} is {expected}", observed, name)
            if spoilt := _spoilt(got[rows:]):
                expected = f"the added rows of `{key}` hold numbers that a mask of 0 takes out"
                return _failure(record, expected, spoilt, name)
    return None


def _spoilt(added: Any) -> str:
    """What added rows hold that makes a mean NaN, though its mask is 0 there."""
    import numpy as np

    found = added[~(np.abs(added) < TAKEN_OUT)]
    if not found.size:
        return ""
    value, factor = float(found[0]), "NaN" if np.isnan(found[0]) else "inf"
    square = ", and its square is inf" if np.isfinite(value) else ""
    return f"{value:.6g}{square}: 0 times {factor} is NaN, and so is the mean"


def _rows(want: Any, got: Any) -> tuple[str, str]:
    """Two rows that differ, in six digits, or in as many as tell them apart."""
    if not want.ndim:
        return figures(want.item(), got.item())
    pairs = zip(want.ravel().tolist(), got.ravel().tolist(), strict=True)
    texts = [(f"{a:.6g}",) * 2 if a == b else figures(a, b) for a, b in pairs]
    mine, theirs = ([pair[side] for pair in texts] for side in (0, 1))
    return f"[{', '.join(mine)}]", f"[{', '.join(theirs)}]"


def _in_front(want: Any, got: Any, rows: int) -> str:
    """Tell where the added rows are, if that is all that is wrong."""
    import numpy as np

    added = len(want) - rows
    in_front = added and np.array_equal(got[added:], want[:rows])
    return f": {plural(added, 'added row')} before its own" if in_front else ""


def _reference(record: Record, name: str, key: str) -> Any:
    """What the reference made of the same batch."""
    return next(
        load(x.data) for x in wanted(record).values[name] if x.path == f"['{key}']" and x.data
    )


@EXERCISE.check(
    ground="observed",
    hints=(
        "jax.numpy makes its arrays on one device. What does jax.device_put do with one of those?",
        "Fill up with NumPy, and let a single jax.device_put take the rows from the host to "
        "their devices.",
    ),
    anchor="read-a-sharding",
)
def never_whole_on_a_device(record: Record) -> Result:
    """The rows go straight from the host to their devices."""
    found = [e for name, *_ in _cases(record) for e in events(seen(record), "d2d", phase=name)]
    if found:
        observed = "all rows went to one device first, and from there to the others"
        return Failure("no copy from device to device", observed, culprits(record, found))
    return probe_gap(seen(record), "transfers")


@EXERCISE.check(
    ground="observed",
    hints=(
        "An added row holds any numbers, and has an error. Does it belong into the mean?",
        "Divide by the number of own rows, which is the sum of the mask.",
    ),
    anchor="a-mean-that-leaves-rows-out",
)
def loss_is_of_the_own_rows(record: Record) -> Result:
    """`mean_loss` is the mean over the rows the mask marks, whatever numbers the others hold."""
    for name, *_ in _cases(record):
        leaves, want = seen(record).values[f"loss of {name}"], _loss(record, name)
        leaf = leaves[0] if len(leaves) == 1 else Leaf("", "other", "tree of several values")
        place = definition(record, "mean_loss")
        if leaf.kind == "other" or leaf.shape or leaf.data is None:
            return Failure("`mean_loss` returns a number", f"a {leaf.type}{leaf.shape}", place)
        got = float(load(leaf.data).item())
        if not _near(got, want):
            expected, observed = figures(want, got)
            slips: dict[str, float] = wanted(record).facts[f"slips of {name}"]
            slip = next((f": {text}" for text, loss in slips.items() if _near(got, loss)), "")
            return Failure(f"the loss of {name} is {expected}", observed + slip, place)
    return None


def _near(got: float, want: float) -> bool:
    return abs(got - want) <= 1e-4 * abs(want)


def _loss(record: Record, name: str) -> float:
    (leaf,) = wanted(record).values[f"loss of {name}"]
    return float(load(leaf.data or b"").item())
