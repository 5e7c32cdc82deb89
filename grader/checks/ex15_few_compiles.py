"""ex15_few_compiles: batches of many sizes are served by programs of a few sizes."""

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import msgspec

from grader.checking import Exercise, Failure, Misused, Observe, Result
from grader.evidence import culprits, definition, differing_leaf, events, probe_gap, seen
from grader.record import Record
from grader.words import plural

PROMISE = "`predict_all` returns a list: for each batch, its predictions"
MOST_ROWS, FEATURES, WIDTH = 256, 16, 24
COMPILES, FLOOR = 5, 16
SHAPES = "each-shape-is-a-program"
PADDING = "pad-on-the-host"


class Call(msgspec.Struct):
    """One call of `model`, by the values that came with it."""

    rows: int
    counted: int
    """How many of the rows the mask lets count."""


class Served(msgspec.Struct):
    """One list of batches, and the calls of `model` that served it."""

    sizes: list[int]
    calls: list[Call]
    changed: str
    """What became of the caller's list, or ""."""


def _batches(rng: Any, sizes: Sequence[int]) -> list[Any]:
    """float32 rows (n, 16), far from zero, so that a row of zeros is not like the others."""
    draws = [rng.standard_normal((size, FEATURES)) + 2 for size in sizes]
    return [draw.astype("float32") for draw in draws]


def _sizes(rng: Any) -> list[int]:
    """19 different sizes from 2 to 255, of each magnitude some, in no order."""
    small = [low + 1 + int(rng.integers(low)) for low in (1, 2, 4, 8)]
    small += (17 + rng.permutation(45)[:7]).tolist()
    large = [64 + 24 * index + int(rng.integers(8)) for index in range(8)]
    return [int(size) for size in rng.permutation([*small, *large])]


def _params(rng: Any) -> dict[str, Any]:
    """The network's parameters on the device: (16, width), (width,)."""
    import jax

    shapes = {"w1": (FEATURES, WIDTH), "w2": (WIDTH,)}
    drawn = {k: rng.standard_normal(shape).astype("float32") / 4 for k, shape in shapes.items()}
    placed: dict[str, Any] = jax.device_put(drawn)
    return placed


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Serve three lists of many batches, the largest too, and three lists of one."""
    params = _params(rng)
    others = _sizes(rng)
    # A list of its own shows what one size costs; among others, large batches pay for it.
    alone = [[1], [17 + int(rng.integers(4))], [65 + int(rng.integers(8))]]
    many = [others[:8], others[8:14], [MOST_ROWS, *others[14:]]]
    served = [
        _serve(submission, observe, params, _name(index), _batches(rng, sizes))
        for index, sizes in enumerate([*many, *alone], 1)
    ]
    observe.fact("served", msgspec.to_builtins(served))


def _serve(
    submission: ModuleType, observe: Observe, params: Any, name: str, batches: list[Any]
) -> Served:
    """Serve one list, and write down how."""
    import numpy as np

    calls: list[Call] = []

    def model(params: Any, rows: Any, mask: Any) -> Any:
        with observe.unwatched():
            calls.append(_counted(rows, mask))
        return submission.network(params, rows, mask)

    mine, before = list(batches), [np.array(rows) for rows in batches]
    with observe.phase(name):
        found = submission.predict_all(model, params, batches)
    if not isinstance(found, list | tuple) or len(found) != len(mine):
        size = f" of {len(found)}" if isinstance(found, list | tuple) else ""
        raise Misused(PROMISE, f"for a list of {len(mine)}, a {type(found).__name__}{size}")
    observe.value(name, list(found))
    return Served([len(rows) for rows in before], calls, _changed(batches, mine, before))


def _changed(batches: list[Any], mine: list[Any], before: list[Any]) -> str:
    """What became of the drive's list `batches`: it held `mine`, which were as `before`."""
    import numpy as np

    if len(batches) != len(mine):
        return f"`batches` has {len(batches)} arrays after the call, and had {len(mine)}"
    for index, (rows, own, old) in enumerate(zip(batches, mine, before, strict=True)):
        if rows is not own:
            return f"`batches[{index}]` is another array after the call, of shape {np.shape(rows)}"
        if not np.array_equal(rows, old):
            return f"`batches[{index}]` has other numbers or another shape after the call"
    return ""


def _name(index: int) -> str:
    return f"predict_all(list {index})"


def _counted(rows: Any, mask: Any) -> Call:
    import jax
    import numpy as np

    if isinstance(mask, jax.core.Tracer) or isinstance(rows, jax.core.Tracer):
        raise Misused(
            "`model` is called with arrays: it is jitted", "it is called inside jit or vmap"
        )
    return Call(int(np.shape(rows)[0]), int(np.sum(np.asarray(mask) != 0)))


EXERCISE = Exercise(
    title="Serve batches of any size with few compiles",
    lesson="lessons/09-what-jit-does-to-memory",
    anchor=SHAPES,
    edits=("predict_all",),
    drive=drive,
    hints=(
        "A compiled program has shapes in it. How many different shapes does the model see?",
        "Round each size up to one of a few, and fill the rest with rows that don't count.",
        "Sizes 16, 32, 64, 128, 256: pad with NumPy, give a mask with zeros for the padding, and "
        "cut the predictions after np.asarray.",
    ),
)


@EXERCISE.check(
    ground="observed",
    hints=(
        "The network takes the mean over the batch. Which rows must not be in it?",
        "The mask is 1 for a row of the batch and 0 for padding; the padding's own predictions "
        "are cut off.",
    ),
    anchor=PADDING,
)
def same_predictions(record: Record) -> Result:
    """The predictions are the reference's, one for each row of each batch."""
    for index, _ in enumerate(_served(record), 1):
        failure = differing_leaf(record, _name(index), rtol=1e-4, atol=1e-4)
        if failure:
            placed = replace(failure, culprits=definition(record, "predict_all"))
            return _padding_counted(record, placed) or placed
    return None


def _padding_counted(record: Record, failure: Failure) -> Failure | None:
    """The failure in other words, where the masks let more rows count than there are."""
    counted = sum(call.counted for served in _served(record) for call in served.calls)
    given = sum(sum(served.sizes) for served in _served(record))
    if counted <= given:
        return None
    seen_rows = f"the masks let {counted} rows count, and the batches have {given}"
    return Failure(failure.expected, f"{failure.observed}; {seen_rows}", failure.culprits)


def _served(record: Record) -> list[Served]:
    return msgspec.convert(seen(record).facts["served"], list[Served])


@EXERCISE.check(
    ground="observed",
    after=("same_predictions",),
    hints=("Pad into an array of your own: the list and its arrays are the caller's.",),
    anchor=PADDING,
)
def batches_as_they_were(record: Record) -> Result:
    """The caller's batches are as they were."""
    changed = next((served.changed for served in _served(record) if served.changed), "")
    if not changed:
        return None
    expected = "`batches` holds the same arrays after the call, with the same numbers"
    return Failure(expected, changed, definition(record, "predict_all"))


@EXERCISE.check(
    ground="observed",
    after=("same_predictions",),
    hints=(
        "Each name in the list is a program that was compiled. `network` is the model; what are "
        "the others, and which lines of yours make them?",
        "jnp.pad, jnp.ones, jnp.asarray (`stage` in the list) and x[:n] of a jax.Array are "
        "programs too, one for each size. The same in NumPy compiles nothing.",
        "Round up to sizes that are the same in every call, not to the longest of this list.",
    ),
    anchor=PADDING,
)
def few_compiles(record: Record) -> Result:
    """At most 5 programs are compiled, whatever sizes come."""
    found = list(events(seen(record), "compile", phase="predict_all"))
    total = sum(event.count for event in found)
    if total <= COMPILES:
        return probe_gap(seen(record), "compiles")
    batches = sum(len(served.sizes) for served in _served(record))
    names: dict[str, int] = {}
    for event in found:
        names[event.detail] = names.get(event.detail, 0) + event.count
    listed = ", ".join(f"{count} of `{name}`" for name, count in names.items())
    return Failure(
        f"at most {plural(COMPILES, 'compile')} for {batches} batches of many sizes",
        f"{total}: {listed}",
        culprits(record, found),
    )


@EXERCISE.check(
    ground="observed",
    after=("few_compiles",),
    hints=(
        "One size for all is one compile, and a batch of 3 rows costs as much as one of 256.",
        "With sizes that double, padding is less than half of what is computed.",
    ),
)
def little_padding(record: Record) -> Result:
    """For every list, the model computes each row, and at most 2 n + 16 b rows in all."""
    for served in _served(record):
        computed = sum(call.rows for call in served.calls)
        given = sum(served.sizes)
        most = 2 * given + FLOOR * len(served.sizes)
        if not given <= computed <= most:
            return Failure(
                f"for a list of batches of sizes {served.sizes}, `model` computes {given} to "
                f"{most} rows",
                f"it computes {computed}, in {plural(len(served.calls), 'call')}"
                if served.calls
                else "`model` is never called",
                definition(record, "predict_all"),
            )
    return None
