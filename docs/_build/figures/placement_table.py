"""Asks JAX for every state of the figure "Where does my array live?", and prints the answers.

A program of its own, because it needs JAX and eight simulated devices: `placement` runs it. Each
place comes from `devices_indices_map`, each collective from a compiled program, each refusal from
the exception that JAX raises. No rule of sharding is written down here.
"""

import importlib
import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

LESSONS = Path(__file__).resolve().parents[2] / "lessons"
sys.path.insert(0, str(LESSONS))
_collectives = importlib.import_module("_collectives")  # lies beside the lessons, in no package

MESHES = {"4 x 2": (4, 2), "2 x 4": (2, 4), "8": (8,)}
AXES = ("data", "model")
SHAPES = ((8, 8), (6, 8), (1024, 1024))
DTYPE = np.dtype(np.float32)
type Spec = tuple[str, str]
"""For each of two dimensions the axes that split it: "", "data", "model" or "data,model"."""


def specs(axes: tuple[str, ...]) -> list[Spec]:
    """Every spec of an array of two dimensions that names no axis twice."""
    ways = ["", *axes, *([",".join(axes)] if len(axes) > 1 else [])]
    return [(a, b) for a, b in product(ways, ways) if not set(_names(a)) & set(_names(b))]


def _names(way: str) -> list[str]:
    return way.split(",") if way else []


def partition(spec: Spec) -> PartitionSpec:
    """JAX's form of a spec, without `None` at its end."""
    parts = [
        tuple(names) if len(names) > 1 else next(iter(names), None) for names in map(_names, spec)
    ]
    while parts and parts[-1] is None:
        parts.pop()
    return PartitionSpec(*parts)


def written(spec: PartitionSpec) -> str:
    """`P('data', None)` as `P('data')`: as a person writes it."""
    parts = list(spec)
    while parts and parts[-1] is None:
        parts.pop()
    return f"P({', '.join(map(repr, parts))})"


def place(mesh: Mesh, shape: tuple[int, int], spec: Spec) -> list[list[int]] | str:
    """For each device the rows and columns that it holds: first, end, first, end; or why not."""
    sharding = NamedSharding(mesh, partition(spec))
    try:
        held = sharding.devices_indices_map(shape)
    except ValueError as error:
        return _short(error, "implies that ")
    return [
        [
            edge
            for part, size in zip(held[device], shape, strict=True)
            for edge in part.indices(size)[:2]
        ]
        for device in jax.devices("cpu")[:8]
    ]


def _short(error: Exception, after: str) -> str:
    text = str(error)
    found = text.partition(after)[2] or text
    return f"{type(error).__name__}: {found.partition(' (full shape')[0]}"


def added(mesh: Mesh, shape: tuple[int, int], a: Spec, b: Spec) -> dict[str, Any]:
    """What `a + b` is on an Auto mesh: its collectives, with bytes of result a device, and spec."""
    arguments = _arguments(mesh, shape, a, b)
    compiled = jax.jit(jnp.add).lower(*arguments).compile()
    sent = [[one.op, one.nbytes] for one in _collectives.collectives(compiled.as_text())]
    return {"sent": sent, "spec": written(compiled.output_shardings.spec)}


def added_explicitly(mesh: Mesh, shape: tuple[int, int], a: Spec, b: Spec) -> dict[str, Any]:
    """The same on an Explicit mesh: the spec that JAX works out, or its refusal."""
    try:
        result = jax.eval_shape(jnp.add, *_arguments(mesh, shape, a, b))
    except Exception as error:
        if type(error).__name__ != "ShardingTypeError":  # the class has no public name
            raise
        return {"refused": f"ShardingTypeError: {error}"}
    return {"spec": written(result.sharding.spec)}


def _arguments(mesh: Mesh, shape: tuple[int, int], *wanted: Spec) -> list[jax.ShapeDtypeStruct]:
    shardings = [NamedSharding(mesh, partition(spec)) for spec in wanted]
    return [jax.ShapeDtypeStruct(shape, DTYPE, sharding=sharding) for sharding in shardings]


def meshes(name: str) -> tuple[Mesh, Mesh]:
    """The mesh of this name with Auto and with Explicit axes, over eight CPU devices."""
    lengths = MESHES[name]
    grid = np.array(jax.devices("cpu")[:8]).reshape(lengths)
    axes = AXES[: len(lengths)]
    explicit = jax.make_mesh(
        lengths, axes, axis_types=(AxisType.Explicit,) * len(axes), devices=list(grid.ravel())
    )
    return Mesh(grid, axes), explicit


def table() -> dict[str, Any]:
    """All states: `places[mesh][shape][spec]` and `sums[mesh][shape][spec][spec]`.

    Sums hold indices into `answers`: [Auto, Explicit].
    """
    answers: list[str] = []

    def noted(answer: dict[str, Any]) -> int:
        text = json.dumps(answer)
        if text not in answers:
            answers.append(text)
        return answers.index(text)

    places: dict[str, Any] = {}
    sums: dict[str, Any] = {}
    for name in MESHES:
        auto, explicit = meshes(name)
        ways = specs(auto.axis_names)
        for shape in SHAPES:
            title = " x ".join(map(str, shape))
            found = {"/".join(spec): place(auto, shape, spec) for spec in ways}
            places.setdefault(name, {})[title] = found
            fit = [spec for spec in ways if not isinstance(found["/".join(spec)], str)]
            sums.setdefault(name, {})[title] = {
                "/".join(a): {
                    "/".join(b): [
                        noted(added(auto, shape, a, b)),
                        noted(added_explicitly(explicit, shape, a, b)),
                    ]
                    for b in fit
                }
                for a in fit
            }
    return {
        "jax": jax.__version__,
        "dtype": str(DTYPE),
        "itemsize": DTYPE.itemsize,
        "axes": {name: list(AXES[: len(lengths)]) for name, lengths in MESHES.items()},
        "places": places,
        "sums": sums,
        "answers": [json.loads(text) for text in answers],
    }


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    print(json.dumps(table(), separators=(",", ":")))
