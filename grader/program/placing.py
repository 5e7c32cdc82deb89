"""Puts recorded inputs where a compiled program wants them, and reads its outputs.

Inputs are `Leaf` records with their values as `.npy`; the shardings and memory kinds are
the program's own. Shardings become text here, since that needs JAX's objects.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, Sharding
from numpy.typing import NDArray

from grader.judging.arrays import load
from grader.program.loading import Refused, aval_text, is_key
from grader.records.record import Leaf

_KEY_IMPLEMENTATIONS = {
    "key<fry>": "threefry2x32",
    "key<rbg>": "rbg",
    "key<urbg>": "unsafe_rbg",
}


def runnable(inputs: Sequence[Leaf]) -> bool:
    """Whether every input has values (a `ShapeDtypeStruct` has none)."""
    return all(leaf.data is not None for leaf in inputs)


def place(
    inputs: Sequence[Leaf], avals: Sequence[Any], shardings: Sequence[Sharding]
) -> tuple[jax.Array, ...]:
    """Build the flat arguments of a program.

    Raises:
      Refused: the program takes arguments of another number, shape or dtype.
    """
    leaves = [leaf for leaf in inputs if leaf.type != "NoneType"]
    if len(leaves) != len(avals):
        raise Refused(f"it takes {len(avals)} array arguments, the exercise passes {len(leaves)}")
    return tuple(
        _place(index, leaf, aval, sharding)
        for index, (leaf, aval, sharding) in enumerate(zip(leaves, avals, shardings, strict=True))
    )


def _place(index: int, leaf: Leaf, aval: Any, sharding: Sharding) -> jax.Array:
    assert leaf.data is not None
    same_type = leaf.kind == "python" or _dtype(leaf.dtype) == str(aval.dtype)
    if leaf.shape != aval.shape or not same_type:
        raise Refused(
            f"argument {index} is {aval_text(aval)}, the exercise passes {aval_text(leaf)}"
        )
    values: Any = load(leaf.data)
    if is_key(aval):
        values = jax.random.wrap_key_data(values, impl=_KEY_IMPLEMENTATIONS[str(aval.dtype)])
    else:
        values = _unaligned(values.astype(aval.dtype))
    placed: jax.Array = jax.device_put(values, sharding)
    return placed


def _unaligned(values: "NDArray[Any]") -> "NDArray[Any]":
    """The same values in memory that is not aligned, so that JAX must copy them.

    On a CPU, JAX borrows aligned memory, and a borrowed buffer cannot be donated.
    """
    room = np.empty(values.size + 64 // min(values.itemsize, 64) + 1, values.dtype)
    start = 1 + (-room.ctypes.data // values.itemsize) % max(64 // values.itemsize, 1)
    moved: NDArray[Any] = room[start : start + values.size].reshape(values.shape)
    moved[...] = values
    return moved


def _dtype(name: str) -> str:
    """What JAX makes of a dtype: without x64, float64 is float32."""
    if name.startswith("key<"):
        return name
    return str(jax.dtypes.canonicalize_dtype(jax.numpy.dtype(name)))


def wait[T](arrays: T) -> T:
    """Block until every array of a pytree is computed."""
    block: Callable[[T], T] = jax.block_until_ready
    return block(arrays)


def plain(output: Any) -> Any:
    """An output as an ordinary array: PRNG keys become the integers that they hold."""
    return jax.random.key_data(output) if is_key(output) else output


def host(output: Any) -> "NDArray[Any]":
    """An output as a NumPy array; bfloat16 and the like widen to float32."""
    array = np.asarray(plain(output))
    return array if array.dtype.kind in "biufc" else array.astype(np.float32)


def sharding_text(sharding: Sharding, shape: tuple[int, ...]) -> str:
    """`P('data') on data=4,model=2`, `1 device`; with ` pinned_host` where it applies."""
    if sharding.num_devices == 1:
        place = "1 device"
    elif isinstance(sharding, NamedSharding):
        axes = ",".join(f"{name}={size}" for name, size in sharding.mesh.shape.items())
        place = f"{_spec(sharding)} on {axes}"
    else:
        devices = len(sharding.device_set)
        place = f"shards of {list(sharding.shard_shape(shape))} on {devices} devices"
    kind = sharding.memory_kind
    return place if kind in (None, "device") else f"{place} {kind}"


def _spec(sharding: NamedSharding) -> str:
    # P('x', None) and P('x') are the same sharding; so are P(('x',)) and P('x').
    parts = [p[0] if isinstance(p, tuple) and len(p) == 1 else p for p in sharding.spec]
    while parts and parts[-1] in (None, ()):
        parts.pop()
    return f"P({', '.join(map(repr, parts))})"
