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


def _batches(rng: Any, sizes: Sequence[int]) -> list[Any]:
    """float32 rows (n, 16), far from zero, so that a row of zeros is not like the others."""
    draws = [rng.standard_normal((size, FEATURES)) + 2 for size in sizes]
    return [draw.astype("float32") for draw in draws]


def _sizes(rng: Any) -> list[int]:
    """19 different sizes from 2 to 255, small ones and large, in no order."""
    small = rng.permutation(60)[:11] + 2
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
    """Serve three lists of batches; every size is different, the least and the largest too."""
    params = _params(rng)
    others = _sizes(rng)
    calls: list[dict[str, int]] = []

    def model(params: Any, rows: Any, mask: Any) -> Any:
        with observe.unwatched():
            calls.append(_counted(rows, mask))
        return submission.network(params, rows, mask)

    given = 0
    for index, sizes in enumerate(([*others[:8], 1], others[8:14], [MOST_ROWS, *others[14:]])):
        batches = _batches(rng, sizes)
        with observe.phase(f"list {index + 1}"):
            found = submission.predict_all(model, params, batches)
        if not isinstance(found, list | tuple) or len(found) != len(sizes):
            size = f" of {len(found)}" if isinstance(found, list | tuple) else ""
            raise Misused(PROMISE, f"for {len(sizes)} batches, a {type(found).__name__}{size}")
        observe.value(_name(index + 1), list(found))
        given += sum(sizes)
    observe.fact("calls", calls)
    observe.fact("given", [given, len(others) + 2])


def _name(index: int) -> str:
    return f"predict_all(list {index})"


def _counted(rows: Any, mask: Any) -> dict[str, int]:
    import jax
    import numpy as np

    if isinstance(mask, jax.core.Tracer) or isinstance(rows, jax.core.Tracer):
        raise Misused(
            "`model` is called with arrays: it is jitted", "it is called inside jit or vmap"
        )
    return {"rows": int(np.shape(rows)[0]), "counted": int(np.sum(np.asarray(mask) != 0))}


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
    for index in (1, 2, 3):
        failure = differing_leaf(record, _name(index), rtol=1e-4, atol=1e-4)
        if failure:
            placed = replace(failure, culprits=definition(record, "predict_all"))
            return _padding_counted(record, placed) or placed
    return None


def _padding_counted(record: Record, failure: Failure) -> Failure | None:
    """The failure in other words, where the masks let more rows count than there are."""
    counted = sum(call.counted for call in _calls(record))
    given, _ = seen(record).facts["given"]
    if counted <= given:
        return None
    seen_rows = f"the masks let {counted} rows count, and the batches have {given}"
    return Failure(failure.expected, f"{failure.observed}; {seen_rows}", failure.culprits)


def _calls(record: Record) -> list[Call]:
    return msgspec.convert(seen(record).facts["calls"], list[Call])


@EXERCISE.check(
    ground="observed",
    after=("same_predictions",),
    hints=(
        "Each name in the list is a program that was compiled. `network` is the model; what are "
        "the others, and which lines of yours make them?",
        "jnp.pad, jnp.ones and x[:n] of a jax.Array are programs too, one for each size. The "
        "same in NumPy compiles nothing.",
        "Round up to sizes that are the same in every call, not to the longest of this list.",
    ),
    anchor=PADDING,
)
def few_compiles(record: Record) -> Result:
    """At most 5 programs are compiled, whatever sizes come."""
    found = list(events(seen(record), "compile", phase="list"))
    total = sum(event.count for event in found)
    if total <= COMPILES:
        return probe_gap(seen(record), "compiles")
    _, batches = seen(record).facts["given"]
    names: dict[str, int] = {}
    for event in found:
        names[event.detail] = names.get(event.detail, 0) + event.count
    listed = ", ".join(f"{count} of `{name}`" for name, count in names.items())
    return Failure(
        f"at most {plural(COMPILES, 'compile')} for {batches} batches, each of another size",
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
    """The model computes every row, and at most 2 n + 16 b rows in all."""
    computed = sum(call.rows for call in _calls(record))
    given, batches = seen(record).facts["given"]
    most = 2 * given + FLOOR * batches
    if given <= computed <= most:
        return None
    return Failure(
        f"for {batches} batches with {given} rows in all, `model` computes {given} to {most} rows",
        f"it computes {computed}, in {plural(len(_calls(record)), 'call')}",
        definition(record, "predict_all"),
    )
