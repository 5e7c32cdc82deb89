"""A training state and its batch: as shapes, placed by a learner's `layout`, and as arrays.

For an exercise whose file defines `layout`. Runs in a worker; what lies where it should is for
the checks to say.
"""

from types import ModuleType
from typing import Any

import jax
import numpy as np

from grader.checking import Misused


def _struct(*shape: int, dtype: Any = "float32", place: Any = None) -> Any:
    """An array's shape, type and sharding."""
    return jax.ShapeDtypeStruct(shape, dtype, sharding=place)


def _state(features: int, width: int, outputs: int) -> dict[str, Any]:
    """The state as shapes, float32, and an int32 count."""
    params = {"first": _struct(features, width), "bias": _struct(width), "scale": _struct(outputs)}
    params |= {"middle": _struct(width, width), "last": _struct(width, outputs)}
    trees = {name: dict(params) for name in ("params", "mean", "square")}
    return trees | {"count": _struct(dtype="int32")}


def _layout(submission: ModuleType, mesh: jax.sharding.Mesh, state: Any) -> Any:
    """`state` with the learner's layout, if it is one."""

    def placed(array: Any, place: Any) -> Any:
        try:
            place.shard_shape(array.shape)
        except ValueError as error:
            bad = f"{place.spec} for {array.shape}, on {mesh.size} devices"
            raise Misused("every dimension that `layout` splits can be divided", bad) from error
        return _struct(*array.shape, dtype=array.dtype, place=place)

    layout, trees = submission.layout(mesh, state), jax.tree.structure
    kinds = sorted({type(leaf).__name__ for leaf in jax.tree.leaves(layout)})
    if kinds != ["NamedSharding"] or str(trees(state)) != str(trees(layout)):
        promise = "`layout` returns a NamedSharding for each array, in a tree like `state`"
        raise Misused(promise, f"it returned a {type(layout).__name__} of {', '.join(kinds)}")
    return jax.tree.map(placed, state, layout)


def shapes(
    submission: ModuleType, mesh: jax.sharding.Mesh, sizes: tuple[int, int, int], rows: int
) -> Any:
    """(state, batch) of (features, width, outputs), as float32 shapes; rows split over "data".

    Raises `Misused` where the learner's layout is none, or does not fit.
    """
    split = jax.NamedSharding(mesh, jax.P("data"))
    batch = tuple(_struct(rows, size, place=split) for size in (sizes[0], sizes[2]))
    return _layout(submission, mesh, _state(*sizes)), batch


def drawn(rng: Any, structs: Any) -> Any:
    """Arrays of random numbers; counts are 3, second moments positive."""

    def draw(path: Any, like: Any) -> Any:
        numbers = 0.3 * rng.standard_normal(like.shape)
        positive = "square" in jax.tree_util.keystr(path)
        counted = like.dtype == np.int32
        array = np.asarray(3 if counted else numbers**2 if positive else numbers, like.dtype)
        return jax.device_put(array, like.sharding)

    return jax.tree_util.tree_map_with_path(draw, structs)
