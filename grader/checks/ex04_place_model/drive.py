"""Drives ex04_place_model: places models of drawn sizes, and takes a step with one of them.

The first model, and one more, have the file's optimizer: a step is taken with one of the two, and
`place` cannot know with which. The others have other optimizers, whose states have other types, and
one of them has arrays of other dtypes, too. So it helps nobody to take Adam's state apart, or to
name one device always. These two are of one size, and go from the same device to the same one: only
their numbers differ. At last the params and the state of one model are placed again, on another
device. Counts are positive: a state made anew by `init` differs. A step that JAX refuses is a fact
about the placement, and no error of the run; with other optimizers, a step is traced only.

Drawn: how many models are placed (6 to 8), with which a step is taken, the default device and the
device asked for each time, the optimizers, their order and what they clip at, the features and
rows of each batch, and all numbers, some of them 0 or negative.
"""

import traceback
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from grader.checks.ex04_place_model.facts import (
    AGAIN,
    FORM_OF_BATCH,
    IN_OTHER_ORDER,
    MODELS,
    PLACE_RAISED,
    PLACED,
    STEP_RAISED,
    STEPPED,
    THROUGH_HOST,
    TRACE_RAISED,
    TREES,
    UNSEEN,
)
from grader.probes import dumped, launches, private
from grader.probes.observe import Observe, unpack

PROMISE = "`place` returns (params, opt_state, batch)"
SIZES = (range(3, 16), range(16, 64), range(64, 200), range(60, 200, 60))
"""Features are drawn from one of these; rows from each of them at least once."""
TRACED = 9973
"""Features of the network that is traced: no other size of its parameters."""
FEWEST = 6
"""So many models are placed at least."""
OF_OTHER_DTYPES = "optax.apply_if_finite(adam in bfloat16)"
"""An optimizer whose state holds bools and bfloat16, too; always among those that are drawn."""


def _others(rng: Any) -> dict[str, Any]:
    """Optimizers that the file does not have, by the words for them."""
    clip, rate = float(rng.uniform(0.5, 2)), 0.1
    return {
        "optax.chain(clip, adam)": optax.chain(
            optax.clip(clip), optax.adam(optax.constant_schedule(rate))
        ),
        "optax.chain(clip_by_global_norm, adagrad)": optax.chain(
            optax.clip_by_global_norm(clip), optax.adagrad(rate)
        ),
        "optax.sgd with momentum": optax.sgd(rate, momentum=0.9),
        "optax.lion": optax.lion(rate),
        "optax.rmsprop": optax.rmsprop(rate, momentum=0.9, centered=True),
        "optax.inject_hyperparams(adam)": optax.inject_hyperparams(optax.adam)(rate),
        "optax.MultiSteps(adamw)": optax.MultiSteps(optax.adamw(rate), 4),
        OF_OTHER_DTYPES: optax.apply_if_finite(optax.adam(rate, mu_dtype=jnp.bfloat16), 9),
    }


def _values(rng: Any, shape: Any) -> Any:
    """NumPy values for a `ShapeDtypeStruct`: bools, integers from 3 to 98, floats in (-1/4, 1/4).

    Some of the floats are 0.
    """
    if shape.dtype == bool:
        return rng.random(shape.shape) < 0.5
    if np.issubdtype(shape.dtype, np.integer):
        return np.asarray(rng.integers(3, 99, shape.shape), shape.dtype)
    values = rng.uniform(-1, 1, shape.shape) / 4
    return np.where(rng.random(shape.shape) < 0.1, 0, values).astype(shape.dtype)


def _parameters(network: Any) -> Any:
    """The parameters of `network` for inputs of `TRACED` features, as `ShapeDtypeStruct`s."""
    key = jax.ShapeDtypeStruct((2,), np.uint32)
    return jax.eval_shape(network.init, key, jax.ShapeDtypeStruct((1, TRACED), np.float32))


def _inputs(traced: Any, optimizer: Any, rng: Any, features: int, rows: int) -> tuple[Any, ...]:
    """Parameters and optimizer state on the default device, uncommitted; a NumPy batch.

    `traced` is what `_parameters` returns. inputs (rows, features) float32, labels (rows,) int32.
    """
    inputs = rng.standard_normal((rows, features)).astype(np.float32)
    labels = rng.integers(0, 4, rows).astype(np.int32)

    def sized(leaf: Any) -> Any:
        shape = tuple(features if size == TRACED else size for size in leaf.shape)
        return jax.ShapeDtypeStruct(shape, leaf.dtype)

    params = jax.tree.map(sized, traced)
    state = params, jax.eval_shape(optimizer.init, params)
    placed = jax.device_put(jax.tree.map(lambda shape: _values(rng, shape), state))
    return *placed, (inputs, labels)


def _sizes(rng: Any, rows: range) -> tuple[Any, Any, int, int]:
    """The default device, another one that is asked for, the features, and the rows of a batch."""
    default, device = rng.permutation(jax.devices())[:2]
    features = int(rng.choice(SIZES[rng.integers(len(SIZES))]))
    return default, device, features, int(rng.choice(rows))


def _in_other_order(prefix: str, placed: tuple[Any, ...]) -> list[str]:
    """The arrays whose dimensions lie in memory in another order than a program expects them."""
    found = []
    for name, tree in zip(TREES, placed, strict=True):
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            layout = _layout(leaf)
            if layout is not None and layout.major_to_minor != tuple(range(leaf.ndim)):
                found.append(prefix + name + jax.tree_util.keystr(path))
    return found


def _layout(leaf: Any) -> Any:
    is_array = type(leaf) is private.array_type()
    return leaf.format.layout if is_array else None


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Place models, and take a step with one of those that have the file's optimizer."""
    others = _others(rng)
    count = int(rng.integers(FEWEST, len(MODELS) + 1))
    usual = [name for name in others if name != OF_OTHER_DTYPES]
    drawn = [OF_OTHER_DTYPES, *rng.choice(usual, count - 4, replace=False).tolist()]
    words = ["", *rng.permutation([*drawn, ""]).tolist(), rng.choice(drawn)]
    ranges = rng.permutation(np.arange(count - 2) % len(SIZES)).tolist()
    observe.fact(PLACED, count)
    through = 0
    stepped = MODELS[rng.choice([index for index, name in enumerate(words) if not name])]
    with observe.unwatched():
        traced = _parameters(submission.network)
        programs = launches.Places()
        again = _Again()
    sizes, given = dict[str, tuple[Any, ...]](), dict[str, tuple[Any, ...]]()
    for prefix, name in zip(MODELS[:count], words, strict=True):
        if name not in sizes:
            sizes[name] = _sizes(rng, SIZES[ranges.pop()])
        default, device, features, rows = sizes[name]
        if prefix == MODELS[count - 1]:
            device = rng.choice(
                [d for d in jax.devices() if d not in (default, device)] or [device]
            )
        with jax.default_device(default):
            optimizer = others[name] if name else submission.optimizer
            with observe.unwatched():
                inputs = _inputs(traced, optimizer, rng, features, rows)
                if prefix == MODELS[count - 1] and not _deleted(given[name]):
                    inputs = *given[name], inputs[-1]
            given[name] = inputs[:-1]
            try:
                with (
                    dumped.programs() as texts,
                    programs.launched(again.launched),
                    observe.phase("place"),
                ):
                    placed = submission.place(*inputs, device)
            except Exception as error:
                if prefix == MODELS[0]:
                    raise
                said = f"for a state of {name or 'the same optimizer'}, it raised "
                stack = traceback.extract_tb(error.__traceback__)
                lines = [frame.lineno for frame in stack if frame.filename == submission.__file__]
                told = f"{said}{type(error).__name__}: {error}"
                observe.fact(PLACE_RAISED, [told, lines[-1] if lines else None])
                return
            through += sum(map(dumped.uses_the_host, texts))
            placed = unpack(placed, 3, PROMISE)
            for kind, tree in zip(TREES, placed, strict=True):
                observe.value(prefix + kind, tree)
            observe.fact(prefix + FORM_OF_BATCH, type(placed[2]).__name__)
            observe.fact(prefix + IN_OTHER_ORDER, _in_other_order(prefix, placed))
            if prefix == stepped:
                _step(submission, observe, placed, prefix)
            elif name:
                _trace_a_step(optimizer, observe, placed, name)
    observe.fact(THROUGH_HOST, through)
    observe.fact(AGAIN, again.given)
    observe.fact(UNSEEN, programs.problem)


def _deleted(tree: Any) -> bool:
    """Whether an array of a tree is gone, since `place` gave it away."""
    return any(leaf.is_deleted() for leaf in jax.tree.leaves(tree))


class _Again:
    """Counts what programs are given on devices where it lies already, by the program's name."""

    def __init__(self) -> None:
        self.given: dict[str, int] = {}

    def launched(self, name: str, devices: Sequence[str], given: Sequence[Any]) -> None:
        """Count the arrays of one launch."""
        if there := launches.given_there(devices, given):
            self.given[name] = self.given.get(name, 0) + there


def _step(submission: ModuleType, observe: Observe, placed: tuple[Any, ...], prefix: str) -> None:
    """Take one step with what `place` returned, and keep its results, or what it raised."""
    try:
        with observe.phase("step"):
            results = submission.train_step(*placed)
    except Exception as error:  # noqa: BLE001 (whatever it raises is a fact to judge)
        observe.fact(STEP_RAISED, f"{type(error).__name__}: {error}")
    else:
        observe.value(prefix + STEPPED, results, data=False)


def _trace_a_step(optimizer: Any, observe: Observe, placed: tuple[Any, ...], name: str) -> None:
    """Trace a step of another optimizer with what `place` returned: nothing is computed."""
    params, state, _ = placed
    try:
        with observe.unwatched():
            jax.eval_shape(optimizer.update, params, state, params)
    except Exception as error:  # noqa: BLE001 (whatever it raises is a fact to judge)
        told = f"{type(error).__name__}: {error}"
        observe.fact(TRACE_RAISED, f"{told}, with the params and the state of {name}")
