"""ex26_pinned_host: arrays wait in pinned host memory, and return to the memory they left."""

import contextlib
import re
from types import ModuleType
from typing import Any

from grader.arrays import compare
from grader.checking import Exercise, Failure, Misused, Observe, Result, Unable
from grader.evidence import compiled_program, definition, differing_leaf, not_jitted, seen
from grader.record import Leaf, Measured, Record
from grader.words import where

PINNED = "pinned_host"
ROUNDS = (24, 40)
ARITHMETIC = {"add", "dot_general", "tanh"}
KEEP = ("Name no device: take the sharding that the array has, and change its kind alone.",)
INSIDE = "inside-a-jitted-step"
_ON_HOST = re.compile(r"<host>\[[^\]]*\](?:\{[^}]*\})? = (\w+)")


def _put(values: Any, *spec: str | None) -> Any:
    """`values` on all devices, as axis "x" of a mesh."""
    import jax
    import numpy as np

    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    return jax.device_put(values, jax.NamedSharding(mesh, jax.P(*spec)))


def _tree(rng: Any, rows: int) -> dict[str, Any]:
    """Arrays of four dtypes: split two ways, copied to all devices, alone on the last."""
    import jax

    draw = rng.standard_normal((rows, rows))
    return {
        "rows": _put(draw.astype("float32"), "x"),
        "columns": _put(draw.astype(jax.numpy.bfloat16), None, "x"),
        "copies": _put(rng.integers(0, 99, rows).astype("int32")),
        "last": jax.device_put(draw.astype("float16"), jax.devices()[-1]),
    }


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


def _like(tree: Any, result: Any, function: str) -> Any:
    """`result` if it is a tree like `tree`."""
    import jax

    wanted, found = str(jax.tree.structure(tree)), str(jax.tree.structure(result))
    if wanted != found:
        raise Misused(f"`{function}` returns a tree like its argument, {wanted}", found)
    return result


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Stage and return two trees, and export `predict` for staged parameters."""
    for rows in ROUNDS:
        tree = _tree(rng, rows)
        observe.value(f"original {rows}", tree)
        observe.value(f"staged {rows}", _like(tree, submission.to_host(tree), "to_host"))
        back = submission.to_device(_staged(tree))
        observe.value(f"returned {rows}", _like(tree, back, "to_device"))
    _predict(submission.predict, observe, rng)


def _predict(predict: Any, observe: Observe, rng: Any) -> None:
    import jax

    params, inputs = _network(rng, 64, 24)
    staged = _staged(params)
    if not observe.jitted("predict", predict):
        return
    observe.program("predict", predict, staged, inputs)
    # Operands in different memories are a ValueError; the program's own problem tells of it.
    with contextlib.suppress(ValueError):
        found = _ON_HOST.findall(str(jax.make_jaxpr(predict)(staged, inputs)))
        observe.fact("on host", sorted(ARITHMETIC.intersection(found)))


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
        "Devices and kind cannot change in one device_put: that is a `Memory kind mismatch`. Keep "
        "each array's own sharding, and change its kind alone.",
        "x.sharding.with_memory_kind('pinned_host') is a place for jax.device_put.",
    ),
)


def _pairs(record: Record, name: str) -> list[tuple[Leaf, Leaf]]:
    """Every original leaf with what the learner made of it, over all rounds."""
    values = seen(record).values
    rounds = (zip(values[f"original {n}"], values[f"{name} {n}"], strict=True) for n in ROUNDS)
    return [pair for pairs in rounds for pair in pairs]


def _misplaced(record: Record, name: str, function: str, kind: str = "") -> Failure | None:
    """The first array in another memory than `kind`, or than that of the original."""
    for before, after in _pairs(record, name):
        want = kind or before.memory_kind
        if after.memory_kind != want:
            expected = f"`{function}(tree){after.path}` is in {want} memory of {_devices(before)}"
            place = f"in {after.memory_kind} memory of {_devices(after)}"
            observed = f"it is {place if after.kind == 'jax' else where(after)}"
            return Failure(expected, observed, definition(record, function))
    return None


def _devices(leaf: Leaf) -> str:
    return f"{leaf.platform}:{','.join(map(str, leaf.devices))}"


def _moved(record: Record, name: str, function: str) -> Failure | None:
    """The first array that is split in another way than the original."""
    for before, after in _pairs(record, name):
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
    return _misplaced(record, "staged", "to_host", PINNED)


@EXERCISE.check(ground="observed", after=("staged_in_pinned_host",), hints=KEEP)
def staged_where_it_was(record: Record) -> Result:
    """`to_host` leaves every array with its own devices, split as it was."""
    return _moved(record, "staged", "to_host")


@EXERCISE.check(
    ground="observed",
    hints=(
        "jax.device_put(x) without a place, and jnp.asarray(x), leave an array where it is.",
        "A staged array knows its devices: x.sharding.with_memory_kind('device').",
    ),
)
def back_in_device_memory(record: Record) -> Result:
    """`to_device` puts every staged array into the memory it came from."""
    return _misplaced(record, "returned", "to_device")


@EXERCISE.check(ground="observed", after=("back_in_device_memory",), hints=KEEP)
def back_where_it_was(record: Record) -> Result:
    """`to_device` brings every array back to its own devices, split as it was."""
    return _moved(record, "returned", "to_device")


@EXERCISE.check(ground="observed", after=("staged_in_pinned_host", "back_in_device_memory"))
def same_values(record: Record) -> Result:
    """Both ways, values and dtypes stay what they were."""
    names = [f"{way} {rows}" for rows in ROUNDS for way in ("staged", "returned")]
    found = (differing_leaf(record, name, rtol=0, atol=0) for name in names)
    return next((failure for failure in found if failure), None)


def _both(record: Record) -> tuple[Measured, Measured] | Failure | Unable:
    """The learner's program and the reference's."""
    mine = compiled_program(record, "predict", f"`predict` takes its params in {PINNED} memory")
    theirs = record.reference_measured.get("predict")
    if not isinstance(mine, Measured):
        return mine
    return (mine, theirs) if theirs else Unable("the reference was not compiled")


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
    """The program of `predict` takes the params in pinned host memory."""
    program = compiled_program(record, "predict", f"`predict` takes its params in {PINNED} memory")
    if not isinstance(program, Measured):
        return program
    # An argument that is not used has no place: `same_prediction` tells of that.
    if any(text.endswith(PINNED) for text in program.in_shardings[:-1]):
        return None
    expected = f"the params enter the program in {PINNED} memory"
    return Failure(expected, f"none of them does: {', '.join(program.in_shardings[:-1])}")


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
    return Failure(
        "in host memory arrays only wait, to be copied from there",
        f"arithmetic on arrays in host memory: {', '.join(map(str, found))}",
        definition(record, "predict"),
    )


@EXERCISE.check(
    ground="program",
    after=("computes_in_device_memory",),
    hints=("Nobody has to send the result anywhere: it is where it was computed.",),
    anchor=INSIDE,
)
def result_in_device_memory(record: Record) -> Result:
    """The result of `predict` is in device memory."""
    if not isinstance(both := _both(record), tuple):
        return both
    found, wanted = (program.out_memory_kinds for program in both)
    if found == wanted:
        return None
    lies, stays = f"it is in {', '.join(found)} memory", f"the result is in {wanted[0]} memory"
    return Failure(stays, lies, definition(record, "predict"))


@EXERCISE.check(ground="program", after=("takes_params_on_the_host",))
def same_prediction(record: Record) -> Result:
    """`predict` computes the reference's outputs."""
    if not isinstance(both := _both(record), tuple):
        return both
    (mine, theirs), trees = both, [p.signature.out_tree if p.signature else "" for p in both]
    return compare("prediction", mine.outputs, theirs.outputs, *trees, rtol=1e-2, atol=5e-3)
