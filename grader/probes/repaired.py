"""A run of a trainer: what its `step` gets and gives, call by call, and what `train` returns.

For an exercise whose file defines `train(step, model, key, batches)`. Runs in a worker; what is
right and what is wrong is for the checks to say.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from grader.checking import Misused, Observe, unpack

STEP, TRAIN = "`step` returns (model, loss)", "`train` returns (model, losses)"
ONCE = "`train` calls `step` once for each batch"
WRAPPED = "it traces it, inside another jit: jax.jit belongs on `step` itself, outside `train`"
PARTS = 10
"""How many keys are split from one that a step gets; `fold_in` of a small number is there too."""


def train(
    submitted: Callable[..., Any],
    observe: Observe,
    name: str,
    step: Callable[..., Any],
    start: tuple[Any, Any],
    batches: list[Any],
) -> None:
    """Run `submitted`, a `train`, under observation; facts and values are kept under `name`.

    `start` is (model, key) of NumPy arrays, and a batch is a pair of them.
    """
    calls, models, losses = [], [start[0]], []

    def watched(model: Any, key: Any, batch: Any) -> Any:
        observe.mark()
        with observe.unwatched():
            before, drawn, rows = _given((model, key, batch))
            number = next((i for i, known in enumerate(batches) if same(rows, known)), None)
            goes_on = same(before, models[-1])
            parts = jax.random.key_data(jax.random.split(key, PARTS)).tolist()
            told = {"key": drawn.tolist(), "parts": parts, "batch": number, "goes on": goes_on}
            calls.append(told)
        model, loss = unpack(step(model, key, batch), 2, STEP)
        with observe.unwatched():
            models.append(jax.device_get(model))
            losses.append(float(loss))
            observe.value(f"{name}: loss of step {len(calls)}", loss, data=False)
        return model, loss

    with observe.unwatched():
        placed = jax.device_put(start)
    with observe.phase(name):
        returned = unpack(submitted(watched, *placed, iter(batches)), 2, TRAIN)
    observe.fact(f"calls of {name}", calls)
    observe.fact(f"{name} returned", _problem(returned, models[-1], losses))
    observe.value(f"model of {name}", returned[0], data=False)


def _problem(returned: Any, model: Any, losses: list[float]) -> str:
    """What is wrong with what `train` returned, after its last step made `model`."""
    mine, several = returned[1], isinstance(returned[1], list | tuple)
    kinds = [type(x) for x in (mine if several else [mine])]
    if odd := [k for k in kinds if not (several and issubclass(k, float | np.floating))]:
        kind = "jax.Array" if issubclass(odd[0], jax.Array) else odd[0].__name__
        return f"losses {'hold' if several else 'are no list, but'} a value of type {kind}"
    if len(mine) != len(losses) or not np.allclose(mine, losses, rtol=1e-5):
        return f"losses are {mine}, the steps gave {losses}"
    return "" if same(returned[0], model) else "the model is not the last step's"


def _given(arguments: Any) -> Any:
    """What `step` was called with, as NumPy arrays."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(arguments)):
        raise Misused(ONCE, WRAPPED)
    model, key, batch = arguments
    return jax.device_get((model, jax.random.key_data(key), batch))


def same(mine: Any, theirs: Any) -> bool:
    """Whether two trees hold the same numbers."""
    mine, theirs = jax.tree.leaves(mine), jax.tree.leaves(theirs)
    return len(mine) == len(theirs) and all(map(np.array_equal, mine, theirs))
