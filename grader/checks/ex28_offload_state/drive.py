"""Drives ex28_offload_state: `init` on arrays, then `step` as programs, small and large.

`init` is called 3 to 5 times. Drawn for each call are the number of params (1 to 6, 7 to 19 in one
of the calls, and 20 to 30 in another), their names, dtypes, dimensions (0 to 5) and sizes; the
devices of the mesh, their order, and its axes, two or a single one, or three in the call with the
most params; and how each param lies: split along any of its dimensions, by one axis or by all, be
it in one dimension, or whole. So a rule that fits one of them does not fit the others.

`step` gets a state that the drive staged itself, as it is after some steps, so a wrong `init` costs
it nothing. Its counts are 0, 1, 2 and 3, as far as there are layers, and larger ones; its first
moments have both signs, and some numbers of it are 0, as all are at first, those of the smallest
gradients among them. It is traced and exported, for 1 to 7 layers and for 8 to 12, and never runs
in this process. The targets of the latter are far away, so that its gradients are large; the first
layer of it is saturated, so that its gradient is 0. Drawn are
the names of the layers, their width, the rows of the batch, the order of the devices, and all
numbers. For the target it is exported once more, with a state that is large enough to show at the
peak.

Where the file names numbers, the call with the most params has more of them than each of these that
is below MOST_PARAMS, and another one has a param of more rows. The program of fewer layers is
wider; the one of more has more of them, more rows, and a higher count, and so has the target's more
layers.
"""

from types import ModuleType
from typing import Any

import jax
import numpy as np

from grader.checks.ex28_offload_state import facts
from grader.checks.ex28_offload_state.facts import CALLS, PROGRAMS
from grader.probes import alive
from grader.probes.describe import weakly_typed
from grader.probes.host_operations import host_operations
from grader.probes.observe import Misused, Observe, lacking_keys, left_alone, same_tree
from grader.records.record import PINNED
from grader.stages.drawn import beside, beyond, one_of, three_axes

FEW, SOME, MANY = (1, 7), (7, 20), (20, 31)
"""How many params `init` gets, from and below."""
COLUMNS = 3
"""Of one param more, which has as many rows as a file that names numbers wants to see."""
MOST_PARAMS, MOST_LAYERS, MOST_TARGET_LAYERS = 300, 40, 20
MOST_WIDTH, MOST_ROWS, MOST_STEPS = 64, 1250, 1 << 30
"""Up to where calls and programs reach the numbers that the file names; width and rows are those
on each device, and the steps are what a count says."""
LAYERS = ((1, 8), (8, 13))
"""The layers of each program."""
FIRST, EVERY = range(4), 97
"""Counts of a state, those of the first steps; one of so many numbers has averages of 0, and so
have all that the first input is multiplied by."""
NEAR_ZERO = -7.5, -6.0
"""How large that input is, as a power of 10, so that some gradients are next to 0."""
TARGET_LAYERS, TARGET_WIDTH, TARGET_ROWS = 8, 4096, 8192
"""The network for the target. Its state is 1 GiB, all of it on each device, as the params are:
nothing is gathered, which could hide the state."""
SATURATING = 1e6
"""A weight so large that `tanh` of the unit's sum is 1 or -1."""
FAR = 1000
"""How far the targets are from 0 where there are more layers: some gradients are larger than 1."""


def _sharding(*spec: str | None, kind: str = "device", devices: Any = None) -> Any:
    """A sharding over all devices, which are the axis "data" of a mesh."""
    mesh = jax.sharding.Mesh(np.array(devices or jax.devices()), ("data",))
    return jax.NamedSharding(mesh, jax.P(*spec), memory_kind=kind)


def _names_of(rng: Any, count: int) -> list[str]:
    """So many names, in the order in which JAX sorts them."""
    words = rng.choice(["layer", "block", "dense", "w", "h"], count)
    numbers = rng.choice(max(90, count), count, replace=False) + 10
    return sorted(f"{word}{number}" for word, number in zip(words, numbers, strict=True))


def _split_params(rng: Any, count: int, *, most: bool, rows: int) -> dict[str, Any]:
    """So many params of drawn kinds, each split over one mesh in its own way.

    Where they are the `most`, the mesh has all devices, and three axes; where these are more than
    usual, kinds come again. Of `rows` on each device is one param more, if they are not 0.
    """
    devices = rng.permutation(np.array(jax.devices()))[
        : int(rng.integers(1, jax.device_count() + 1))
    ]
    factors = [n for n in range(1, devices.size + 1) if devices.size % n == 0]
    grid = devices.reshape(int(rng.choice(factors)), -1)
    other = str(rng.choice(["model", "x", "y"]))
    axes = tuple(map(str, rng.permutation(["data", other])))
    mesh = (
        jax.sharding.Mesh(grid, axes) if rng.integers(3) else jax.sharding.Mesh(devices, axes[:1])
    )
    usual = min(count, MANY[1])
    params = {name: _split(rng, mesh) for name in _names_of(rng, usual)}
    if rows:
        long = rng.standard_normal((mesh.size * rows, COLUMNS)).astype("float32")
        params["rows"] = jax.device_put(long, jax.NamedSharding(mesh, jax.P(mesh.axis_names)))
    if most:
        apart = beside(rng)
        every = three_axes(apart.permutation(np.array(jax.devices())))
        mesh = jax.sharding.Mesh(every, (*axes, "z"))
        params = {name: _split(apart, mesh) for name in params}
    kinds = list(params.values())
    for index in range(count - usual):
        again = kinds[index % usual]
        params[f"more{index}"] = jax.device_put(np.asarray(again), again.sharding)
    return params


def _split(rng: Any, mesh: Any) -> Any:
    """One param of one of three dtypes, on a mesh; any axis could split any of three dimensions,
    and all axes one of them. One of three dimensions may have one more before them, or one or two
    after."""
    shape = mesh.size * rng.integers(1, 4, int(rng.integers(4)))
    spec: list[Any] = [None] * len(shape)
    if spec and not rng.integers(4):
        spec[int(rng.integers(len(spec)))] = mesh.axis_names
    for axis in mesh.axis_names:
        free = [index for index, name in enumerate(spec) if name is None]
        if free and rng.integers(4) and mesh.axis_names not in spec:
            spec[int(rng.choice(free))] = axis
    dtype = str(rng.choice(["float32", "float32", "float32", "bfloat16", "float16"]))
    values = rng.standard_normal(shape).astype("float32").astype(jax.numpy.dtype(dtype))
    if len(shape) == 3:
        more = [2] * (shape[-1] // mesh.size - 1)
        apart = beside(rng)
        first = bool(apart.integers(2))
        more = [mesh.size for _ in more[:1]] if first else more  # a wrong axis must not raise
        values = np.resize(values, (*more, *shape) if first else (*shape, *more))
        spec = [None] * (len(more) * first) + spec
    return jax.device_put(values, jax.NamedSharding(mesh, jax.P(*spec)))


def _params(rng: Any, layers: int, devices: list[Any], *, wide: bool) -> Any:
    """float32 layers (width, width) of drawn names and width, each split by rows.

    If they may be `wide`, the width reaches the numbers that the file names.
    """
    width = int(rng.integers(6, 14))
    width = beyond(rng, width, MOST_WIDTH, each=jax.device_count()) if wide else width
    width *= jax.device_count()
    drawn = {
        name: rng.standard_normal((width, width)).astype("float32") / width**0.5
        for name in _names_of(rng, layers)
    }
    return jax.device_put(drawn, _sharding("data", devices=devices))


def _saturated(rng: Any, params: Any, inputs: Any) -> Any:
    """The params, but for the first layer: its units are all 1 or -1, so its gradient is 0."""
    layer = params[first := min(params)]
    farthest = np.argmax(abs(np.asarray(inputs)).min(axis=0))
    numbers = np.zeros(layer.shape, "float32")
    numbers[farthest] = rng.choice([-SATURATING, SATURATING], layer.shape[1])
    return params | {first: jax.device_put(numbers, layer.sharding)}


def _batch(rng: Any, width: int, devices: list[Any], far: int, *, many: bool) -> Any:
    """float32 inputs and targets, each (9 to 32 rows a device, width), split by rows.

    If there may be `many` rows, they reach the numbers that the file names.

    The targets are `far` times as far from 0 as the inputs. One input is 0 in all rows, so that
    some gradients are 0, and the first one is next to 0.
    """
    rows = int(rng.integers(9, 33))
    rows = beyond(rng, rows, MOST_ROWS, each=jax.device_count()) if many else rows
    rows *= jax.device_count()
    inputs, targets = rng.standard_normal((2, rows, width)).astype("float32")
    inputs[:, int(rng.integers(width)) or 1] = 0
    inputs[:, 0] *= 10 ** rng.spawn(1)[0].uniform(*NEAR_ZERO)
    return jax.device_put((inputs, far * targets), _sharding("data", devices=devices))


def _used_state(submission: ModuleType, params: Any, rng: Any, devices: list[Any]) -> Any:
    """A state as it is after some steps, in pinned host memory.

    Its second moments are small, so that one step moves the params by some hundredths, and the
    loss with them.
    """

    more = 10 ** rng.uniform(0.5, 4, max(0, len(params) - len(FIRST)))
    if len(more):
        more[-1] = beyond(rng, int(more[-1]), MOST_STEPS)
    drawn = rng.permutation([*FIRST, *more]).astype("int32")
    # The first layer has had no step: some of its gradients are small.
    counts = iter(sorted(drawn, key=bool) if len(params) > 1 else drawn)

    def used(path: Any, array: Any) -> Any:
        if not array.ndim:
            return jax.device_put(next(counts), _sharding(kind=PINNED, devices=devices))
        drawn = rng.random(array.shape, "float32")
        drawn = 1e-8 * drawn if ".nu" in jax.tree_util.keystr(path) else 6e-2 * drawn - 3e-2
        drawn.flat[::EVERY] = 0
        drawn[0] = 0
        return jax.device_put(drawn, _sharding("data", kind=PINNED, devices=devices))

    fresh = {name: submission.adam.init(param) for name, param in params.items()}
    return jax.tree_util.tree_map_with_path(used, fresh)


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Keep each state that `init` returns; trace the step, and export it for several sizes."""
    spans = [FEW] * int(rng.integers(1, 4)) + [SOME, MANY]
    observe.fact(CALLS, len(spans))
    for call, span in enumerate(rng.permutation(spans), 1):
        count, most = int(rng.integers(*span)), tuple(span) == MANY
        rows = beyond(rng, 0, MOST_ROWS, each=COLUMNS) if tuple(span) == SOME else 0
        count = beyond(rng, count, MOST_PARAMS) if most else one_of(rng, count, range(*span))
        params = _split_params(rng, count, most=most, rows=rows)
        _init(submission, observe, facts.state(call), params)
    step = submission.step
    if not observe.jitted("step", step):
        return
    devices = list(rng.permutation(np.array(jax.devices())))
    for name, span, far in zip(PROGRAMS, LAYERS, (1, FAR), strict=True):
        more, layers = span == LAYERS[-1], int(rng.integers(*span))
        layers = beyond(rng, layers, MOST_LAYERS) if more else one_of(rng, layers, range(*span))
        params = _params(rng, layers, devices, wide=not more)
        width = len(next(iter(params.values())))
        state = _used_state(submission, params, rng, devices)
        batch = _batch(rng, width, devices, far, many=more)
        params = _saturated(beside(rng), params, batch[0]) if more else params
        arguments = params, state, batch
        # A GPU would otherwise round the products, and so what is compared.
        with jax.default_matmul_precision("highest"):
            observe.program(name, step, *arguments)
            _trace(step, name, arguments, observe)
    with jax.default_matmul_precision("highest"):
        layers = beyond(rng, TARGET_LAYERS, MOST_TARGET_LAYERS)
        observe.target("step", step, *_large(submission.adam, layers))


def _init(submission: ModuleType, observe: Observe, name: str, params: Any) -> None:
    """Keep the state that `init` returns."""
    before = alive.both()
    with left_alone("init", params):
        state = submission.init(params)
    with observe.unwatched():
        like = {key: jax.eval_shape(submission.adam.init, array) for key, array in params.items()}
    if isinstance(state, dict) and (missing := lacking_keys(params, state)):
        raise Misused("`init` returns {name: adam.init(param)}", missing)
    same_tree("`init` returns {name: adam.init(param)}", "state", like, state)
    observe.fact(facts.twice(name), alive.in_one_memory(state))
    observe.fact(facts.weak(name), weakly_typed(state))
    observe.value(name, state)
    del state
    observe.fact(facts.left(name), alive.left_behind(before))


def _trace(step: Any, name: str, arguments: Any, observe: Observe) -> None:
    """Keep what the step computes in host memory, and the names of its arguments and results."""
    observe.fact(facts.paths(name), _names(arguments[:2]))
    try:
        traced = step.trace(*arguments)
    except (TypeError, ValueError):  # the exported program reports it
        return
    observe.fact(facts.on_host(name), host_operations(traced.jaxpr.jaxpr))
    of_batch = jax.tree.leaves(traced.args_info)[-len(arguments[2]) :]
    observe.fact(facts.batch_donated(name), any(array.donated for array in of_batch))
    observe.fact(facts.results(name), _names(traced.out_info))


def _names(trees: Any) -> list[str]:
    """`state['layer0'][0].mu` for each array of (params, state, ...)."""
    leaves, text = jax.tree_util.tree_leaves_with_path, jax.tree_util.keystr
    named = zip(("params", "state", "loss"), trees, strict=False)
    return [name + text(path) for name, tree in named for path, _ in leaves(tree)]


def _large(adam: Any, layers: int) -> tuple[Any, ...]:
    """The arguments of the step for the target, as shapes: params and state whole, rows split."""

    def shapes(tree: Any, place: Any) -> Any:
        like: Any = jax.ShapeDtypeStruct
        return jax.tree.map(lambda leaf: like(leaf.shape, leaf.dtype, sharding=place), tree)

    layer = jax.ShapeDtypeStruct((TARGET_WIDTH, TARGET_WIDTH), "float32")
    batch = (jax.ShapeDtypeStruct((TARGET_ROWS, TARGET_WIDTH), "float32"),) * 2
    names = [f"layer{index}" for index in range(layers)]
    state = dict.fromkeys(names, jax.eval_shape(adam.init, layer))
    params = shapes(dict.fromkeys(names, layer), _sharding())
    return params, shapes(state, _sharding(kind=PINNED)), shapes(batch, _sharding("data"))
