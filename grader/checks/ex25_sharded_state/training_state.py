"""A training state and its batch: shapes with the shardings of a learner's `layout`, or arrays.

What the learner's `layout` returns is refused here where it is no layout at all. Whether it
is a good one, the checks decide.
"""

from types import ModuleType
from typing import Any

import jax
import numpy as np

from grader.checks.ex25_sharded_state.facts import Sizes, param_shapes
from grader.probes.observe import Misused, lacking
from grader.stages.drawn import beyond, one_of

MOST_STEPS = 1 << 30
"""Up to where a count reaches the numbers that the file names."""
EVERY = 13
"""Of so many numbers in a fresh state, one has moments of 0, and another one is 0 itself."""
NEAR_ZERO = -8.0, -6.0
"""How large a feature is that is next to 0, as a power of 10: so small are some gradients."""


def _struct(*shape: int, dtype: Any = "float32", place: Any = None) -> Any:
    """An array's shape, type and sharding."""
    return jax.ShapeDtypeStruct(shape, dtype, sharding=place)


def _state(sizes: Sizes) -> dict[str, Any]:
    """The state as shapes: three float32 trees like the params, and an int32 count."""
    shapes = param_shapes(sizes)
    params = {name: _struct(*shape) for name, shape in shapes.items()}
    trees = {name: dict(params) for name in ("params", "mean", "square")}
    return trees | {"count": _struct(dtype="int32")}


def _layout(submission: ModuleType, mesh: jax.sharding.Mesh, state: Any) -> Any:
    """`state` with the shardings of the learner's layout.

    Raises `Misused` where the layout is not a tree of shardings, or does not fit.
    """

    def placed(array: Any, place: Any) -> Any:
        if list(place.mesh.devices.flat) != list(mesh.devices.flat):
            same = ", of other devices or in another order" if place.mesh.size == mesh.size else ""
            raise Misused("`layout` uses the mesh that it is given", f"it uses {place.mesh}{same}")
        if len(place.spec) > len(array.shape):
            bad = f"{place.spec} for an array of shape {array.shape}"
            raise Misused("`layout` splits only dimensions that an array has", bad)
        try:
            place.shard_shape(array.shape)
        except ValueError as error:
            fit = [str(n) for n, size in enumerate(array.shape) if size % mesh.size == 0]
            bad = f"{place.spec} for {array.shape}, on {mesh.size} devices"
            bad += f"; what can be divided is dimension {' or '.join(fit)}" if fit else ""
            raise Misused("`layout` splits only dimensions that can be divided", bad) from error
        return _struct(*array.shape, dtype=array.dtype, place=place)

    layout, trees = submission.layout(mesh, state), jax.tree.structure
    kinds = sorted({type(leaf).__name__ for leaf in jax.tree.leaves(layout)})
    if kinds != ["NamedSharding"] or str(trees(state)) != str(trees(layout)):
        promise = "`layout` returns a NamedSharding for each array, in a tree like `state`"
        got = f"it returned a {type(layout).__name__} of {', '.join(kinds)}"
        raise Misused(promise, got + lacking("state", state, layout))
    return jax.tree.map(placed, state, layout)


def shapes(submission: ModuleType, mesh: jax.sharding.Mesh, sizes: Sizes, rows: int) -> Any:
    """(state, batch) as shapes with shardings; the rows of the batch are split over "data".

    All arrays are float32, except the int32 count.

    Raises `Misused` where the learner's layout is not a tree of shardings, or does not fit.
    """
    split = jax.NamedSharding(mesh, jax.P("data"))
    batch = tuple(_struct(rows, size, place=split) for size in (sizes.features, sizes.outputs))
    return _layout(submission, mesh, _state(sizes)), batch


def drawn(
    rng: Any, structs: Any, count: int | None = None, far: float = 1, *, fresh: bool = False
) -> Any:
    """Arrays of random numbers, placed as `structs` say; second moments are positive.

    So many steps are counted (3 to 10,000 if None); targets are `far` times as far from 0. One
    feature is 0 in all rows, and another one is next to 0. If `fresh`, some numbers of the params
    are 0, and some have moments of 0.
    """
    before = int(10 ** rng.uniform(0.5, 4)) if count is None else count
    if count is None:
        before = one_of(rng, beyond(rng, before, MOST_STEPS), range(3, MOST_STEPS))

    def draw(path: Any, like: Any, scale: Any = 1) -> Any:
        numbers = 0.3 * scale * rng.standard_normal(like.shape)
        positive = "square" in jax.tree_util.keystr(path)
        counted = like.dtype == np.int32
        array = np.asarray(before if counted else numbers**2 if positive else numbers, like.dtype)
        if fresh and not counted:
            zero = np.arange(array.size).reshape(array.shape) % EVERY
            array[zero == ("params" in jax.tree_util.keystr(path))] = 0
        return jax.device_put(array, like.sharding)

    state, (inputs, targets) = structs
    features, apart = inputs.shape[1], rng.spawn(1)[0]
    unused = int(rng.integers(features))
    used = np.ones(features)
    used[unused] = 0
    used[unused - int(apart.integers(1, features))] = 10 ** apart.uniform(*NEAR_ZERO)
    batch = draw((), inputs, used), draw((), targets, far)
    return jax.tree_util.tree_map_with_path(draw, state), batch
