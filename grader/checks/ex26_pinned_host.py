"""ex26_pinned_host: arrays wait in pinned host memory, and return to the memory they left."""

import contextlib
from types import ModuleType
from typing import Any

from grader.checking import Exercise, Failure, Misused, Observe, Result, Unable
from grader.evidence import (
    compiled_program,
    culprits,
    definition,
    differing_leaf,
    differing_output,
    events,
    not_jitted,
    probe_gap,
    seen,
)
from grader.memories import PINNED, arithmetic_on_host
from grader.record import Leaf, Measured, Record
from grader.words import plural, where

ROUNDS = (24, 40)
FUNCTIONS = ("to_device", "to_host")
KEEP = ("Name no device: take the sharding that the array has, and change its kind alone.",)
INSIDE = "inside-a-jitted-step"


def _put(values: Any, *spec: str | None) -> Any:
    """`values` on all devices, as axis "x" of a mesh."""
    import jax
    import numpy as np

    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    return jax.device_put(values, jax.NamedSharding(mesh, jax.P(*spec)))


def _tree(rng: Any, rows: int) -> dict[str, Any]:
    """(rows, rows) arrays of four dtypes, split two ways, on all devices, on the last."""
    import jax

    draw = rng.standard_normal((rows, rows)) * 9
    dtypes = rng.permutation(["float32", "bfloat16", "int32", "float16"])
    # NumPy converts them: for each dtype JAX would compile a program.
    one, two, three, four = (draw.astype(jax.numpy.dtype(str(dtype))) for dtype in dtypes)
    last = jax.device_put(four, jax.devices()[-1])
    drawn = [_put(one, "x"), _put(two, None, "x"), _put(three), last]
    a, b, c, d = (drawn[i] for i in rng.permutation(4))  # no name tells where an array lies
    return {"embedding": a, "layers": [{"w": b, "b": c}, (d,)]}


def _network(rng: Any, width: int, rows: int) -> tuple[Any, Any]:
    """float32 params (16, width), (width,), (width, 4), split, and inputs (rows, 16), copied."""
    shapes = {"w1": (16, width), "b1": (width,), "w2": (width, 4), "inputs": (rows, 16)}
    drawn = {k: (rng.standard_normal(s) / 4).astype("float32") for k, s in shapes.items()}
    inputs = _put(drawn.pop("inputs"))
    return {k: _put(v, *((None, "x") if k == "w1" else ("x",))) for k, v in drawn.items()}, inputs


def _staged(tree: Any) -> Any:
    """The drive's own staging, so that each function is judged by itself."""
    import jax

    return jax.tree.map(lambda x: jax.device_put(x, x.sharding.with_memory_kind(PINNED)), tree)


def _result(function: Any, tree: Any, name: str) -> Any:
    """What `function` makes of `tree`: a tree like it, which itself is left as it is."""
    import jax

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
    """Return and stage two trees each, none of them twice, and export `predict`."""
    for rows in ROUNDS:
        for name in FUNCTIONS:
            tree = _tree(rng, rows)
            given = _staged(tree) if name == "to_device" else tree
            observe.value(f"original of {name} {rows}", tree)
            with observe.phase(name):
                result = _result(getattr(submission, name), given, name)
            observe.value(f"{name} {rows}", result)
    _predict(submission.predict, observe, rng)


def _predict(predict: Any, observe: Observe, rng: Any) -> None:
    import jax

    if not observe.jitted("predict", predict):
        return
    params, inputs = _network(rng, 64, 24)
    staged = _staged(params)
    observe.program("predict", predict, staged, inputs)
    # Operands in different memories are a ValueError; the program's own problem tells of it.
    with contextlib.suppress(ValueError):
        jaxpr = str(jax.make_jaxpr(predict)(staged, inputs))
        observe.fact("on host", arithmetic_on_host(jaxpr))


EXERCISE = Exercise(
    title="Stage arrays in pinned host memory",
    lesson="lessons/15-host-memory-and-pinned-transfers",
    anchor="memory-kinds",
    edits=("to_host", "to_device", "predict"),
    drive=drive,
    devices=4,
    fewest_gpus=1,
    hints=(
        "A device can address several kinds of memory: jax.devices()[0].addressable_memories().",
        "The kind is a part of an array's sharding: print x.sharding.memory_kind.",
        "Devices and kind cannot change in one device_put: a `Memory kind mismatch`. Keep each "
        "array's own sharding, and change its kind alone.",
        "x.sharding.with_memory_kind('pinned_host') is a place for jax.device_put.",
    ),
)


def _pairs(record: Record, function: str) -> list[tuple[Leaf, Leaf]]:
    """Every original leaf with what the learner made of it, over all rounds."""
    values, names = seen(record).values, [f"{function} {rows}" for rows in ROUNDS]
    rounds = (zip(values[f"original of {name}"], values[name], strict=True) for name in names)
    return [pair for pairs in rounds for pair in pairs]


def _misplaced(record: Record, function: str, kind: str = "") -> Failure | None:
    """The first array in another memory than `kind`, or than that of the original."""
    for before, after in _pairs(record, function):
        want = kind or before.memory_kind
        if after.memory_kind != want:
            expected = f"`{function}(tree){after.path}` is in {want} memory of {_devices(before)}"
            place = f"in {after.memory_kind} memory of {_devices(after)}"
            observed = f"it is {place if after.kind == 'jax' else where(after)}"
            return Failure(expected, observed, definition(record, function))
    return None


def _devices(leaf: Leaf) -> str:
    return f"{leaf.platform}:{','.join(map(str, leaf.devices))}"


def _moved(record: Record, function: str) -> Failure | None:
    """The first array that is split in another way than the original."""
    for before, after in _pairs(record, function):
        if _split(before) != _split(after):
            expected = f"`{function}(tree){after.path}` stays {_split(before)}"
            return Failure(expected, f"it is {_split(after)}", definition(record, function))
    return None


def _split(leaf: Leaf) -> str:
    """`shards of (6, 24) on cpu:0,1,2,3`."""
    return f"shards of {leaf.shard_shape} on {_devices(leaf)}"


@EXERCISE.check(
    ground="observed",
    hints=(
        "NumPy's memory is pageable and belongs to no device; so does the memory of a CPU "
        "device, which is a device of its own. Pinned memory is a memory of the same device.",
        "jax.device_put(x, x.sharding.with_memory_kind('pinned_host')) for each leaf.",
    ),
)
def staged_in_pinned_host(record: Record) -> Result:
    """`to_host` puts every array into memory of the kind pinned_host."""
    return _misplaced(record, "to_host", PINNED)


@EXERCISE.check(ground="observed", after=("staged_in_pinned_host",), hints=KEEP)
def staged_where_it_was(record: Record) -> Result:
    """`to_host` leaves every array with its own devices, split as it was."""
    return _moved(record, "to_host")


@EXERCISE.check(
    ground="observed",
    hints=(
        "jax.device_put(x) without a place, and jnp.asarray(x), leave an array where it is.",
        "A staged array knows its devices: x.sharding.with_memory_kind('device').",
    ),
)
def back_in_device_memory(record: Record) -> Result:
    """`to_device` puts every staged array into the memory it came from."""
    return _misplaced(record, "to_device")


@EXERCISE.check(ground="observed", after=("back_in_device_memory",), hints=KEEP)
def back_where_it_was(record: Record) -> Result:
    """`to_device` brings every array back to its own devices, split as it was."""
    return _moved(record, "to_device")


@EXERCISE.check(ground="observed", after=("staged_in_pinned_host", "back_in_device_memory"))
def same_values(record: Record) -> Result:
    """Both ways, values and dtypes stay what they were."""
    names = (f"{function} {rows}" for rows in ROUNDS for function in FUNCTIONS)
    found = (differing_leaf(record, name, rtol=0, atol=0) for name in names)
    return next((failure for failure in found if failure), None)


@EXERCISE.check(
    ground="observed",
    after=("staged_where_it_was", "back_where_it_was"),
    hints=("jax.device_put takes the array itself; each shard goes its own way.",),
)
def not_through_numpy(record: Record) -> Result:
    """No array is read into NumPy's memory on its way."""
    found = list(events(seen(record), "d2h", phase="to_"))
    if not found:
        return probe_gap(seen(record), "reads")
    reads = plural(sum(event.count for event in found), "read")
    return Failure("the host reads no array", f"{reads} by the host", culprits(record, found))


def _program(record: Record) -> Measured | Failure | Unable:
    return compiled_program(record, "predict", f"`predict` takes its params in {PINNED} memory")


@EXERCISE.check(
    ground="observed",
    hints=("A copy before the call is a copy of everything, and nothing runs beside it.",),
    anchor=INSIDE,
)
def predict_is_jitted(record: Record) -> Result:
    """`predict` itself is a function that jax.jit made."""
    return not_jitted(record, "predict")


@EXERCISE.check(
    ground="program",
    after=("predict_is_jitted",),
    hints=(
        "An operation needs all its operands in one memory. Who moves the params?",
        "Under jit, jax.device_put takes a kind of memory: jax.memory.Space.Device.",
    ),
    anchor=INSIDE,
)
def takes_params_on_the_host(record: Record) -> Result:
    """The program of `predict` takes the params in pinned host memory, and leaves them there."""
    if not isinstance(program := _program(record), Measured):
        return program
    # An argument that is not used has no place: `same_prediction` tells of that.
    params = program.in_shardings[:-1]
    if not any(text.endswith(PINNED) for text in params):
        expected = f"the params enter the program in {PINNED} memory"
        return Failure(expected, f"none of them does: {', '.join(params)}")
    if any(index < len(params) for index in program.donated):
        expected, place = "the caller's params stay on the host", definition(record, "predict")
        return Failure(expected, "they are donated to the program", place)
    return None


@EXERCISE.check(
    ground="observed",
    after=("takes_params_on_the_host",),
    hints=("Bring the params to the inputs, not the inputs to the params.",),
    anchor=INSIDE,
)
def computes_in_device_memory(record: Record) -> Result:
    """`predict` computes with arrays in device memory."""
    found = seen(record).facts.get("on host")
    if not found:
        return None if found is not None else Unable("`predict` was not traced")
    expected = "in host memory arrays only wait, to be copied from there"
    observed = f"arithmetic on arrays in host memory: {', '.join(map(str, found))}"
    return Failure(expected, observed, definition(record, "predict"))


@EXERCISE.check(
    ground="program",
    after=("computes_in_device_memory",),
    hints=("Nobody has to send the result anywhere: it is where it was computed.",),
    anchor=INSIDE,
)
def result_in_device_memory(record: Record) -> Result:
    """The result of `predict` is in device memory."""
    if not isinstance(program := _program(record), Measured):
        return program
    if (found := ", ".join(program.out_memory_kinds)) == "device":
        return None
    expected, place = "the result is in device memory", definition(record, "predict")
    return Failure(expected, f"it is in {found} memory", place)


@EXERCISE.check(ground="program", after=("takes_params_on_the_host",))
def same_prediction(record: Record) -> Result:
    """`predict` computes the reference's outputs."""
    if not isinstance(program := _program(record), Measured):
        return program
    return differing_output(record, "predict", rtol=1e-2, atol=5e-3)
