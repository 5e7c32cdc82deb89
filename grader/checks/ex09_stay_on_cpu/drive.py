"""Drives ex09_stay_on_cpu: prepares batches, and predicts from others.

Where there is no GPU, one simulated CPU device is made the default device and stands for
the accelerator, and another one is the CPU. On a machine with GPUs both are what they are
called.

Drawn: how often each function is called (5 to 7 times); which two devices are the CPU and the
accelerator in each call, of three such pairs, so that code works only if it uses the device that it
is given; the rows of a batch and the width of the model, for each pair; all numbers and seeds; the
dtype of `raw` (float32, but float64 for one pair); and whether a batch that `predict` gets is
committed. Where `prepare` is called again for a pair, it gets the same array, filled anew.

`predict` does not get what `prepare` returned, so that a fault in one does not show in the
other. Its batch is sometimes committed and sometimes not. The model follows the committed
one to the CPU, whatever the default device is. After each call the drive makes a new
array, to see whether the default device is still the same.
"""

from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from grader.checks.ex09_stay_on_cpu.facts import (
    COMMITMENTS,
    PREDICTED,
    PREPARED,
    THROUGH_HOST,
    UNSEEN,
    batch,
    made_after,
    prediction,
    ran_on,
)
from grader.probes import dumped, launches
from grader.probes.devices import is_next_door
from grader.probes.observe import Observe

ROWS = (range(2, 16), range(16, 64), range(60, 300, 60))
"""How many rows a batch may have, for each pair of devices."""
CALLS = (5, 8)
"""From how many calls on, and below how many, each function gets."""


class Place(NamedTuple):
    """Where a call runs, and how large its arrays are: each place is compiled for anew."""

    cpu: Any
    accelerator: Any
    rows: int
    width: int

    def names(self) -> list[str]:
        """The CPU and the accelerator."""
        return [f"{device.platform}:{device.id}" for device in self[:2]]


def _places(rng: Any) -> list[Place]:
    """The place of each call: one for each range of rows, in drawn order, and some again."""
    cpus, everything = jax.devices("cpu"), jax.devices()

    def drawn(rows: range) -> Place:
        devices = rng.choice(cpus), rng.choice(everything)
        if everything == cpus:
            devices = rng.permutation(everything)[:2]
        elif is_next_door():  # both are called "cpu" there, and only numbers tell them apart
            devices = rng.permutation(len(everything))[:2]
            devices = cpus[devices[0]], everything[devices[1]]
        return Place(*devices, int(rng.choice(rows)), int(rng.integers(12, 40)))

    places = [drawn(rows) for rows in ROWS]
    more = rng.integers(len(places), size=rng.integers(*CALLS) - len(places))
    return [places[index] for index in rng.permutation([*range(len(places)), *more])]


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Prepare batches, and predict from some of the drive's own, committed and not."""
    with observe.unwatched():
        watch = launches.Places()
    observe.fact(UNSEEN, watch.problem)
    prepared = _places(rng)
    observe.fact(PREPARED, [place.names() for place in prepared])
    double, raws = prepared[rng.integers(len(prepared))], dict[Place, Any]()
    for call, place in enumerate(prepared):
        drawn = (3 + 2 * rng.standard_normal((place.rows, 16))).astype(np.float32)
        raw = raws.setdefault(place, drawn.astype(np.float64) if place == double else drawn)
        raw[:] = drawn
        _prepare(submission, observe, rng, place, call, watch, raw)
    predicted = _places(rng)
    kinds = [*COMMITMENTS, *rng.choice(COMMITMENTS, len(predicted) - len(COMMITMENTS))]
    kinds = rng.permutation(kinds).tolist()
    calls = list(zip(predicted, kinds, strict=True))
    observe.fact(PREDICTED, [[*place.names(), kind] for place, kind in calls])
    with dumped.programs() as texts:
        for call, (place, kind) in enumerate(calls):
            _predict(submission, observe, rng, place, kind, call, watch)
    observe.fact(THROUGH_HOST, sum(map(dumped.uses_the_host, texts)))


def _prepare(
    submission: ModuleType,
    observe: Observe,
    rng: Any,
    place: Place,
    call: int,
    watch: launches.Places,
    raw: Any,
) -> None:
    """Prepare one batch from `raw` (rows, 16), and keep what known mistakes would give."""
    cpu, accelerator, *_ = place
    seed = int(rng.integers(0, 1 << 20))
    with jax.default_device(accelerator):
        with watch.seen() as ran, observe.phase(f"prepare {call}"):
            found = submission.prepare(raw, seed, cpu)
        observe.fact(ran_on("prepare", call), sorted(ran))
        observe.value(batch(call), found)
        _new_array(observe, "prepare", call)
        if not observe.reference:
            return
        with observe.unwatched(), jax.default_device(cpu):
            rows, noisy = submission.standardise(raw), submission.add_noise(raw, seed)
            tenth = submission.add_noise(0 * raw, seed)
            slips = {
                "the batch without its noise": rows,
                "the batch with all of its noise, not a tenth of it": rows + 10 * tenth,
                "the noisy batch, not standardised": noisy,
                "the batch that got its noise before it was standardised": (
                    submission.standardise(noisy)
                ),
            }
            for words, value in slips.items():
                observe.value(f"{batch(call)}, {words}", value)


def _predict(
    submission: ModuleType,
    observe: Observe,
    rng: Any,
    place: Place,
    commitment: str,
    call: int,
    watch: launches.Places,
) -> None:
    """Predict from a batch (rows, 16) that lies on the CPU, committed or not."""
    cpu, accelerator, rows, width = place
    shapes = ((rows, 16), (16, width), (width, 4))
    inputs, w1, w2 = (rng.standard_normal(shape).astype("float32") for shape in shapes)
    with jax.default_device(accelerator):
        with observe.unwatched():
            params = {"w1": jax.device_put(w1), "w2": jax.device_put(w2)}
            with jax.default_device(cpu):
                given = jax.device_put(inputs, cpu if commitment == "committed" else None)
        with watch.seen() as ran, observe.phase(f"predict {call}"):
            found = submission.predict(params, given, accelerator)
        observe.fact(ran_on("predict", call), sorted(ran))
        observe.value(prediction(call), found)
        _new_array(observe, "predict", call)


def _new_array(observe: Observe, function: str, call: int) -> None:
    """Where a new array lies once `function` has returned."""
    with observe.unwatched():
        observe.value(made_after(function, call), jnp.zeros(()))
