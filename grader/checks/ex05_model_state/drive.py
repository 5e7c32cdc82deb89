"""Drives ex05_model_state: places some models, and takes steps with two others.

The drive itself places those, so `train_step` is judged on placed models even where `place` is
wrong. Each model has other values, so one that was made anew or kept differs; one more goes where
one before it went, and all are looked at after that. Then one of them gets new values on the
default device, and is placed again elsewhere. The two that are trained lie on two devices, have
rates of their own, and their batches have different numbers of rows, those of one of them two in
turn. The state is kept after the first step of each round, when the statistics do not depend on the
new parameters yet, and after the round; parameters and statistics are kept after each step. A round
has few steps, and begins with new values, since small differences of rounding grow; the two models
take turns in an order that is drawn. One feature is always small, and the weights that it meets
begin as 0: what a step does where gradients are small shows there. After each step, its batch is
looked at, and after each round, the other model is, and so is what else a model holds, such as
modes and rates. What is kept of a model is read from variables of Flax's own types, and without
calling what they could call.

Drawn: how many models are placed (4 to 7), their rates, the device of each and the default device
meanwhile (for one of them the same), the steps of each round (3 to 6) and of all rounds (100 or a
few more), the features, the rows of the batches of each model and all values. Counts are 0, small
or large. For `place`, some of the other values are 0, negative or large, and but for the first
model some are none, infinite, -0.0 or tiny. A round begins with values that are positive, or large,
or of either sign. Where the file names numbers, `place` is called more often, and once gets a model
of more features; the training has more steps, a model with more features, and batches of more rows.
The last step of all begins with numbers that are further from 0, as are its loss and gradients.
"""

from collections.abc import Iterator
from itertools import count, cycle
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from grader.checks.ex05_model_state.facts import (
    ANOTHER_CHANGED,
    AT_THE_END,
    IN_OTHER_ORDER,
    MODELS,
    PLACED,
    STEPS,
    THROUGH_HOST,
    USED_UP,
    before,
    first,
    later,
    losses,
    settings,
    trained,
)
from grader.probes import dumped
from grader.probes.describe import in_other_order
from grader.probes.observe import Misused, Observe, named
from grader.stages.drawn import beside, beyond, far, some_odd

STEPS_IN_ALL = 100
ANY = (0.0, 0.0)
"""What stands for the values with which `place` is asked."""
FLOATS = ((0.0, 1.0), (0.0, 8.0), (-1.0, 1.0), (0.0, 8.0))
"""Between which numbers the values are with which rounds begin, in turn.

Where they are large, gradients are larger than 1.
"""
STEPS_OF_A_ROUND = (3, 7)
"""From how many steps on, and below how many, a round has."""
COUNTS = ((0, 1), (3, 99), (1000, 1 << 20))
"""From where on, and below what, the count of a model is."""
MOST_STEPS, MOST_ROWS, MOST_TRAINED, MOST_FEATURES, MOST_MODELS = 600, 4096, 1024, 20_000, 100
"""Up to where the numbers are reached that the file names: steps in all, rows, features of a model
that is trained and of one that is placed, and models that are placed."""
OF_ALL = (
    "a model has a random key and a count beside its parameters: nnx.value_and_grad and nnx.grad "
    "differentiate by its parameters alone"
)
MOST_COUNT, MOST_NUMBER, FURTHER = 1 << 31, 1e12, 1000
"""As these, a model's count and numbers of the last round; and by how much some go further."""


def _filled(rng: Any, shape: Any, floats: tuple[float, float], counts: Any) -> Any:
    """Values for a `ShapeDtypeStruct`: a random key, one of `counts`, float32 between two numbers.

    For ANY, some are 0, most are in (-1, 1), and some are large.
    """
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(rng.integers(1 << 32, size=2, dtype=np.uint32))
    if np.issubdtype(shape.dtype, np.integer):
        return np.asarray(rng.integers(*counts), shape.dtype)
    if floats == ANY:
        sizes = rng.choice([0, 1, 1000], shape.shape, p=[0.1, 0.8, 0.1])
        return np.asarray(sizes * rng.uniform(-1, 1, shape.shape), shape.dtype)
    return np.asarray(rng.uniform(*floats, shape.shape), shape.dtype)


def _empty(net: Any, features: int) -> tuple[Any, Any]:
    """The parts of a `Net`, and its variables as shapes: nothing is computed."""
    graph, shapes = nnx.split(nnx.eval_shape(lambda: net(features, nnx.Rngs(params=0, dropout=0))))
    return graph, shapes


def _seed(rng: Any) -> int:
    return int(rng.integers(1 << 30))


def _drawn(shapes: Any, seed: int, counts: Any, floats: tuple[float, float] = ANY) -> Any:
    """Drawn values for variables, in host memory; for keys, on the default device."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda shape: _filled(rng, shape, floats, counts), shapes)


def _counts(rng: Any) -> Iterator[Any]:
    """COUNTS, in a drawn order, again and again; the last one reaches what the file names."""
    *others, last = COUNTS
    more = beyond(rng, last[1], MOST_COUNT)
    last = last if more == last[1] else (more, more + 1)
    return cycle(rng.permutation([*others, last]).tolist())


def _make_odd(rng: Any, drawn: Any) -> None:
    """Write what a careless copy loses into the floats of drawn values."""
    arrays = [leaf for leaf in jax.tree.leaves(drawn) if isinstance(leaf, np.ndarray)]
    some_odd(rng, *(array for array in arrays if array.dtype.kind == "f"))


def _one(drawn: Any, layer: str, name: str) -> Any:
    """One of the drawn arrays."""
    leaves = jax.tree_util.tree_leaves_with_path(drawn)
    named = ((jax.tree_util.keystr(path), array) for path, array in leaves)
    return next(array for path, array in named if f"'{layer}'" in path and f"'{name}'" in path)


def _with_zeros(drawn: Any, small: int) -> Any:
    """The values, of which the weights of the feature `small` are 0."""
    _one(drawn, "hidden", "kernel")[small] = 0
    return drawn


def _make_far(drawn: Any, inputs: Any, large: float, feature: int) -> None:
    """Write values and a feature with which the loss and some gradients are larger than `large`.

    All that is in between stays as it was: where an activation is large, its weights are small.
    """
    times = FURTHER * large
    inputs[:, feature] *= times
    _one(drawn, "hidden", "kernel")[feature] /= times
    _one(drawn, "norm", "scale")[:] *= times
    _one(drawn, "norm", "bias")[:] *= times
    _one(drawn, "out", "kernel")[:] /= times
    _one(drawn, "out", "bias")[:] *= large


def _batches(
    rng: Any, features: int, usual: tuple[int, int], small: int
) -> Iterator[tuple[Any, Any]]:
    """Batches in NumPy: inputs (rows, features) float64, labels (rows,) int32.

    Rows are the first of `usual`, but of every fourth batch the other. The feature `small` is a
    hundred thousandth of what the others are.
    """
    for number in count(1):
        rows = usual[number % 4 == 0]
        inputs, labels = rng.standard_normal((rows, features)), rng.integers(0, 4, rows)
        inputs[:, small] *= 1e-5
        yield inputs, labels.astype(np.int32)


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


def _numbers(model: Any) -> dict[str, Any]:
    """The numbers of a model, in NumPy, if they can be read."""
    arrays = {name: x for name, x in _state(model).items() if isinstance(x, jax.Array)}
    return {name: np.array(array) for name, array in arrays.items() if not array.is_deleted()}


def _same(old: dict[str, Any], new: dict[str, Any]) -> bool:
    same = (
        np.array_equal(old[name], new[name], equal_nan=True) for name in old.keys() & new.keys()
    )
    return old.keys() == new.keys() and all(same)


def _floats(state: dict[str, Any]) -> dict[str, Any]:
    """Parameters and statistics."""
    return {name: x for name, x in state.items() if name.startswith(("Param", "BatchStat"))}


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
    most = int(rng.integers(3, len(MODELS)))
    wide, trained = (beyond(rng, features, n, each=16) for n in (MOST_FEATURES, MOST_TRAINED))
    with observe.unwatched():
        forms = {n: _empty(submission.Net, n) for n in (features, wide, trained)}
    observe.fact(PLACED, most + 1)
    places = [rng.permutation(jax.devices())[:2].tolist() for _ in range(most - 1)]
    places[rng.integers(most - 1)][:] = [rng.choice(jax.devices())] * 2
    places.append(places[rng.integers(most - 1)])
    through, given, placed = [0, 0], list[Any](), list[Any]()
    counts, sizes = _counts(rng), [features, wide, *[features] * most]
    for size, (device, default) in zip(sizes, places, strict=False):
        with jax.default_device(default), dumped.programs() as texts:
            with observe.unwatched():  # uncommitted, on the default device
                graph, shapes = forms[size]
                drawn = _drawn(shapes, _seed(rng), next(counts))
                if given:
                    _make_odd(rng, drawn)
                given.append(nnx.merge(graph, jax.device_put(drawn)))
                given[-1].dropout.rate = float(rng.uniform(0.1, 0.9))
                given[-1].norm.momentum = float(rng.uniform(0.5, 0.99))
            placed.append(_place(submission, observe, device, given[-1]))
        through[0] += sum(map(dumped.uses_the_host, texts))
    with observe.unwatched():
        for name, model in zip(MODELS, placed, strict=False):
            _keep(observe, name, model)
        turned = [path for model in placed for path in in_other_order(_state(model))]
        observe.fact(IN_OTHER_ORDER, turned)
    again = rng.integers(most)
    device, default = rng.permutation([d for d in jax.devices() if d != places[again][0]])[:2]
    with jax.default_device(default):
        for _ in range(beyond(rng, most, MOST_MODELS) - most):
            with observe.unwatched():
                graph, shapes = forms[features]
                drawn = jax.device_put(_drawn(shapes, _seed(rng), next(counts)))
                more = nnx.merge(graph, drawn)
            _place(submission, observe, device, more)
        with observe.unwatched():
            drawn = _drawn(forms[sizes[again]][1], _seed(rng), next(counts))
            _make_odd(rng, drawn)
            nnx.update(given[again], jax.device_put(drawn))
        model = _place(submission, observe, device, given[again])
        with observe.unwatched():
            _keep(observe, MODELS[most], model)
    drawn = rng.permutation(jax.devices())
    devices, default = drawn[:2].tolist(), drawn[min(2, len(drawn) - 1)]
    with jax.default_device(default), dumped.programs() as texts:
        with observe.unwatched():
            pairs, models = zip((features, trained), devices, strict=False), list[Any]()
            seed, apart = _seed(rng), beside(rng)
            for size, device in pairs:
                drawn = _drawn(forms[size][1], seed, COUNTS[1])
                models.append(nnx.merge(forms[size][0], jax.device_put(drawn, device)))
                models[-1].dropout.rate = float(apart.uniform(0.1, 0.9))
                models[-1].norm.momentum = float(apart.uniform(0.5, 0.99))
        with jax.default_matmul_precision("highest"):
            _train(submission, observe, rng, devices, (features, trained), models, forms)
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


def _stepped(submission: ModuleType, model: Any, batch: Any) -> Any:
    """What a step returns; where it asks for gradients of a whole model, the error says so."""
    try:
        return submission.train_step(model, batch)
    except TypeError as error:
        if "grad requires" in str(error):
            error.add_note(OF_ALL)
        raise


def _lengths(rng: Any, steps: int) -> list[int]:
    """The steps of rounds that have `steps` together, or a few more."""
    lengths: list[int] = []
    while sum(lengths) < steps:
        lengths.append(int(rng.integers(*STEPS_OF_A_ROUND)))
    return lengths


def _train(
    submission: ModuleType,
    observe: Observe,
    rng: Any,
    devices: list[Any],
    features: tuple[int, int],
    models: list[Any],
    forms: dict[int, tuple[Any, Any]],
) -> None:
    counts, floats, large = _counts(rng), cycle(FLOATS), far(rng, MOST_NUMBER)
    lengths = _lengths(rng, STEPS_IN_ALL)
    turns = rng.permutation([index % 2 for index in range(len(lengths))]).tolist()
    lengths += _lengths(rng, beyond(rng, sum(lengths), MOST_STEPS) - sum(lengths))
    lengths += [1] if large else []
    turns += [0] * (len(lengths) - len(turns))
    observe.fact(STEPS, [len(lengths), sum(lengths)])
    small, (one, two, three) = int(rng.integers(min(features))), rng.permutation(range(6, 40))[:3]
    rows = rng.permutation(np.array([(one, one), (two, three)])).tolist()
    rows[0][1] = beyond(rng, rows[0][1], MOST_ROWS, each=features[0])
    batches = [_batches(rng, *sizes, small) for sizes in zip(features, rows, strict=True)]
    changed, used_up = list[int](), list[int]()
    with observe.unwatched():
        known, left = _settings(models[0]), [_numbers(model) for model in models]
    for number, (steps, turn) in enumerate(zip(lengths, turns, strict=True)):
        model = models[turn]
        last = large and number == len(lengths) - 1
        with observe.unwatched():
            shapes = forms[features[turn]][1]
            drawn = _with_zeros(_drawn(shapes, _seed(rng), next(counts), next(floats)), small)
            given = next(batches[turn])
            if last:
                _make_far(drawn, given[0], large, small - 1)
            nnx.update(model, jax.device_put(drawn, devices[turn]))
            observe.value(before(number), _state(model))
        found = []
        for step in range(steps):
            with observe.unwatched():
                given = next(batches[turn]) if step else given
                inputs, labels = given
                batch = jax.device_put((inputs.astype(np.float32), labels), devices[turn])
            with observe.phase("step"):
                found.append(_stepped(submission, model, batch))
            with observe.unwatched():
                used_up += [number] * any(array.is_deleted() for array in batch)
                if len(found) == 1:
                    observe.value(first(number), _state(model))
                else:
                    observe.value(later(number, len(found)), _floats(_state(model)))
        observe.value(losses(number), found)
        with observe.unwatched():
            observe.value(trained(number), _state(model))
            changed += [number] * (not _same(left[1 - turn], _numbers(models[1 - turn])))
            left[turn] = _numbers(model)
            now = _settings(model)
            observe.value(settings(trained(number)), {name: now.get(name) for name in known})
    observe.fact(ANOTHER_CHANGED, changed)
    observe.fact(USED_UP, used_up)
    with observe.unwatched():
        for name, model in zip(AT_THE_END, models, strict=True):
            observe.value(name, _state(model), data=False)
