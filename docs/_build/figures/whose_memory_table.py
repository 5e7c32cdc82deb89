"""Compiles training steps for 8 x H200 and prints what they need: points of "Whose memory?".

A program of its own: nothing is run, and no GPU is needed, but the CUDA plugin that `make target`
installs. The step is that of a deep network with Adam; the figure counts its arrays by arithmetic,
and what the compiler decided stands beside that where a point was compiled.
"""

import importlib
import json
import sys
from functools import partial
from itertools import batched
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

LESSONS = Path(__file__).resolve().parents[2] / "lessons"
sys.path.insert(0, str(LESSONS))
_target = importlib.import_module("_target")  # lies beside the lessons, in no package

DTYPES = ("float32", "bfloat16")
MESHES = ("8 x 1", "4 x 2", "2 x 4", "1 x 8")
SHARING = ("copied", "moments", "all")
"""What is split over the axis "data": nothing, the moments (ZeRO-1), weights as well (FSDP)."""
LAYERS = (4, 8, 16, 32, 64)
WIDTHS = (4096, 8192, 16384)
ROWS = (8192, 65536, 262144)
WIDER = 4
"""The middle of a layer is so many times as wide as its ends."""


class State(NamedTuple):
    """One state of the figure."""

    layers: int
    width: int
    rows: int
    dtype: str
    mesh: str
    sharing: str
    remat: bool
    donated: bool


_START = State(8, 8192, 65536, "float32", "8 x 1", "copied", remat=False, donated=True)
COMPILED = (
    *(
        _START._replace(mesh=mesh, sharing=sharing, remat=remat)
        for mesh in ("8 x 1", "2 x 4")
        for sharing in SHARING
        for remat in (False, True)
    ),
    _START._replace(donated=False),
    _START._replace(dtype="bfloat16"),
    _START._replace(dtype="bfloat16", sharing="all", remat=True),
    _START._replace(mesh="1 x 8"),
)


def layer(hidden: jax.Array, weights: dict[str, jax.Array]) -> tuple[jax.Array, None]:
    """One layer: out to the wide middle and back, beside the way straight on."""
    return hidden + jnp.tanh(hidden @ weights["up"]) @ weights["down"], None


def loss_of(weights: dict[str, jax.Array], batch: jax.Array, remat: bool) -> jax.Array:
    """The mean square of what comes out of all layers, which take turns in a loop."""
    wrapped = jax.checkpoint(layer) if remat else layer
    hidden, _ = jax.lax.scan(wrapped, batch, weights)
    return jnp.mean(hidden.astype(jnp.float32) ** 2)


def step(state: Any, batch: jax.Array, remat: bool) -> tuple[Any, jax.Array]:
    """A step of Adam, without its corrections for the first steps."""
    weights, mean, square = state
    loss, gradient = jax.value_and_grad(loss_of)(weights, batch, remat)
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
    square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, square, gradient)
    weights = jax.tree.map(
        lambda w, m, s: w - 1e-3 * m / (jnp.sqrt(s) + 1e-8), weights, mean, square
    )
    return (weights, mean, square), loss


def specs(sharing: str) -> tuple[dict[str, P], dict[str, P]]:
    """How weights and moments lie: the model's axis splits the middle, "data" what is shared."""
    split = {"up": P(None, "data", "model"), "down": P(None, "model", "data")}
    whole = {"up": P(None, None, "model"), "down": P(None, "model")}
    return (split if sharing == "all" else whole), (whole if sharing == "copied" else split)


def arguments(state: State) -> tuple[Any, jax.ShapeDtypeStruct]:
    """Weights, both moments, and a batch, as shapes on a mesh of eight devices."""
    lengths = tuple(map(int, state.mesh.split(" x ")))
    mesh = jax.make_mesh(
        lengths,
        ("data", "model"),
        axis_types=(AxisType.Auto,) * 2,
        devices=jax.devices("cpu")[:8],
    )
    wide = WIDER * state.width
    shapes = {
        "up": (state.layers, state.width, wide),
        "down": (state.layers, wide, state.width),
    }

    def struct(shape: tuple[int, ...], spec: P) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, state.dtype, sharding=NamedSharding(mesh, spec))

    of_weights, of_moments = specs(state.sharing)
    weights, moments = (
        {name: struct(shapes[name], spec[name]) for name in shapes}
        for spec in (of_weights, of_moments)
    )
    return (weights, moments, moments), struct((state.rows, state.width), P("data"))


def jitted(state: State) -> Any:
    """The step of a state of the figure, with results that lie as its arguments do."""
    whole, _ = arguments(state)
    out = jax.tree.map(lambda a: a.sharding, whole), None
    donate = (0,) if state.donated else ()
    return jax.jit(partial(step, remat=state.remat), donate_argnums=donate, out_shardings=out)


def kept(remat: bool) -> list[int]:
    """How many arrays of a layer's width, and of its wide middle, JAX keeps for the way back."""
    layers, width, rows = 2, 16, 7  # no two axes are alike
    wide = WIDER * width
    weights = {
        "up": jax.ShapeDtypeStruct((layers, width, wide), "float32"),
        "down": jax.ShapeDtypeStruct((layers, wide, width), "float32"),
    }
    batch = jax.ShapeDtypeStruct((rows, width), "float32")
    wrapped = jax.checkpoint(layer) if remat else layer

    def backward(weights: Any, batch: Any) -> Any:
        return jax.vjp(lambda w, x: jax.lax.scan(wrapped, x, w)[0], weights, batch)[1]

    left = jax.tree.leaves(jax.eval_shape(backward, weights, batch))
    return [sum(one.shape == (layers, rows, side) for one in left) for side in (width, wide)]


def table() -> dict[str, Any]:
    """The choices of the figure, the machine, and the compiled points in bytes a device."""
    calls = [(jitted(one), *arguments(one)) for one in COMPILED]
    # A few at a time: a process that compiles has a limit of time.
    found = [done for few in batched(calls, 4) for done in _target.compiled_all(few)]
    machine = _target.machine()
    points = []
    for state, done in zip(COMPILED, found, strict=True):
        m = done.memory
        points.append(
            {
                "state": list(state),
                "arguments": m.arguments,
                "results": m.outputs - m.aliased,
                "temporaries": m.temporaries,
            }
        )
    return {
        "jax": jax.__version__,
        "machine": machine.title,
        "memory": machine.memory_bytes,
        "source": machine.sources["memory"],
        "itemsizes": {dtype: jnp.dtype(dtype).itemsize for dtype in DTYPES},
        "meshes": MESHES,
        "layers": LAYERS,
        "widths": WIDTHS,
        "rows": ROWS,
        "wider": WIDER,
        "kept": {str(remat).lower(): kept(remat) for remat in (False, True)},
        "points": points,
    }


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    print(json.dumps(table(), separators=(",", ":")))
