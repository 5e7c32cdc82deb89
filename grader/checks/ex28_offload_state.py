"""ex28_offload_state: Adam's state waits in host memory, and visits the device array by array."""

from types import ModuleType
from typing import Any

from grader.checking import Exercise, Failure, Misused, Observe, Result, Unable
from grader.evidence import (
    compiled_program,
    definition,
    differing_leaf,
    differing_output,
    not_jitted,
    seen,
    target_of,
    target_program,
    target_reference,
    wanted,
)
from grader.memories import (
    PINNED,
    arithmetic_on_host,
    moved_result,
    not_in_place,
    state_at_once,
)
from grader.record import Leaf, Measured, Record
from grader.words import where

SPECS = {"layer0": ("data",), "layer1": (None, "data"), "layer2": ()}
ON_TARGET = {"layers": 8, "width": 4096, "rows": 8192}
"""State of 1 GiB on each device, whole as the params are: no gathered layer hides it."""
INSIDE = "inside-a-jitted-step"
TAKES = f"`step` takes its state in {PINNED} memory"


def _sharding(*spec: str | None, kind: str = "device") -> Any:
    """A sharding over all devices, as axis "data" of a mesh."""
    import jax
    import numpy as np

    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    return jax.NamedSharding(mesh, jax.P(*spec), memory_kind=kind)


def _params(rng: Any, width: int) -> Any:
    """float32 layers (width, width), split by rows."""
    import jax

    drawn = {n: rng.standard_normal((width, width)).astype("float32") / width**0.5 for n in SPECS}
    return jax.device_put(drawn, _sharding("data"))


def _batch(rng: Any, width: int) -> Any:
    """float32 inputs and targets (24 a device, width), split by rows."""
    import jax

    rows = 24 * jax.device_count()
    drawn = rng.standard_normal((2, rows, width)).astype("float32")
    return jax.device_put(tuple(drawn), _sharding("data"))


def _used_state(submission: ModuleType, params: Any, rng: Any) -> Any:
    """A state as it is after some steps, staged by the drive: `step` is judged by itself.

    Second moments are small, so that params move by some hundredths and the loss with them.
    """
    import jax

    def used(path: Any, array: Any) -> Any:
        if not array.ndim:
            return jax.device_put(rng.integers(3, 9, dtype="int32"), _sharding(kind=PINNED))
        size = 1e-8 if ".nu" in jax.tree_util.keystr(path) else 3e-2
        drawn = size * rng.random(array.shape, "float32")
        return jax.device_put(drawn, _sharding("data", kind=PINNED))

    fresh = {name: submission.adam.init(param) for name, param in params.items()}
    return jax.tree_util.tree_map_with_path(used, fresh)


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Look at a fresh state; trace and export the step for a used one, and for a large one."""
    import jax

    width = 8 * jax.device_count() * int(rng.integers(1, 3))
    params = _params(rng, width)
    split = jax.device_put(params, {name: _sharding(*spec) for name, spec in SPECS.items()})
    state = submission.init(split)
    fresh = {name: submission.adam.init(array) for name, array in params.items()}
    found, promised = (str(jax.tree.structure(tree)) for tree in (state, fresh))
    if found != promised:
        raise Misused(f"`init` returns {{name: adam.init(param)}}, {promised}", found)
    observe.value("state", state)
    step = submission.step
    if not observe.jitted("step", step):
        return
    arguments = (params, _used_state(submission, params, rng), _batch(rng, width))
    observe.program("step", step, *arguments)
    _trace(step, arguments, observe)
    observe.target("step", step, *_large(submission.adam))


def _trace(step: Any, arguments: Any, observe: Observe) -> None:
    """What the step computes in host memory; the names of its arguments and results."""
    observe.fact("paths", _names(arguments[:2]))
    try:
        traced = step.trace(*arguments)
    except (TypeError, ValueError):  # the program's own problem tells of it
        return
    observe.fact("on host", arithmetic_on_host(str(traced.jaxpr)))
    observe.fact("results", _names(traced.out_info))


def _names(trees: Any) -> list[str]:
    """`state['layer0'][0].mu` for each array of (params, state, ...)."""
    import jax

    leaves, text = jax.tree_util.tree_leaves_with_path, jax.tree_util.keystr
    named = zip(("params", "state", "loss"), trees, strict=False)
    return [name + text(path) for name, tree in named for path, _ in leaves(tree)]


def _large(adam: Any) -> tuple[Any, ...]:
    """Shapes of a network whose state is worth the trouble: params whole, rows split."""
    import jax

    def shapes(tree: Any, place: Any) -> Any:
        like: Any = jax.ShapeDtypeStruct
        return jax.tree.map(lambda leaf: like(leaf.shape, leaf.dtype, sharding=place), tree)

    layers, width, rows = ON_TARGET.values()
    layer = jax.ShapeDtypeStruct((width, width), "float32")
    batch = (jax.ShapeDtypeStruct((rows, width), "float32"),) * 2
    names = [f"layer{index}" for index in range(layers)]
    state = dict.fromkeys(names, jax.eval_shape(adam.init, layer))
    params = shapes(dict.fromkeys(names, layer), _sharding())
    return params, shapes(state, _sharding(kind=PINNED)), shapes(batch, _sharding("data"))


EXERCISE = Exercise(
    title="Keep the optimizer's state in host memory",
    lesson="lessons/15-host-memory-and-pinned-transfers",
    anchor=INSIDE,
    edits=("init", "step"),
    drive=drive,
    devices=8,
    fewest_gpus=1,
    hints=(
        "A memory kind is a part of a sharding: where does `init` leave each array, and where "
        "does `step`?",
        "jax.device_put works inside a jitted step too: with jax.memory.Space.Device before "
        "the update, with jax.memory.Space.Host after it.",
        "In `init`, device_put each array with NamedSharding(mesh, spec, "
        "memory_kind='pinned_host'): the param's spec for the averages, P() for the count. In "
        "`step`, device_put one state at a time, after an optimization_barrier with its gradient "
        "and with the state before it, gone back.",
    ),
)


@EXERCISE.check(ground="observed", anchor="memory-kinds")
def starts_on_the_host(record: Record) -> Result:
    """`init` returns Adam's fresh state, every array in pinned host memory."""
    leaves = seen(record).values["state"]
    for leaf in leaves:
        if leaf.memory_kind != PINNED:
            place = f"in {leaf.memory_kind} memory" if leaf.kind == "jax" else where(leaf)
            expected = f"`state{leaf.path}` is in {PINNED} memory"
            return Failure(expected, f"it is {place}", definition(record, "init"))
    return differing_leaf(record, "state", rtol=0, atol=0)


@EXERCISE.check(
    ground="observed",
    after=("starts_on_the_host",),
    hints=(
        "What optax makes of a param has the param's sharding; a count has the default device.",
        "All arguments of one program lie on the same devices: put the count on the param's mesh.",
    ),
    anchor="memory-kinds",
)
def split_like_its_param(record: Record) -> Result:
    """Every average is split over the devices as its param is; the count is on all of them."""
    mine, theirs = seen(record).values["state"], wanted(record).values["state"]
    for leaf, right in zip(mine, theirs, strict=True):
        if _lies(leaf) != _lies(right):
            expected = f"`state{leaf.path}` lies as {_lies(right)}"
            return Failure(expected, _lies(leaf), definition(record, "init"))
    return None


def _lies(leaf: Leaf) -> str:
    """`shards of (8, 64) on 8 devices`; whole arrays count as one shard."""
    return f"shards of {leaf.shard_shape} on {len(leaf.devices)} devices"


@EXERCISE.check(
    ground="observed",
    hints=("A copy around the step moves all of the state, before it starts and after it.",),
)
def one_program(record: Record) -> Result:
    """`step` itself is a function that jax.jit made."""
    return not_jitted(record, "step")


@EXERCISE.check(
    ground="program",
    after=("one_program",),
    hints=(
        "An operation needs all its operands in one memory, and jit moves none of them.",
        "Inside jit, jax.device_put(x, jax.memory.Space.Device) brings an array to the device.",
    ),
)
def takes_it_from_the_host(record: Record) -> Result:
    """`step` takes the state in pinned host memory."""
    program = compiled_program(record, "step", TAKES)
    return None if isinstance(program, Measured) else program


@EXERCISE.check(
    ground="observed",
    after=("takes_it_from_the_host",),
    hints=("Bring the state to the gradients, not the gradients to the state.",),
)
def computes_in_device_memory(record: Record) -> Result:
    """`step` computes with arrays in device memory."""
    found = seen(record).facts.get("on host")
    if not found:
        return None if found is not None else Unable("`step` was not traced")
    observed = f"arithmetic on arrays in host memory: {', '.join(map(str, found))}"
    return Failure("in host memory arrays only wait", observed, definition(record, "step"))


@EXERCISE.check(
    ground="program",
    after=("computes_in_device_memory",),
    hints=("`step [0]` are the params, [1] the state, [2] the loss: that of the params given.",),
)
def same_results(record: Record) -> Result:
    """Params, state and loss are those of a step without offloading."""
    program = compiled_program(record, "step", TAKES)
    if not isinstance(program, Measured):
        return program
    return differing_output(record, "step", rtol=1e-3, atol=1e-5)


@EXERCISE.check(
    ground="program",
    after=("same_results",),
    hints=(
        "The step may work once, and leave the state on the device for the second time.",
        "A result stays where it was computed: device_put(x, jax.memory.Space.Host) in the step, "
        "or out_shardings with the memory kind.",
    ),
)
def goes_back_to_the_host(record: Record) -> Result:
    """The new state leaves the step in host memory, the params and the loss in device memory."""
    program = compiled_program(record, "step", TAKES)
    theirs = record.reference_measured.get("step")
    if not isinstance(program, Measured):
        return program
    if theirs is None:
        return Unable("the reference was not compiled")
    found = moved_result(seen(record).facts["results"], program, theirs)
    return found and Failure(*found, definition(record, "step"))


@EXERCISE.check(
    ground="program",
    after=("goes_back_to_the_host",),
    hints=("Host memory holds one state, not two: donate params and state.",),
)
def in_place(record: Record) -> Result:
    """The new params and the new state take the place of the old ones."""
    program = compiled_program(record, "step", TAKES)
    if not isinstance(program, Measured):
        return program
    found = not_in_place(program, seen(record).facts["paths"])
    return found and Failure(*found, definition(record, "step"))


@EXERCISE.check(
    ground="target",
    after=("in_place",),
    hints=(
        "The compiler starts a copy as early as it can. What could make it wait for a gradient?",
        "jax.lax.optimization_barrier((grad, state)) returns both, when both are there. One for "
        "each param: with one for all, all of the state comes at once.",
        "Let the barrier of each param also take the state that went back before it: one by one.",
    ),
    anchor="what-is-saved-and-when",
)
def never_whole_on_the_device(record: Record) -> Result:
    """At its peak, the step on the target has no more than a part of the state on the device."""
    found = target_program(record, "step")
    if not isinstance(found, Measured):
        return found
    machine = target_of(record).device_kind
    over = state_at_once(found, target_reference(record, "step"), machine)
    return Failure(*over, definition(record, "step")) if isinstance(over, tuple) else over
