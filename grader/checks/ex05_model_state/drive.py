"""Drives ex05_model_state: places two models, and takes steps with a third.

The drive itself places the third one, so `train_step` is judged on a placed model even
where `place` is wrong. The models begin with the same values: their counts are not 0, so a model
made anew differs. The state is kept after the first step, when the statistics do not depend on the
new parameters yet, and after the last step that is compared. More steps follow, of which only the
copies are judged: small differences of rounding grow.

Drawn: the device for the first model; the second model goes to another one, and each time another
device is the default one. The steps that are compared (3 to 6) and all of them (14 to 24), the
features, the rows of a batch and all values are drawn too.
"""

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from grader.checks.ex05_model_state.facts import (
    AT_THE_END,
    FIRST,
    LOSSES,
    PLACED,
    STEPS,
    TRAINED,
    settings,
)
from grader.probes.observe import Misused, Observe


def _filled(rng: Any, shape: Any) -> Any:
    """Values for a `ShapeDtypeStruct`: a random key, a count that is not 0, float32 in (0, 1)."""
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(rng.integers(1 << 32, size=2, dtype=np.uint32))
    if np.issubdtype(shape.dtype, np.integer):
        return np.asarray(rng.integers(3, 99), shape.dtype)
    return rng.random(shape.shape).astype(shape.dtype)


def _model(net: Any, features: int, seed: int) -> Any:
    """A `Net` on the default device, uncommitted, with drawn values in place of its first ones."""
    rng = np.random.default_rng(seed)
    shapes = nnx.eval_shape(lambda: net(features, nnx.Rngs(params=0, dropout=0)))
    graph, state = nnx.split(shapes)
    return nnx.merge(graph, jax.device_put(jax.tree.map(lambda s: _filled(rng, s), state)))


def _batches(rng: Any, features: int, count: int, device: Any) -> list[Any]:
    """Batches on the device: inputs (rows, features) float32, labels (rows,) int32."""
    rows = int(rng.integers(8, 24))
    batches = [
        (rng.standard_normal((rows, features)).astype(np.float32), rng.integers(0, 4, rows))
        for _ in range(count)
    ]
    return [jax.device_put((x, y.astype(np.int32)), device) for x, y in batches]


def _state(model: Any) -> dict[str, Any]:
    """The arrays of a model by type and path; for a random key, the numbers behind it."""

    def plain(array: Any) -> Any:
        is_key = isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
        return jax.random.key_data(array) if is_key else array

    return {
        f"{type(variable).__name__} {'.'.join(map(str, path))}": plain(variable.get_value())
        for path, variable in nnx.to_flat_state(nnx.state(model))
    }


def _settings(model: Any) -> dict[str, Any]:
    """What else the parts of a model hold: rates, and whether they are in train mode."""
    held = [((*p, k), v) for p, part in nnx.iter_modules(model) for k, v in vars(part).items()]
    return {".".join(map(str, path)): v for path, v in held if isinstance(v, bool | int | float)}


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Place two models, and take steps with a third."""
    devices = rng.permutation(jax.devices())[:2].tolist()
    features, seed = int(rng.integers(5, 30)), int(rng.integers(1 << 30))
    for name, device, default in zip(PLACED, devices, reversed(devices), strict=True):
        with jax.default_device(default):
            _place(submission, observe, name, device, (features, seed))
    device, default = rng.permutation(devices)
    with jax.default_device(default):
        _train(submission, observe, rng, device, (features, seed))


def _place(
    submission: ModuleType, observe: Observe, name: str, device: Any, drawn: tuple[int, int]
) -> None:
    with observe.unwatched():
        model = _model(submission.Net, *drawn)
    with observe.phase("place"):
        placed = submission.place(model, device)
    if not isinstance(placed, nnx.Module):
        what = "None" if placed is None else f"a {type(placed).__name__}"
        raise Misused("`place` returns the model", f"it returned {what}")
    with observe.unwatched():
        observe.value(name, _state(placed))
        observe.value(settings(name), _settings(placed))


def _train(
    submission: ModuleType, observe: Observe, rng: Any, device: Any, drawn: tuple[int, int]
) -> None:
    compared, steps = int(rng.integers(3, 7)), int(rng.integers(14, 25))
    observe.fact(STEPS, [compared, steps])
    with observe.unwatched():
        model = _model(submission.Net, *drawn)
        nnx.update(model, jax.device_put(nnx.state(model), device))
        batches = _batches(rng, drawn[0], steps, device)
    losses = []
    for number, batch in enumerate(batches, 1):
        with observe.phase("step"):
            loss = submission.train_step(model, batch)
        if number <= compared:
            losses.append(loss)
        if number in (1, compared):
            with observe.unwatched():
                observe.value(FIRST if number == 1 else TRAINED, _state(model))
    observe.value(LOSSES, losses)
    with observe.unwatched():
        observe.value(AT_THE_END, _state(model), data=False)
