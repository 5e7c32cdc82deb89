"""Drives ex04_place_model: places two models of drawn sizes, and takes a step with the first.

The first model has the file's optimizer. The second has another optimizer, whose state has other
types and one more count, and goes to another device. So it helps nobody to take Adam's state
apart, or to name one device always. Counts are positive: a state made anew by `init` differs. A
step that JAX refuses is a fact about the placement, and no error of the run.

Drawn: the default device and the two devices asked for, the features and rows of each batch, what
the second optimizer clips at, and all numbers.
"""

from types import ModuleType
from typing import Any

import jax
import numpy as np
import optax

from grader.checks.ex04_place_model.facts import (
    MODELS,
    PLACE_RAISED,
    STEP_RAISED,
    STEPPED,
    TREES,
)
from grader.probes.observe import Observe, unpack

PROMISE = "`place` returns (params, opt_state, batch)"


def _values(rng: Any, shape: Any) -> Any:
    """NumPy values for a `ShapeDtypeStruct`: integers from 3 to 98, floats in [0, 1/4)."""
    if np.issubdtype(shape.dtype, np.integer):
        return np.asarray(rng.integers(3, 99, shape.shape), shape.dtype)
    return (rng.random(shape.shape) / 4).astype(shape.dtype)


def _inputs(network: Any, optimizer: Any, rng: Any, features: int, rows: int) -> tuple[Any, ...]:
    """Parameters and optimizer state on the default device, uncommitted; a NumPy batch.

    inputs (rows, features) float32, labels (rows,) int32.
    """
    inputs = rng.standard_normal((rows, features)).astype(np.float32)
    labels = rng.integers(0, 4, rows).astype(np.int32)
    key = jax.ShapeDtypeStruct((2,), np.uint32)
    params = jax.eval_shape(network.init, key, inputs)
    state = params, jax.eval_shape(optimizer.init, params)
    placed = jax.device_put(jax.tree.map(lambda shape: _values(rng, shape), state))
    return *placed, (inputs, labels)


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Place both models, and take a step with the first as soon as it is placed."""
    default, *devices = rng.permutation(jax.devices())[: 1 + len(MODELS)]
    with jax.default_device(default):
        _both(submission, observe, rng, devices)


def _both(submission: ModuleType, observe: Observe, rng: Any, devices: list[Any]) -> None:
    """Place both models, the first on the first of `devices`."""
    network, adam = submission.network, submission.optimizer
    decayed = optax.chain(
        optax.clip(float(rng.uniform(0.5, 2))), optax.adam(optax.constant_schedule(0.1))
    )
    for prefix, optimizer, device in zip(MODELS, (adam, decayed), devices, strict=True):
        with observe.unwatched():
            features, rows = (int(n) for n in rng.integers(5, 30, 2))
            inputs = _inputs(network, optimizer, rng, features, rows)
        try:
            with observe.phase("place"):
                placed = submission.place(*inputs, device)
        except Exception as error:
            if optimizer is adam:
                raise
            observe.fact(PLACE_RAISED, f"{type(error).__name__}: {error}")
            return
        placed = unpack(placed, 3, PROMISE)
        for name, tree in zip(TREES, placed, strict=True):
            observe.value(prefix + name, tree)
        if optimizer is adam:
            _step(submission, observe, placed)


def _step(submission: ModuleType, observe: Observe, placed: tuple[Any, ...]) -> None:
    """Take one step with what `place` returned, and keep its results, or what it raised."""
    try:
        with observe.phase("step"):
            results = submission.train_step(*placed)
    except Exception as error:  # noqa: BLE001 (whatever it raises is a fact to judge)
        observe.fact(STEP_RAISED, f"{type(error).__name__}: {error}")
    else:
        observe.value(STEPPED, results, data=False)
