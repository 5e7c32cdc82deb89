"""Drives ex09_stay_on_cpu: prepares batches, and predicts from others.

Where there is no GPU, one simulated CPU device is made the default device and stands for the
accelerator, and another one is the CPU. On a machine with GPUs both are what they are called.

Drawn: how often each function is called (5 to 7 times); which two devices are the CPU and the
accelerator in each call, of three such pairs, so that code works only if it uses the device that it
is given; the rows of a batch and the width of the model, for each pair (`predict` gets one row for
one of them); all numbers and seeds, small, large and negative; the dtype of `raw` and how it lies
in memory (float32, float64 or whole numbers, and one piece, columns of a wider table, or column by
column, each for one pair); and whether a batch that `predict` gets is committed. Where `prepare` is
called again for a pair, it gets the same array, filled anew. After the first call, a column of each
`raw` is 0, one is far from 0 beside its deviation, and if they can, one has a missing number, and
one an infinite one. What is in `raw`, and in those of other calls, is compared with what it was,
after the call and whenever it runs a program; in the last call, `raw` cannot be written to. What
both functions return, and what `predict` was given, is looked at when all has been called, and the
dict of params after each call. Where the file names numbers, each
function is called more often, and gets more rows for one pair than each of them, up to MOST_...; so
does `predict` a wider model for another pair. Numbers of both are further from 0, and seeds and
rows what the file names.

`predict` does not get what `prepare` returned, so that a fault in one does not show in the other.
Its batch is sometimes committed and sometimes not. The model follows the committed one to the CPU,
whatever the default device is. In its last call, `predict` gets the very batch of an earlier call,
and another accelerator, if there is one. After each call the drive makes a new array, to see
whether the default device is still the same, and reads the settings of JAX.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from grader.checks.ex09_stay_on_cpu.facts import (
    COMMITMENTS,
    GONE,
    N_LESS_ONE,
    PREDICTED,
    PREPARED,
    REFUSED,
    THROUGH_HOST,
    UNSEEN,
    WRITTEN,
    baked,
    batch,
    made_after,
    overwritten,
    phase,
    prediction,
    ran_on,
    renewed,
    settings_after,
)
from grader.probes import dumped, launches
from grader.probes.devices import is_next_door
from grader.probes.observe import Observe, other_entries
from grader.stages.drawn import beside, beyond, far, one_of

ROWS = (range(2, 16), range(16, 64), range(60, 300, 60))
"""How many rows a batch may have, for each pair of devices."""
ROWS_OF_PREDICT = (range(1, 2), *ROWS[1:])
"""The same for what `predict` gets."""
SEEDS = ((0, 1 << 20), (-(1 << 31), 0), (0, 1 << 31))
"""Between which numbers seeds are drawn, in turn."""
CALLS = (5, 8)
"""From how many calls on, and below how many, each function gets."""
MOST_ROWS, MOST_ROWS_OF_PREDICT, MOST_WIDTH, MOST_CALLS = 4096, 20_000, 4096, 60
"""Up to where the numbers are reached that the file names."""
AWAY, APART = (500, 1000), 38
"""A column that is far from 0 holds two numbers in turn: the smaller one is twice a number of this
range, and 1 more, and so much is between the two. Sums of whole numbers are exact in float32 here,
and sums of their squares are not: only the second ones lose digits."""
MOST_NUMBER, MOST_WHOLE = 1e12, 1 << 30
"""Up to where the numbers of `raw` and of a batch reach them; and whole ones."""


class Place(NamedTuple):
    """Where a call runs, and how large its arrays are: each place is compiled for anew."""

    cpu: Any
    accelerator: Any
    rows: int
    width: int

    def names(self) -> list[str]:
        """The CPU and the accelerator."""
        return [f"{device.platform}:{device.id}" for device in self[:2]]


def _places(rng: Any, ranges: Sequence[range], most: int) -> list[Place]:
    """The place of each call: one for each range of rows, in drawn order, and some again.

    The last range reaches what the file names, up to `most` rows, and the first one in width. What
    is beyond the usual number of calls has the first one's place.
    """
    cpus, everything = jax.devices("cpu"), jax.devices()

    def drawn(rows: range) -> Place:
        devices = rng.choice(cpus), rng.choice(everything)
        if everything == cpus:
            devices = rng.permutation(everything)[:2]
        elif is_next_door():  # both are called "cpu" there, and only numbers tell them apart
            devices = rng.permutation(len(everything))[:2]
            devices = cpus[devices[0]], everything[devices[1]]
        number, width = int(rng.choice(rows)), int(rng.integers(12, 40))
        if rows is ranges[0]:
            width = beyond(rng, width, MOST_WIDTH, each=16)
        number = one_of(rng, number, range(rows[0], rows[-1] + 1), each=16)
        if rows is ranges[-1]:
            number = beyond(rng, number, most, each=16)
        return Place(*devices, number, width)

    places = [drawn(rows) for rows in ranges]
    more = rng.integers(len(places), size=rng.integers(*CALLS) - len(places))
    calls = [*range(len(places)), *more]
    calls += [0] * (beyond(rng, len(calls), MOST_CALLS) - len(calls))
    return [places[index] for index in rng.permutation(calls)]


def _elsewhere(rng: Any, place: Place) -> Place:
    """The same place with another accelerator, if there is one."""
    others = [device for device in jax.devices() if device not in place[:2]]
    return place._replace(accelerator=rng.choice(others)) if others else place


def _empty(rng: Any, rows: int = max(map(max, ROWS))) -> list[Any]:
    """Arrays (rows, 16) to fill, of each dtype and of each order in memory, for each pair."""
    dtypes = rng.permutation([np.float32, np.float64, rng.choice([np.int32, np.int64])])
    one, wide, turned = (np.zeros((rows, 48), dtype) for dtype in dtypes)
    arrays = [one[:, :16].copy(), wide[:, 16:32], np.asfortranarray(turned[:, :16])]
    return [arrays[index] for index in rng.permutation(len(arrays))]


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Prepare batches, and predict from some of the drive's own, committed and not."""
    with observe.unwatched():
        watch = launches.Places()
    observe.fact(UNSEEN, watch.problem)
    prepared = _places(rng, ROWS, MOST_ROWS)
    observe.fact(PREPARED, [place.names() for place in prepared])
    rows = max(place.rows for place in prepared)
    arrays = zip(dict.fromkeys(prepared), _empty(rng, rows), strict=False)
    raws = {place: array[: place.rows] for place, array in arrays}
    known, results, seeds = dict[Place, Any](), list[tuple[str, Any]](), list[int]()
    for call, place in enumerate(prepared):
        raw = raws[place]
        drawn = 3 + 2 * rng.standard_normal(raw.shape)
        if call:
            zero, missing, infinite, large, away = rng.permutation(16)[:5]
            drawn[:, zero] = 0
            drawn[:, large] = _with_far(rng, drawn[:, large])
            if raw.dtype.kind == "f":
                drawn[0, missing], drawn[-1, infinite] = np.nan, rng.choice([-np.inf, np.inf])
        raw[:] = (
            drawn if raw.dtype.kind == "f" else np.rint(10 * drawn).clip(-MOST_WHOLE, MOST_WHOLE)
        )
        if call:
            raw[:, away] = 2 * beside(rng).integers(*AWAY) + 1
            raw[::2, away] += APART
        known[place] = raw.copy()
        changed = partial(_changed, known, raws)
        seeds.append(_seed(rng, call, seeds))
        raw.flags.writeable = call < len(prepared) - 1
        found = _prepare(submission, observe, seeds[-1], place, call, watch, raw, changed)
        results.append((batch(call), found))
    predicted = _places(rng, ROWS_OF_PREDICT, MOST_ROWS_OF_PREDICT)
    last = max(n for n, place in enumerate(predicted) if place in predicted[:n])
    predicted.append(predicted.pop(last))
    again = predicted.index(predicted[-1])
    predicted[-1] = _elsewhere(rng, predicted[-1])
    kinds = [*COMMITMENTS, *rng.choice(COMMITMENTS, len(predicted) - len(COMMITMENTS) - 1)]
    kinds = rng.permutation(kinds).tolist()
    kinds.append(kinds[again])
    calls = list(zip(predicted, kinds, strict=True))
    observe.fact(PREDICTED, [[*place.names(), kind] for place, kind in calls])
    kept, batches = list[dict[str, Any]](), list[tuple[Any, Any]]()
    with dumped.programs() as texts:
        for call, (place, kind) in enumerate(calls):
            old = batches[again] if call == len(calls) - 1 else None
            found, given, inputs = _predict(submission, observe, rng, place, kind, call, watch, old)
            results.append((prediction(call), found))
            kept.append(given)
            batches.append((inputs, given["batch"]))
    gone = [[call, name] for call, one in enumerate(kept) for name in one if one[name].is_deleted()]
    observe.fact(GONE, gone)
    for name, found in results:
        observe.value(name, found)
    observe.fact(THROUGH_HOST, sum(map(dumped.uses_the_host, texts)))


def _with_far(rng: Any, column: Any) -> Any:
    """Numbers of which two are further from 0 than all that the file names, if it does.

    They differ: as a single one, a number that was cut off would come out as before.
    """
    large = far(rng, MOST_NUMBER)
    column[:2] = (large, large / 2) if large else column[:2]
    return column


def _seed(rng: Any, call: int, known: Sequence[int]) -> int:
    """The seed of a call: a new one, and what the file names in every second call if it can be."""
    span = SEEDS[call % len(SEEDS)]
    usual = int(rng.integers(*span))
    drawn = one_of(rng, usual, range(*span))
    return usual if drawn in known else drawn


def _changed(known: dict[Place, Any], raws: dict[Place, Any]) -> bool:
    """Whether an array of the caller's holds other numbers than those that are known."""
    same = (np.array_equal(known[one], raws[one], equal_nan=True) for one in known)
    return not all(same)


def _prepare(
    submission: ModuleType,
    observe: Observe,
    seed: int,
    place: Place,
    call: int,
    watch: launches.Places,
    raw: Any,
    changed: Callable[[], bool],
) -> Any:
    """Prepare one batch from `raw` (rows, 16), and keep what known mistakes would give.

    `changed` tells whether the caller's arrays are not as they were.
    """
    cpu, accelerator, *_ = place
    ran, written, refused = set[str](), list[bool](), False

    def launched(_name: str, devices: Sequence[str], _given: Sequence[Any]) -> None:
        ran.update(devices)
        written.append(changed())

    with jax.default_device(accelerator):
        before = _settings()
        with (
            dumped.programs() as texts,
            watch.launched(launched),
            observe.phase(phase("prepare", call)),
        ):
            try:
                found = submission.prepare(raw, seed, cpu)
            except ValueError as error:
                if raw.flags.writeable or "read-only" not in str(error):
                    raise
                refused = True
                found = submission.prepare(raw.copy(), seed, cpu)
        _note_settings(observe, "prepare", call, before)
        # `raw` gets other numbers for a later call, and what reads it may still be under way.
        with observe.unwatched(), suppress(RuntimeError):  # an array may be deleted
            jax.block_until_ready(found)
        written.append(changed())
        observe.fact(overwritten(call), REFUSED if refused else WRITTEN if any(written) else "")
        sizes = [size for text in texts for size in dumped.constants(text)]
        observe.fact(baked(call), max(sizes, default=0))
        observe.fact(ran_on("prepare", call), sorted(ran))
        _new_array(observe, "prepare", call)
        if not observe.reference:
            return found
        with observe.unwatched(), jax.default_device(cpu):
            rows, noisy = submission.standardise(raw), submission.add_noise(raw, seed)
            tenth = submission.add_noise(0 * raw, seed)
            n = len(raw)
            slips = {
                N_LESS_ONE: rows * np.sqrt((n - 1) / n) + tenth,
                "the batch without its noise": rows,
                "the batch with all of its noise, not a tenth of it": rows + 10 * tenth,
                "the noisy batch, not standardised": noisy,
                "the batch that got its noise before it was standardised": (
                    submission.standardise(noisy)
                ),
            }
            if seed < 0:
                slips["the batch of the seed without its sign"] = submission.add_noise(rows, -seed)
            for words, value in slips.items():
                observe.value(f"{batch(call)}, {words}", value)
    return found


def _predict(
    submission: ModuleType,
    observe: Observe,
    rng: Any,
    place: Place,
    commitment: str,
    call: int,
    watch: launches.Places,
    old: tuple[Any, Any] | None,
) -> tuple[Any, dict[str, Any], Any]:
    """Predict from a batch (rows, 16) that lies on the CPU, committed or not.

    It is that of `old`, the numbers and the batch of an earlier call, if that is still there.

    Returns the prediction, the arrays that were given, and the numbers of the batch.
    """
    cpu, accelerator, rows, width = place
    shapes = ((rows, 16), (16, width), (width, 4))
    inputs, w1, w2 = (rng.standard_normal(shape).astype("float32") for shape in shapes)
    if not old and (large := far(rng, MOST_NUMBER)):  # with weights that are as small
        column = rng.integers(16)
        inputs[:, column] *= large
        w1[column] /= large
    inputs, there = old or (inputs, None)
    with jax.default_device(accelerator):
        with observe.unwatched():
            params = {"w1": jax.device_put(w1), "w2": jax.device_put(w2)}
            with jax.default_device(cpu):
                given = jax.device_put(inputs, cpu if commitment == "committed" else None)
            given = given if there is None or there.is_deleted() else there
        before = _settings()
        precise = jax.default_matmul_precision("highest")
        with precise, watch.seen() as ran, observe.phase(phase("predict", call)):
            found = submission.predict(own := {**params}, given, accelerator)
        observe.fact(renewed(call), other_entries(own, params))
        _note_settings(observe, "predict", call, before)
        observe.fact(ran_on("predict", call), sorted(ran))
        _new_array(observe, "predict", call)
        arrays = {"batch": given, **{f"params[{name!r}]": w for name, w in params.items()}}
        return found, arrays, inputs


def _settings() -> dict[str, Any]:
    """All settings of JAX, as they are in this thread."""
    return {name: getattr(jax.config, name, None) for name in jax.config.values}


def _note_settings(observe: Observe, function: str, call: int, before: dict[str, Any]) -> None:
    """Note which settings are not what they were before a call; the default device is seen."""
    names = [name for name, now in _settings().items() if before.get(name) != now]
    names = [name for name in names if name != "jax_default_device"]
    observe.fact(settings_after(function, call), sorted(names))


def _new_array(observe: Observe, function: str, call: int) -> None:
    """Where a new array lies once `function` has returned."""
    with observe.unwatched():
        observe.value(made_after(function, call), jnp.zeros(()))
