"""Drives ex26_pinned_host: trees to the host and back to the device, and `predict` as a program.

A tree has four arrays, each of another dtype and each placed in another way: split by rows,
split by columns, copied to all devices, alone on one device. Drawn anew for each tree are its
size, the dtypes, which array lies how, the order of the devices in each mesh, and the one
device, so neither the name of an array nor its dtype tells where it lies. The sizes of the
network that `predict` gets are drawn as well.

Each function gets trees that the other one never saw: those for `to_device` were staged by
the drive. So each function is judged by itself, and `to_device` cannot use what `to_host`
remembered. A function that changes the tree it was given, or deletes its arrays, is refused.
`predict` is exported, and never runs in this process.
"""

import contextlib
from types import ModuleType
from typing import Any

import jax
import numpy as np

from grader.checks.ex26_pinned_host.facts import FUNCTIONS, ROUNDS
from grader.judging.memory import PINNED
from grader.probes.host_operations import host_operations
from grader.probes.observe import Misused, Observe


def _put(values: Any, devices: Any, *spec: str | None) -> Any:
    """`values` on all `devices`, which are the axis "x" of a mesh in this order."""
    mesh = jax.sharding.Mesh(np.array(devices), ("x",))
    return jax.device_put(values, jax.NamedSharding(mesh, jax.P(*spec)))


def _tree(rng: Any) -> dict[str, Any]:
    """A tree of four (rows, rows) arrays, whose size, dtypes and places are drawn."""
    rows = jax.device_count() * int(rng.integers(2, 7))
    values = rng.standard_normal((rows, rows)) * 9
    dtypes = rng.permutation(["float32", "bfloat16", "int32", "float16"])
    # NumPy converts them: JAX would compile a program for each dtype.
    one, two, three, four = (values.astype(jax.numpy.dtype(str(dtype))) for dtype in dtypes)
    orders = [rng.permutation(np.array(jax.devices())) for _ in range(4)]
    alone = jax.device_put(four, orders[3][0])
    split = [_put(one, orders[0], "x"), _put(two, orders[1], None, "x")]
    arrays = [*split, _put(three, orders[2]), alone]
    a, b, c, d = (arrays[i] for i in rng.permutation(4))  # no name tells where an array lies
    return {"embedding": a, "layers": [{"w": b, "b": c}, (d,)]}


def _network(rng: Any, width: int, rows: int) -> tuple[Any, Any]:
    """(params, inputs), float32: params of (16, width), (width,) and (width, 4), which are
    split over the devices, and inputs (rows, 16), which are copied to each."""
    shapes = {"w1": (16, width), "b1": (width,), "w2": (width, 4), "inputs": (rows, 16)}
    drawn = {k: (rng.standard_normal(s) / 4).astype("float32") for k, s in shapes.items()}
    devices = jax.devices()
    inputs = _put(drawn.pop("inputs"), devices)
    specs = {"w1": (None, "x"), "b1": ("x",), "w2": ("x",)}
    return {name: _put(values, devices, *specs[name]) for name, values in drawn.items()}, inputs


def _staged(tree: Any) -> Any:
    """`tree` in pinned host memory, staged by the drive."""
    return jax.tree.map(lambda x: jax.device_put(x, x.sharding.with_memory_kind(PINNED)), tree)


def _result(function: Any, tree: Any, name: str) -> Any:
    """The tree that `function` makes of `tree`.

    Raises `Misused` where it is not a tree like `tree`, or where `tree` itself was changed.
    """
    before, wanted = jax.tree.leaves(tree), str(jax.tree.structure(tree))
    result = function(tree)
    after, found = jax.tree.leaves(tree), str(jax.tree.structure(result))
    changed = [id(array) for array in before] != [id(array) for array in after]
    if changed or any(array.is_deleted() for array in before):
        done = "it puts other arrays into it" if changed else "it deletes the arrays in it"
        raise Misused(f"`{name}` leaves its argument as it is", done)
    if wanted != found:
        raise Misused(f"`{name}` returns a tree like its argument, {wanted}", found)
    return result


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Call each function with a fresh tree in each round, and export `predict`."""
    for index in ROUNDS:
        for name in FUNCTIONS:
            tree = _tree(rng)
            given = _staged(tree) if name == "to_device" else tree
            observe.value(f"original of {name} {index}", tree)
            with observe.phase(name):
                result = _result(getattr(submission, name), given, name)
            observe.value(f"{name} {index}", result)
    _predict(submission.predict, observe, rng)


def _predict(predict: Any, observe: Observe, rng: Any) -> None:
    if not observe.jitted("predict", predict):
        return
    width, rows = jax.device_count() * int(rng.integers(3, 12)), int(rng.integers(9, 48))
    params, inputs = _network(rng, width, rows)
    staged = _staged(params)
    observe.program("predict", predict, staged, inputs)
    # Operands in different memories raise a ValueError. The exported program reports that one.
    with contextlib.suppress(ValueError):
        jaxpr = jax.make_jaxpr(predict)(staged, inputs).jaxpr
        observe.fact("on host", host_operations(jaxpr))
