"""Drives ex28_offload_state: `init` on arrays, then `step` as a program, small and large.

`init` gets three params of one shape, each sharded in another way: by rows, by columns and
whole. A rule that fits one of them does not fit the others. `step` gets a state that the drive
staged itself, as it is after some steps, so a wrong `init` costs it nothing. The step is traced
and exported, and never runs in this process. For the target it is exported once more, with a
state that is large enough to show at the peak.

Drawn are the names of the layers, their width, which of them lies how, the order of the devices
on which `init` finds them, the rows of the batch, and all numbers.
"""

from types import ModuleType
from typing import Any

import jax
import numpy as np

from grader.judging.memory import PINNED
from grader.probes.host_operations import host_operations
from grader.probes.observe import Misused, Observe

SPECS: tuple[tuple[str | None, ...], ...] = (("data",), (None, "data"), ())
"""How the params lie that `init` gets, in an order that is drawn."""
TARGET_LAYERS, TARGET_WIDTH, TARGET_ROWS = 8, 4096, 8192
"""The network for the target. Its state is 1 GiB, all of it on each device, as the params are:
nothing is gathered, which could hide the state."""


def _sharding(*spec: str | None, kind: str = "device", devices: Any = None) -> Any:
    """A sharding over all devices, which are the axis "data" of a mesh."""
    mesh = jax.sharding.Mesh(np.array(devices or jax.devices()), ("data",))
    return jax.NamedSharding(mesh, jax.P(*spec), memory_kind=kind)


def _params(rng: Any) -> Any:
    """float32 layers (width, width) of drawn names and width, each split by rows."""
    width = jax.device_count() * int(rng.integers(6, 18))
    names = [f"layer{index}" for index in sorted(rng.choice(90, len(SPECS), replace=False) + 10)]
    drawn = {n: rng.standard_normal((width, width)).astype("float32") / width**0.5 for n in names}
    return jax.device_put(drawn, _sharding("data"))


def _batch(rng: Any, width: int) -> Any:
    """float32 inputs and targets, each (9 to 32 rows a device, width), split by rows."""
    rows = int(rng.integers(9, 33)) * jax.device_count()
    drawn = rng.standard_normal((2, rows, width)).astype("float32")
    return jax.device_put(tuple(drawn), _sharding("data"))


def _used_state(submission: ModuleType, params: Any, rng: Any) -> Any:
    """A state as it is after some steps, in pinned host memory.

    Its second moments are small, so that one step moves the params by some hundredths, and the
    loss with them.
    """

    def used(path: Any, array: Any) -> Any:
        if not array.ndim:
            return jax.device_put(rng.integers(3, 9, dtype="int32"), _sharding(kind=PINNED))
        size = 1e-8 if ".nu" in jax.tree_util.keystr(path) else 3e-2
        drawn = size * rng.random(array.shape, "float32")
        return jax.device_put(drawn, _sharding("data", kind=PINNED))

    fresh = {name: submission.adam.init(param) for name, param in params.items()}
    return jax.tree_util.tree_map_with_path(used, fresh)


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Keep the state that `init` returns; trace the step, and export it for two sizes."""
    params = _params(rng)
    order = list(rng.permutation(np.array(jax.devices())))
    specs = zip(params, rng.permutation(len(SPECS)), strict=True)
    places = {name: _sharding(*SPECS[index], devices=order) for name, index in specs}
    split = jax.device_put(params, places)
    state = submission.init(split)
    fresh = {name: submission.adam.init(array) for name, array in params.items()}
    found, promised = (str(jax.tree.structure(tree)) for tree in (state, fresh))
    if found != promised:
        raise Misused(f"`init` returns {{name: adam.init(param)}}, {promised}", found)
    observe.value("state", state)
    step = submission.step
    if not observe.jitted("step", step):
        return
    arguments = (
        params,
        _used_state(submission, params, rng),
        _batch(rng, len(next(iter(params.values())))),
    )
    observe.program("step", step, *arguments)
    _trace(step, arguments, observe)
    observe.target("step", step, *_large(submission.adam))


def _trace(step: Any, arguments: Any, observe: Observe) -> None:
    """Keep what the step computes in host memory, and the names of its arguments and results."""
    observe.fact("paths", _names(arguments[:2]))
    try:
        traced = step.trace(*arguments)
    except (TypeError, ValueError):  # the exported program reports it
        return
    observe.fact("on host", host_operations(traced.jaxpr.jaxpr))
    observe.fact("results", _names(traced.out_info))


def _names(trees: Any) -> list[str]:
    """`state['layer0'][0].mu` for each array of (params, state, ...)."""
    leaves, text = jax.tree_util.tree_leaves_with_path, jax.tree_util.keystr
    named = zip(("params", "state", "loss"), trees, strict=False)
    return [name + text(path) for name, tree in named for path, _ in leaves(tree)]


def _large(adam: Any) -> tuple[Any, ...]:
    """The arguments of the step for the target, as shapes: params and state whole, rows split."""

    def shapes(tree: Any, place: Any) -> Any:
        like: Any = jax.ShapeDtypeStruct
        return jax.tree.map(lambda leaf: like(leaf.shape, leaf.dtype, sharding=place), tree)

    layer = jax.ShapeDtypeStruct((TARGET_WIDTH, TARGET_WIDTH), "float32")
    batch = (jax.ShapeDtypeStruct((TARGET_ROWS, TARGET_WIDTH), "float32"),) * 2
    names = [f"layer{index}" for index in range(TARGET_LAYERS)]
    state = dict.fromkeys(names, jax.eval_shape(adam.init, layer))
    params = shapes(dict.fromkeys(names, layer), _sharding())
    return params, shapes(state, _sharding(kind=PINNED)), shapes(batch, _sharding("data"))
