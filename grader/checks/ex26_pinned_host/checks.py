"""Checks of ex26_pinned_host: where arrays lie after each call, and what `predict` does there.

`predict` is judged as a compiled program. What it computes in host memory is read from its
trace, because simulated CPU devices run such a program without complaint.
"""

from collections import Counter
from dataclasses import replace

from grader.checks.ex26_pinned_host import EXERCISE
from grader.checks.ex26_pinned_host.facts import FUNCTIONS, PROGRAMS, ROUNDS, on_host
from grader.judging.arrays import FORM, load
from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import (
    bytes_of,
    culprits,
    definition,
    events,
    given,
    probe_gap,
    seen,
    through_a_program,
    to_host,
    wanted,
)
from grader.judging.memory import HELD, left
from grader.judging.programs import compiled_program, not_jitted
from grader.judging.results import (
    differing_leaf,
    differing_output,
    other_parts,
    renamed,
    zeros_of_other_sign,
)
from grader.judging.words import EVERYWHERE, PARTS, plural, where
from grader.records.record import PINNED, Event, Leaf, Measured, Record
from grader.source import statements

TAKES = f"`predict` takes its params in {PINNED} memory, and brings them to the device"
OF_A_SHARDING = (
    "The array is on its own devices. A sharding says in which memory of them it lies: "
    "x.sharding.memory_kind."
)
OF_A_SPEC = (
    "A spec says how an array is split, and one that names no axis puts all of it on each device. "
    "Which spec has the array itself?"
)
FOR_NUMPY = (
    "copy_to_host_async starts a copy for NumPy to read later. The array stays where it is, and "
    "the call returns None."
)
KEEP = ("Name no device: take the sharding that the array has, and change only its kind.",)
INSIDE = "inside-a-jitted-step"


def _rounds(record: Record) -> range:
    """The rounds in which each function was called."""
    return range(int(wanted(record).facts[ROUNDS]))


def _pairs(record: Record, function: str) -> list[tuple[Leaf, Leaf]]:
    """Every leaf of the original trees, with what the learner's function made of it."""
    values = seen(record).values
    names = [f"{function} {index}" for index in _rounds(record)]
    rounds = (zip(values[f"original of {name}"], values[name], strict=True) for name in names)
    return [pair for pairs in rounds for pair in pairs]


def _misplaced(record: Record, function: str, kind: str = "") -> Failure | None:
    """An array that is in another kind of memory than `kind`, or than its original."""
    pairs = _pairs(record, function)
    wrong = [pair for pair in pairs if pair[1].memory_kind != (kind or pair[0].memory_kind)]
    if wrong:
        # One that left its devices tells more.
        apart = (pair for pair in wrong if _devices(pair[0]) != _devices(pair[1]))
        return _elsewhere(record, function, kind, *next(apart, wrong[0]))
    # What is read is kept by the array that is read. `not_through_numpy` judges that.
    rounds = () if to_host(seen(record), phase=function) else _rounds(record)
    for index in rounds:
        if more := left(seen(record).facts[f"left beside {function} {index}"], function):
            return Failure(*more, statements.piled(record, function), HELD)
    return None


def _elsewhere(record: Record, function: str, kind: str, before: Leaf, after: Leaf) -> Failure:
    """The failure of an array that is in another kind of memory."""
    want = kind or before.memory_kind
    expected = f"`{function}(tree){after.path}` is in {want} memory of {_devices(before)}"
    place = f"in {after.memory_kind} memory of {_devices(after)}"
    observed = f"it is {place if after.kind == 'jax' else where(after)}"
    hint = FORM if after.kind == "other" else ""
    own = function == "to_host" or statements.uses(record, function, "sharding")
    if own and _devices(after) == _devices(before):
        hint = hint or OF_A_SHARDING
    started = statements.call(record, function, "copy_to_host_async")
    if after.kind == "jax" and started != definition(record, function):
        return Failure(expected, observed, started, FOR_NUMPY)
    return Failure(expected, observed, statements.result(record, function), hint)


def _devices(leaf: Leaf) -> str:
    return f"{leaf.platform}:{','.join(map(str, leaf.devices))}"


def _moved(record: Record, function: str) -> Failure | None:
    """The first array that is not sharded like its original."""
    for before, after in _pairs(record, function):
        if _split(before) != _split(after):
            expected = f"`{function}(tree){after.path}` stays in {_split(before)}"
            observed = f"it is in {_split(after)}"
            place = statements.result(record, function)
            whole = _devices(before) == _devices(after) and after.shard_shape == after.shape
            if whole and (named := statements.left_whole(record, function, "")) != definition(
                record, function
            ):
                return Failure(expected, observed, named, OF_A_SPEC)
            return Failure(expected, observed, place)
        if exchanged := other_parts(after, before):
            expected = f"each device keeps its own part of `{function}(tree){after.path}`"
            return Failure(expected, exchanged, statements.result(record, function))
    expected = f"`{function}` sends no array from device to device"
    if failure := through_a_program(record, expected, function):
        return failure
    if found := _by_way_of_another(record, function):
        observed = f"{found[0].nbytes:,} bytes went to {found[0].detail} that do not belong there"
        return Failure(expected, observed, culprits(record, found))
    mine, theirs = (list(events(side(record), "d2d", phase=function)) for side in (seen, wanted))
    copies, enough = (sum(event.count for event in found) for found in (mine, theirs))
    if copies > enough:
        observed = f"{plural(copies, 'copy')}, where {enough} bring each array to its other memory"
        return Failure(expected, observed, culprits(record, mine))
    return None


def _by_way_of_another(record: Record, function: str) -> list[Event]:
    """Copies to one device of a size that none of its own parts has, or that fewer of them have."""
    pairs = _pairs(record, function)
    if any(before.dtype != after.dtype for before, after in pairs):
        return []  # `same_values` judges that
    own = Counter[tuple[str, int | None]](
        (f"{leaf.platform}:{device}", bytes_of(leaf, leaf.shard_shape))
        for leaf, _ in pairs
        for device in leaf.devices
    )
    alone = [event for event in events(seen(record), "d2d", phase=function) if _is_alone(event)]
    copies = Counter[tuple[str, int | None]]()
    for event in alone:
        copies[event.detail, event.nbytes] += event.count
    over = copies.keys() - {one for one, count in copies.items() if count <= own[one]}
    return [event for event in alone if (event.detail, event.nbytes) in over]


def _is_alone(event: Event) -> bool:
    """Whether a copy went to a single device, which the log names."""
    return bool(event.nbytes) and event.detail not in ("", EVERYWHERE, PARTS)


def _split(leaf: Leaf) -> str:
    """`shards of (6, 24) on cpu:0,1,2,3`."""
    return f"shards of {leaf.shard_shape} on {_devices(leaf)}"


@EXERCISE.check(
    ground="observed",
    hints=(
        "NumPy's memory is pageable and belongs to no device. The memory of a CPU device belongs "
        "to another device. Pinned memory is a memory of the array's own device.",
        "jax.device_put(x, x.sharding.with_memory_kind('pinned_host')) for each leaf.",
    ),
)
def staged_in_pinned_host(record: Record) -> Result:
    """`to_host` puts every array into pinned_host memory, and keeps no other."""
    return _misplaced(record, "to_host", PINNED)


@EXERCISE.check(ground="observed", after=("staged_in_pinned_host",), hints=KEEP)
def staged_where_it_was(record: Record) -> Result:
    """`to_host` keeps every array with its own devices, sharded as before."""
    return _moved(record, "to_host") or probe_gap(seen(record), "transfers")


@EXERCISE.check(
    ground="observed",
    hints=(
        "jax.device_put(x) without a place, and jnp.asarray(x), leave an array where it is.",
        "A staged array still knows its devices: x.sharding.with_memory_kind('device').",
    ),
)
def back_in_device_memory(record: Record) -> Result:
    """`to_device` puts every staged array back into the memory it came from, and keeps no other."""
    return _misplaced(record, "to_device")


@EXERCISE.check(ground="observed", after=("back_in_device_memory",), hints=KEEP)
def back_where_it_was(record: Record) -> Result:
    """`to_device` brings every array back to its own devices, sharded as before."""
    return _moved(record, "to_device") or probe_gap(seen(record), "transfers")


@EXERCISE.check(
    ground="observed",
    after=("staged_in_pinned_host", "back_in_device_memory"),
    hints=("jax.device_put keeps each number and each dtype. What else happens to the arrays?",),
)
def same_values(record: Record) -> Result:
    """Values and dtypes stay the same in both directions."""
    for index in _rounds(record):
        for function in FUNCTIONS:
            name = f"{function} {index}"
            failure = differing_leaf(record, name, rtol=0, atol=0)
            if failure := failure or zeros_of_other_sign(record, name):
                found = renamed(failure, name, f"{function}(tree)")
                return replace(found, culprits=statements.result(record, function))
    return None


@EXERCISE.check(
    ground="observed",
    after=("staged_where_it_was", "back_where_it_was"),
    hints=("Give jax.device_put the array itself: it copies each shard on its own.",),
)
def not_through_numpy(record: Record) -> Result:
    """No array is read into NumPy's memory on the way."""
    reads = [read for name in FUNCTIONS for read in to_host(seen(record), phase=name)]
    copies = [copy for name in FUNCTIONS for copy in events(seen(record), "h2d", phase=name)]
    for found, what in ((reads, "read by the host"), (copies, "copy of an array of NumPy's")):
        if found:
            observed = plural(sum(event.count for event in found), what.partition(" ")[0])
            observed += f" {what.partition(' ')[2]}"
            return Failure("the host reads no array", observed, culprits(record, found))
    return probe_gap(seen(record), "reads", "transfers")


NOT_OFFERED = (
    "A donated argument is deleted by the call. The caller needs what it gave, and offered none."
)


def _program(record: Record, name: str) -> Measured | Failure | Unable:
    found = compiled_program(record, name, TAKES, made_by="predict")
    names = ("SingleDeviceSharding", "devices", "local_devices")
    if isinstance(found, Failure) and "different devices" in found.observed:
        return replace(found, culprits=statements.call(record, "predict", *names))
    return found


@EXERCISE.check(
    ground="observed",
    hints=("A copy before the call copies everything, and nothing runs beside it.",),
    anchor=INSIDE,
)
def predict_is_jitted(record: Record) -> Result:
    """`predict` itself is a function that jax.jit made."""
    return not_jitted(record, "predict")


@EXERCISE.check(
    ground="program",
    after=("predict_is_jitted",),
    hints=(
        "An operation needs all its operands in one memory. Which line moves the params?",
        "Under jit, jax.device_put takes a kind of memory: jax.memory.Space.Device.",
    ),
    anchor=INSIDE,
)
def takes_params_on_the_host(record: Record) -> Result:
    """`predict` takes the params in pinned host memory, and donates nothing that it is given."""
    for name in PROGRAMS:
        if not isinstance(program := _program(record, name), Measured):
            return program
        # An argument that is not used has no place. `same_prediction` catches that mistake.
        params = program.in_shardings[:-1]
        if not any(text.endswith(PINNED) for text in params):
            expected = f"the params enter the program in {PINNED} memory"
            return Failure(expected, f"none of them does: {', '.join(params)}")
        if program.donated:
            params_too = min(program.donated) < len(params)
            expected = f"the caller's {'params stay on the host' if params_too else 'inputs stay'}"
            asking = statements.call(record, "predict", "jit")
            return Failure(expected, "they are donated to the program", asking, NOT_OFFERED)
    return None


@EXERCISE.check(
    ground="observed",
    after=("takes_params_on_the_host",),
    hints=("Bring the params to the inputs, not the inputs to the params.",),
    anchor=INSIDE,
)
def computes_in_device_memory(record: Record) -> Result:
    """`predict` computes with arrays in device memory."""
    for name in PROGRAMS:
        found = seen(record).facts.get(on_host(name))
        if found is None:
            return Unable("`predict` was not traced")
        if found:
            expected = "arrays only wait in host memory: nothing is computed there"
            named = ", ".join(map(str, found))
            observed = f"computed with arrays in host memory, or on the host: {named}"
            place = statements.call(record, "predict", "compute_on", "device_put")
            return Failure(expected, observed, place)
    return None


@EXERCISE.check(
    ground="program",
    after=("computes_in_device_memory",),
    hints=("The result stays where it was computed. Send it nowhere.",),
    anchor=INSIDE,
)
def result_in_device_memory(record: Record) -> Result:
    """The result of `predict` is in device memory."""
    for name in PROGRAMS:
        if not isinstance(program := _program(record, name), Measured):
            return program
        if (found := ", ".join(program.out_memory_kinds)) != "device":
            expected, place = "the result is in device memory", statements.result(record, "predict")
            return Failure(expected, f"it is in {found} memory", place)
    return None


@EXERCISE.check(
    ground="program",
    after=("takes_params_on_the_host",),
    hints=("The network stays as the starter has it. Only the place of the params changes.",),
)
def same_prediction(record: Record) -> Result:
    """`predict` computes the reference's outputs."""
    # A GPU rounds the operands of its products to TF32, unless a program asks it not to.
    rtol, atol = (1e-2, 5e-3) if _on_gpu(record) else (1e-4, 1e-5)
    for name in PROGRAMS:
        if not isinstance(program := _program(record, name), Measured):
            return program
        if failure := differing_output(record, name, rtol=rtol, atol=atol):
            left = statements.unnamed(record, "predict", ("w1", "b1", "w2"))
            names = " and ".join(f'"{key}"' for key in left)
            observed = failure.observed + f"; `predict` does not use {names}" * bool(left)
            place = statements.result(record, "predict")
            if _without_tanh(record, name, program):
                made = statements.assigned(record, "predict", "hidden")
                place = place if made == definition(record, "predict") else made
                observed = f"{failure.observed}: it is what the network gives without `tanh`"
            return replace(failure, observed=observed, culprits=place)
    return None


def _without_tanh(record: Record, name: str, program: Measured) -> bool:
    """Whether a program gave what the network gives if its hidden units are sums alone."""
    import numpy as np  # here: the command line starts without it

    leaves = {
        leaf.path.split("'")[-2] if "'" in leaf.path else "": leaf for leaf in given(record, name)
    }
    outputs = program.outputs
    try:
        b1, w1, w2, inputs, got = (
            load(leaf.data or b"").astype(float)
            for leaf in (*(leaves[key] for key in ("b1", "w1", "w2", "")), outputs[0])
        )
        linear = (inputs @ w1 + b1) @ w2
    except (KeyError, ValueError):
        return False
    return got.shape == linear.shape and np.allclose(got, linear, 1e-3, 1e-3, equal_nan=True)


def _on_gpu(record: Record) -> bool:
    return record.machine is not None and record.machine.platform == "gpu"
