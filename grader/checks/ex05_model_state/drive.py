"""Drives ex05_model_state: places some models, and takes steps with two others.

The drive itself places those, so `train_step` is judged on placed models even where `place` is
wrong. Each model has other values, and its counts are not 0, so one that was made anew or kept
differs; one more goes where one before it went, and all are looked at after that. Then one of them
gets new values on the default device, and is placed again elsewhere. The state is kept after the
first step of each round, when the statistics do not depend on the new parameters yet, and after the
round, and the parameters after the second step. A round has few steps, and begins with new values,
since small differences of rounding grow; the two models take turns in an order that is drawn. What
else the models hold, such as modes and rates, is looked at after each round, too. What is kept of a
model is read from variables of Flax's own types, and without calling what they could call.

Drawn: how many models are placed (4 to 7), the device of each and the default device meanwhile (for
one of them the same), the steps of each round (3 to 6) and of all rounds (100 or a few more), the
features, the rows of a batch and all values, for `place` some of them 0 or negative.
"""

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from grader.checks.ex05_model_state.facts import (
    AT_THE_END,
    MODELS,
    PLACED,
    STEPS,
    THROUGH_HOST,
    before,
    first,
    losses,
    second,
    settings,
    trained,
)
from grader.probes import dumped
from grader.probes.observe import Misused, Observe, named

STEPS_IN_ALL = 100
LARGE = 8
"""How large the values of every other round may be: gradients are larger than 1 there."""
STEPS_OF_A_ROUND = (3, 7)
"""From how many steps on, and below how many, a round has."""


def _filled(rng: Any, shape: Any, most: float) -> Any:
    """Values for a `ShapeDtypeStruct`: a random key, a count but not 0, float32 in (0, most).

    If `most` is 0, the floats are in (-1, 1), and some are 0.
    """
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(rng.integers(1 << 32, size=2, dtype=np.uint32))
    if np.issubdtype(shape.dtype, np.integer):
        return np.asarray(rng.integers(3, 99), shape.dtype)
    values = most * rng.random(shape.shape)
    if not most:
        values = np.where(rng.random(shape.shape) < 0.1, 0, rng.uniform(-1, 1, shape.shape))
    return values.astype(shape.dtype)


def _empty(net: Any, features: int) -> tuple[Any, Any]:
    """The parts of a `Net`, and its variables as shapes: nothing is computed."""
    graph, shapes = nnx.split(nnx.eval_shape(lambda: net(features, nnx.Rngs(params=0, dropout=0))))
    return graph, shapes


def _seed(rng: Any) -> int:
    return int(rng.integers(1 << 30))


def _drawn(shapes: Any, seed: int, most: float = 0) -> Any:
    """Drawn values for variables, in host memory; for keys, on the default device."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda shape: _filled(rng, shape, most), shapes)


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

    def plain(variable: Any) -> Any:
        array = variable.get_raw_value() if _is_flax(type(variable)) else variable
        is_key = isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
        return jax.random.key_data(array) if is_key else array

    return {
        f"{_name(type(variable))} {'.'.join(map(str, path))}": plain(variable)
        for path, variable in nnx.to_flat_state(nnx.state(model))
    }


def _parameters(state: dict[str, Any]) -> dict[str, Any]:
    return {name: array for name, array in state.items() if name.startswith("Param")}


def _is_flax(kind: type) -> bool:
    return kind.__module__.startswith("flax.")


def _name(kind: type) -> str:
    """The name of a class of Flax; that of another one says whose it is."""
    return kind.__name__ if _is_flax(kind) else f"{kind.__module__}.{kind.__qualname__}"


def _settings(model: Any) -> dict[str, Any]:
    """What else the parts of a model hold: rates, modes, types, functions, hooks of variables."""
    found: dict[str, Any] = {}
    for path, part in nnx.iter_modules(model):
        start = ".".join(map(str, path))
        found[start or "model"] = _name(type(part))
        for name, value in vars(part).items():
            if not (name.startswith("_") or isinstance(value, nnx.Variable)):
                found[f"{start}.{name}".strip(".")] = _plain(value)
    for path, variable in nnx.to_flat_state(nnx.state(model)):
        for name in variable.get_metadata() if _is_flax(type(variable)) else ():
            if name.startswith("on_"):
                found[f"{'.'.join(map(str, path))}.{name}"] = "a hook"
    return found


def _plain(value: Any) -> Any:
    """A number or a text as it is, a function by its name, anything else by its type."""
    if type(value) in (bool, int, float, str):
        return value
    return getattr(value, "__qualname__", None) or _name(type(value))


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Place models, and take steps with two that the drive has placed."""
    features = int(rng.integers(5, 30))
    with observe.unwatched():
        graph, shapes = _empty(submission.Net, features)
    count = int(rng.integers(3, len(MODELS)))
    observe.fact(PLACED, count + 1)
    places = [rng.permutation(jax.devices())[:2].tolist() for _ in range(count - 1)]
    places[rng.integers(count - 1)][:] = [rng.choice(jax.devices())] * 2
    places.append(places[rng.integers(count - 1)])
    through, given, placed = [0, 0], list[Any](), list[Any]()
    for device, default in places:
        with jax.default_device(default), dumped.programs() as texts:
            with observe.unwatched():  # uncommitted, on the default device
                given.append(nnx.merge(graph, jax.device_put(_drawn(shapes, _seed(rng)))))
            placed.append(_place(submission, observe, device, given[-1]))
        through[0] += sum(map(dumped.uses_the_host, texts))
    with observe.unwatched():
        for name, model in zip(MODELS, placed, strict=False):
            _keep(observe, name, model)
    again = rng.integers(count)
    device, default = rng.permutation([d for d in jax.devices() if d != places[again][0]])[:2]
    with jax.default_device(default):
        with observe.unwatched():
            nnx.update(given[again], jax.device_put(_drawn(shapes, _seed(rng))))
        model = _place(submission, observe, device, given[again])
        with observe.unwatched():
            _keep(observe, MODELS[count], model)
    device, default = rng.permutation(jax.devices())[:2]
    with jax.default_device(default), dumped.programs() as texts:
        with observe.unwatched():
            drawn = [_drawn(shapes, _seed(rng), 1) for _ in AT_THE_END]
            models = [nnx.merge(graph, jax.device_put(one, device)) for one in drawn]
        _train(submission, observe, rng, device, features, models, shapes)
    through[1] = sum(map(dumped.uses_the_host, texts))
    observe.fact(THROUGH_HOST, through)


def _keep(observe: Observe, name: str, model: Any) -> None:
    """Keep a model that was placed."""
    observe.value(name, _state(model))
    observe.value(settings(name), _settings(model))


def _place(submission: ModuleType, observe: Observe, device: Any, model: Any) -> Any:
    with observe.phase("place"):
        placed = submission.place(model, device)
    if type(placed) is not submission.Net:
        raise Misused("`place` returns the model, a `Net`", f"it returned {named(placed)}")
    return placed


def _train(
    submission: ModuleType,
    observe: Observe,
    rng: Any,
    device: Any,
    features: int,
    models: list[Any],
    shapes: Any,
) -> None:
    lengths: list[int] = []
    while sum(lengths) < STEPS_IN_ALL:
        lengths.append(int(rng.integers(*STEPS_OF_A_ROUND)))
    observe.fact(STEPS, [len(lengths), sum(lengths)])
    turns = rng.permutation([index % 2 for index in range(len(lengths))])
    with observe.unwatched():
        batches = iter(_batches(rng, features, sum(lengths), device))
        known = _settings(models[0])
    for number, (steps, turn) in enumerate(zip(lengths, turns, strict=True)):
        model = models[turn]
        with observe.unwatched():
            drawn = _drawn(shapes, _seed(rng), LARGE if number % 2 else 1)
            nnx.update(model, jax.device_put(drawn, device))
            observe.value(before(number), _state(model))
        found = []
        for _ in range(steps):
            with observe.phase("step"):
                found.append(submission.train_step(model, next(batches)))
            with observe.unwatched():
                if len(found) == 1:
                    state = _state(model)
                    observe.value(first(number), state if number == 0 else _parameters(state))
                elif len(found) == 2 and number % 2 == 0:
                    observe.value(second(number), _parameters(_state(model)))
        observe.value(losses(number), found)
        with observe.unwatched():
            observe.value(trained(number), _state(model))
            now = _settings(model)
            observe.value(settings(trained(number)), {name: now.get(name) for name in known})
    with observe.unwatched():
        for name, model in zip(AT_THE_END, models, strict=True):
            observe.value(name, _state(model), data=False)
