"""ex26_pinned_host: arrays wait in pinned host memory, and return to the memory they left."""

import contextlib
import re
from types import ModuleType
from typing import Any

from grader.arrays import compare
from grader.checking import (
    Exercise,
    Failure,
    Misused,
    Observe,
    Result,
    Unable,
    definition,
    differing_leaf,
    seen,
    where,
)
from grader.record import Leaf, Measured, Record

PINNED = "pinned_host"
ROUNDS = (24, 40)
MOVES = frozenset(
    "broadcast_in_dim concatenate copy device_put dynamic_slice expand_dims gather jit pjit "
    "remat reshape scan slice split squeeze transpose".split()
)
"""What may be done to an array in host memory: bring it, or choose a part of it."""
INSIDE = "inside-a-jitted-step"
_ON_HOST = re.compile(r"<host>\[[^\]]*\](?:\{[^}]*\})? = (\w+)")


def _tree(rng: Any, rows: int) -> dict[str, Any]:
    """Arrays of four dtypes: split, copied and alone on one device; of the devices there are."""
    import jax
    import numpy as np

    draw = rng.standard_normal((rows, rows))
    return {
        "rows": jax.device_put(draw.astype(np.float32), _split_as("x")),
        "columns": jax.device_put(draw.astype(jax.numpy.bfloat16), _split_as(None, "x")),
        "copies": jax.device_put(rng.integers(0, 99, rows).astype(np.int32), _split_as()),
        "last": jax.device_put(draw.astype(np.float16), jax.devices()[-1]),
    }


def _split_as(*spec: str | None) -> Any:
    """A sharding over all devices, as axis "x"."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    return NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec(*spec))


def _network(rng: Any, width: int, rows: int) -> tuple[Any, Any]:
    """Parameters (16, width), (width,), (width, 4), sharded, and inputs (rows, 16), copied."""
    import jax
    import numpy as np

    def draw(shape: tuple[int, ...], *spec: str | None) -> Any:
        values = (rng.standard_normal(shape) / 4).astype(np.float32)
        return jax.device_put(values, _split_as(*spec))

    w1, b1, w2 = draw((16, width), None, "x"), draw((width,), "x"), draw((width, 4), "x")
    return {"w1": w1, "b1": b1, "w2": w2}, draw((rows, 16))


def _staged(tree: Any) -> Any:
    """The drive's own staging, so that each function is judged by itself."""
    import jax

    return jax.tree.map(lambda x: jax.device_put(x, x.sharding.with_memory_kind(PINNED)), tree)


def _like(tree: Any, result: Any, function: str) -> Any:
    """`result` if it is a tree like `tree`."""
    import jax

    wanted, found = jax.tree.structure(tree), jax.tree.structure(result)
    if wanted != found:
        raise Misused(f"`{function}` returns a tree like its argument, {wanted}", str(found))
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
    observe.fact("type", type(predict).__name__)
    observe.fact("jitted", type(predict) is type(jax.jit(len)))
    observe.program("predict", predict, staged, inputs)
    # Operands in different memories are a ValueError; the program's own problem tells of it.
    with contextlib.suppress(ValueError):
        text = str(jax.make_jaxpr(predict)(staged, inputs))
        observe.fact("on host", sorted(set(_ON_HOST.findall(text)) - MOVES))


EXERCISE = Exercise(
    title="Stage arrays in pinned host memory",
    lesson="lessons/15-host-memory-and-pinned-transfers",
    anchor="memory-kinds",
    edits=("to_host", "to_device", "predict"),
    drive=drive,
    devices=4,
    hints=(
        "A device can address several kinds of memory: jax.devices()[0].addressable_memories().",
        "The kind is a part of an array's sharding: print x.sharding.memory_kind.",
        "x.sharding.with_memory_kind('pinned_host') is a place for jax.device_put.",
    ),
)


def _pairs(record: Record, name: str) -> list[tuple[Leaf, Leaf]]:
    """Every original leaf with what the learner made of it, over all rounds."""
    values = seen(record).values
    return [
        pair
        for rows in ROUNDS
        for pair in zip(values[f"original {rows}"], values[f"{name} {rows}"], strict=True)
    ]


def _misplaced(record: Record, name: str, function: str, kind: str = "") -> Failure | None:
    """The first array in another memory than `kind`, or than that of the original."""
    for before, after in _pairs(record, name):
        if after.memory_kind != (kind or before.memory_kind):
            expected = f"`{function}(tree){after.path}` is in {kind or before.memory_kind} memory"
            where_to = f"{expected} of {_devices(before)}"
            return Failure(where_to, _memory(after), definition(record, function))
    return None


def _memory(leaf: Leaf) -> str:
    """`in device memory of cpu:0`; where an array lies that is on no device, in words."""
    if leaf.kind != "jax":
        return f"it is {where(leaf)}"
    return f"it is in {leaf.memory_kind} memory of {_devices(leaf)}"


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


@EXERCISE.check(
    ground="observed",
    after=("staged_in_pinned_host",),
    hints=("Do not name a device: take the sharding that the array has, and change its kind.",),
)
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


@EXERCISE.check(
    ground="observed",
    after=("back_in_device_memory",),
    hints=("The place to return to is written in the staged array's own sharding.",),
)
def back_where_it_was(record: Record) -> Result:
    """`to_device` brings every array back to its own devices, split as it was."""
    return _moved(record, "returned", "to_device")


@EXERCISE.check(
    ground="observed",
    after=("staged_in_pinned_host", "back_in_device_memory"),
    hints=("Copy, and no more: no new dtype, no new order.",),
)
def same_values(record: Record) -> Result:
    """Both ways, values and dtypes stay what they were."""
    for rows in ROUNDS:
        for name in (f"staged {rows}", f"returned {rows}"):
            failure = differing_leaf(record, name, rtol=0, atol=0)
            if failure:
                return failure
    return None


def _predict_fails(record: Record, expected: str, observed: str) -> Failure:
    return Failure(expected, observed, definition(record, "predict"))


def _program(record: Record) -> Measured | Failure | Unable:
    """The compiled `predict`, or why there is none."""
    exported, measured = seen(record).programs.get("predict"), record.measured.get("predict")
    problem = (exported and exported.problem) or (measured and measured.problem)
    if problem:
        expected = f"`predict` is a program that takes its params in {PINNED} memory"
        return _predict_fails(record, expected, problem)
    return measured or Unable("the program was not compiled")


@EXERCISE.check(
    ground="observed",
    hints=("A copy before the call is a copy of everything, and nothing runs beside it.",),
    anchor=INSIDE,
)
def predict_is_jitted(record: Record) -> Result:
    """`predict` itself is a function that jax.jit made."""
    facts = seen(record).facts
    if facts.get("jitted") is True:
        return None
    return _predict_fails(
        record,
        "`predict` is what jax.jit returns, and the copy is a part of its program",
        f"`predict` is of type `{facts.get('type')}`, and copies before the program starts",
    )


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
    program = _program(record)
    if isinstance(program, Failure | Unable):
        return program
    elsewhere = [text for text in program.in_shardings[:-1] if not text.endswith(PINNED)]
    expected = f"all params enter the program in {PINNED} memory"
    return _predict_fails(record, expected, f"one enters as {elsewhere[0]}") if elsewhere else None


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
    return _predict_fails(
        record,
        "in host memory arrays only wait, to be copied from there",
        f"arithmetic on arrays in host memory: {', '.join(map(str, found))}",
    )


@EXERCISE.check(
    ground="program",
    after=("computes_in_device_memory",),
    hints=("Nobody has to send the result anywhere: it is where it was computed.",),
    anchor=INSIDE,
)
def result_in_device_memory(record: Record) -> Result:
    """The result of `predict` is in device memory."""
    program, reference = _program(record), record.reference_measured.get("predict")
    if isinstance(program, Failure | Unable) or reference is None:
        return Unable("the reference was not compiled") if reference is None else program
    found, wanted = program.out_memory_kinds, reference.out_memory_kinds
    if found == wanted:
        return None
    expected = f"the result is in {', '.join(wanted)} memory"
    return _predict_fails(record, expected, f"it is in {', '.join(found)} memory")


@EXERCISE.check(ground="program", after=("takes_params_on_the_host",))
def same_prediction(record: Record) -> Result:
    """`predict` computes the reference's outputs."""
    program, reference = _program(record), record.reference_measured.get("predict")
    if isinstance(program, Failure | Unable):
        return program
    if reference is None or program.signature is None or reference.signature is None:
        return Unable("the reference was not compiled")
    trees = program.signature.out_tree, reference.signature.out_tree
    return compare("prediction", program.outputs, reference.outputs, *trees, rtol=1e-3, atol=1e-4)
