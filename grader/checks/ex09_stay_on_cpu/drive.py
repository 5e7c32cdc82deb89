"""Drives ex09_stay_on_cpu: prepares two batches, and predicts from two others.

Where there is no GPU, one simulated CPU device is made the default device and stands for
the accelerator, and another one is the CPU. On a machine with GPUs both are what they are
called.

Drawn: which two devices are the CPU and the accelerator in the first calls, and which two others
in the second ones, so that code works only if it uses the device that it is given; the rows of
each batch, the width of the model, all numbers and seeds; and whether the committed batch comes
first.

`predict` does not get what `prepare` returned, so that a fault in one does not show in the
other. Its batch is once committed and once uncommitted. The model follows the committed
one to the CPU, whatever the default device is. After each call the drive makes a new
array, to see whether the default device is still the same.
"""

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp

from grader.checks.ex09_stay_on_cpu.facts import BATCHES, COMMITMENTS, prediction
from grader.probes.observe import Observe


def _places(rng: Any) -> list[tuple[Any, Any]]:
    """The CPU and the accelerator of the first calls, and those of the second ones."""
    cpus, everything = jax.devices("cpu"), jax.devices()
    if everything == cpus:
        first, second, third, fourth = rng.permutation(everything)[:4]
        return [(first, second), (third, fourth)]
    return [(rng.choice(cpus), rng.choice(everything)) for _ in range(2)]


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Prepare two batches, and predict from two of the drive's own, committed and not."""
    places = _places(rng)
    observe.fact("cpus", [f"{cpu.platform}:{cpu.id}" for cpu, _ in places])
    observe.fact("defaults", [f"{device.platform}:{device.id}" for _, device in places])
    for index, (cpu, accelerator) in enumerate(places):
        rows, seed = int(rng.integers(20, 60)), int(rng.integers(0, 1 << 20))
        raw = (3 + 2 * rng.standard_normal((rows, 16))).astype("float32")
        with jax.default_device(accelerator):
            with observe.phase(f"prepare {index}"):
                batch = submission.prepare(raw, seed, cpu)
            observe.value(BATCHES[index], batch)
            _new_array(observe, "prepare", index)
            with observe.unwatched(), jax.default_device(cpu):
                slips = {
                    "the batch without its noise": submission.standardise(raw),
                    "the noisy batch, not standardised": submission.add_noise(raw, seed),
                }
                for words, value in slips.items():
                    observe.value(f"{BATCHES[index]}, {words}", value)
    commitments = rng.permutation(COMMITMENTS).tolist()
    observe.fact("commitments", commitments)
    for index, (place, commitment) in enumerate(zip(places, commitments, strict=True)):
        _predict(submission, observe, rng, place, commitment, index)


def _predict(
    submission: ModuleType,
    observe: Observe,
    rng: Any,
    place: tuple[Any, Any],
    commitment: str,
    index: int,
) -> None:
    """Predict from a batch (rows, 16) that lies on the CPU, committed or not."""
    cpu, accelerator = place
    rows, width = int(rng.integers(20, 60)), int(rng.integers(12, 40))
    shapes = ((rows, 16), (16, width), (width, 4))
    inputs, w1, w2 = (rng.standard_normal(shape).astype("float32") for shape in shapes)
    with jax.default_device(accelerator):
        with observe.unwatched():
            params = {"w1": jax.device_put(w1), "w2": jax.device_put(w2)}
            with jax.default_device(cpu):
                batch = jax.device_put(inputs, cpu if commitment == "committed" else None)
        with observe.phase(f"predict {commitment}"):
            found = submission.predict(params, batch, accelerator)
        observe.value(prediction(commitment), found)
        _new_array(observe, "predict", index)


def _new_array(observe: Observe, function: str, index: int) -> None:
    """Where a new array lies once `function` has returned."""
    with observe.unwatched():
        observe.value(f"made after {function} {index}", jnp.zeros(()))
