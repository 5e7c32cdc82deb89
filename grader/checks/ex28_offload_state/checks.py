"""Checks of ex28_offload_state: the state that `init` leaves, and what `step` does with one.

Where arrays enter and leave the step, and what is written in place, is read from the compiled
program. What it computes in host memory is read from its trace, because simulated CPU devices
run such a program without complaint. The peak of device memory is judged on the target alone.
"""

from collections.abc import Iterator
from dataclasses import replace

from grader.checks.ex28_offload_state import EXERCISE, facts
from grader.checks.ex28_offload_state.facts import CALLS, PROGRAMS
from grader.judging.arrays import FORM
from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import definition, seen, target_of, wanted
from grader.judging.memory import (
    BATCH_STAYS,
    HELD,
    OF_A_NUMBER,
    OF_ITS_OWN,
    OF_THE_BATCH,
    bringing,
    counts_alone,
    left,
    moved_result,
    not_in_place,
    shared,
    state_at_once,
    weak,
)
from grader.judging.programs import compiled_program, not_jitted, target_program, target_reference
from grader.judging.results import differing_leaf, differing_output, other_order, other_parts
from grader.judging.steps import (
    NO_GRADIENT,
    SCALED,
    gradient_ratio,
    lost_states,
    other_output_moment,
    other_output_step,
    output_step_ratio,
    step_in_words,
    waits_alone,
)
from grader.judging.words import plural, where
from grader.records.record import PINNED, Leaf, Measured, Record
from grader.records.verdict import Culprit
from grader.source import statements

OF_THE_UPDATE = (
    "What is added to a param is the first value that adam.update returns for the gradient and the "
    "state of that param. What does this line add?"
)
TAKES = f"`step` takes its state in {PINNED} memory, and brings it to the device"
OF_ITS_PARAM = (
    "An average has the dtype of its param, and params have several. Which line says one?"
)
OF_THE_OLD = "The loss is that of the params which the step was given: the gradient is taken there."


def _states(record: Record) -> Iterator[str]:
    """The name of each state that `init` returned."""
    yield from (facts.state(call + 1) for call in range(int(wanted(record).facts[CALLS])))


def _program(record: Record, name: str) -> Measured | Failure | Unable:
    return compiled_program(record, name, TAKES, made_by="step")


@EXERCISE.check(
    ground="observed",
    hints=(
        "adam.init makes its arrays in device memory, and its count on one device. Each of them "
        "needs a sharding: on which mesh, by which spec, in which kind of memory?",
    ),
    anchor="memory-kinds",
)
def starts_on_the_host(record: Record) -> Result:
    """`init` returns Adam's fresh state in pinned host memory, and leaves no other arrays."""
    for name in _states(record):
        for leaf in seen(record).values[name]:
            if leaf.memory_kind != PINNED:
                place = f"in {leaf.memory_kind} memory" if leaf.kind == "jax" else where(leaf)
                expected = f"`state{leaf.path}` is in {PINNED} memory"
                some = _some_are_there(record)
                made = _putting(record, leaf) if some else _placing(record)
                return Failure(expected, f"it is {place}", made, _of_numpy(leaf))
        if failure := differing_leaf(record, name, rtol=0, atol=0):
            hint = OF_ITS_PARAM if "has dtype" in failure.expected else failure.hint
            return replace(failure, culprits=_other_state(record, failure), hint=hint)
        paths = seen(record).facts[facts.weak(name)]
        if found := weak("state", paths):
            named = (one for one in seen(record).values[name] if one.path == paths[0])
            return Failure(*found, _putting(record, next(named, None)), OF_A_NUMBER)
        if found := shared("state", seen(record).facts[facts.twice(name)]):
            return Failure(*found, statements.result(record, "init"), OF_ITS_OWN)
        if more := left(seen(record).facts[facts.left(name)], "init"):
            return Failure(*more, statements.piled(record, "init"), HELD)
    return None


@EXERCISE.check(
    ground="observed",
    after=("starts_on_the_host",),
    hints=(
        "What optax makes from a param has the param's sharding. A count is on the default device: "
        "it needs other devices, not only another memory.",
        "All arguments of one program lie on the same devices: put the count on the param's mesh.",
    ),
    anchor="memory-kinds",
)
def split_like_its_param(record: Record) -> Result:
    """Every average is sharded like its param, and the count is on all devices."""
    for name in _states(record):
        mine, theirs = seen(record).values[name], wanted(record).values[name]
        for leaf, right in zip(mine, theirs, strict=True):
            if _lies(leaf) != _lies(right):
                expected = f"`state{leaf.path}` is {_lies(right)}"
                single = [] if right.shape else _on_one_device(record)
                return Failure(expected, f"it is {_lies(leaf)}", single or _placing(record, leaf))
            if leaf.devices != right.devices:
                ids = [", ".join(map(str, one.devices)) for one in (right, leaf)]
                expected = f"`state{leaf.path}` is on the devices of its param, {ids[0]}"
                return Failure(expected, f"it is on {ids[1]}", _placing(record))
            if exchanged := other_parts(leaf, right):
                expected = f"each device holds the part of `state{leaf.path}` of its param"
                return Failure(expected, exchanged, _placing(record))
            if order := other_order(leaf, right):
                expected = f"`state{leaf.path}` is on the devices of its param in their order"
                return Failure(
                    expected, f"it is on devices {order}", _putting(record, leaf), IN_ORDER
                )
    return None


IN_ORDER = (
    "One program takes arrays whose meshes have the same devices in the same order. The mesh of a "
    "param is param.sharding.mesh. On which mesh is this array?"
)


def _some_are_there(record: Record) -> bool:
    """Whether some array of a state is in pinned host memory: what places it is right."""
    leaves = (leaf for name in _states(record) for leaf in seen(record).values[name])
    return any(leaf.memory_kind == PINNED for leaf in leaves)


def _placing(record: Record, leaf: Leaf | None = None) -> list[Culprit]:
    """The only place in `init` that says where arrays lie, else where it puts this one."""
    names = "NamedSharding", "with_memory_kind", "device_put"
    found = statements.call(record, "init", *names)
    return _putting(record, leaf) if found == definition(record, "init") else found


def _on_one_device(record: Record) -> list[Culprit]:
    """Where `init` names a single device; nothing if it does not."""
    found = statements.call(record, "init", "SingleDeviceSharding", "devices")
    return [] if found == definition(record, "init") else found


def _putting(record: Record, leaf: Leaf | None) -> list[Culprit]:
    """Where `init` gives an array its value, or its place, by its name; else that of its result."""
    field = leaf.path.rpartition(".")[2] if leaf else ""
    for place in (statements.entry, statements.assigned):
        if (found := place(record, "init", field)) != definition(record, "init"):
            return found
    return statements.result(record, "init")


def _other_state(record: Record, failure: Failure) -> list[Culprit]:
    """Where `init` makes a state of other numbers, or of another type."""
    making = ("astype", "zeros", "zeros_like", "full", "asarray")
    made = statements.call(record, "init", *making) if "dtype" in failure.observed else []
    known = made and made != definition(record, "init")
    return made if known else statements.result(record, "init")


def _of_numpy(leaf: Leaf) -> str:
    """The hint for an array of NumPy's, else ""."""
    if leaf.kind != "numpy":
        return ""
    return (
        "NumPy's memory belongs to no device. Pinned memory does: a jax.Array lies there, by a "
        "sharding with that kind of memory."
    )


def _lies(leaf: Leaf) -> str:
    """`in shards of (8, 64) on 8 devices`, `whole on 1 device`."""
    devices = plural(len(leaf.devices), "device")
    whole = leaf.shard_shape == leaf.shape
    return f"whole on {devices}" if whole else f"in shards of {leaf.shard_shape} on {devices}"


@EXERCISE.check(
    ground="observed",
    hints=("A copy outside the step moves all of the state, before it starts and after it ends.",),
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
    found = (_program(record, name) for name in PROGRAMS)
    return next((one for one in found if not isinstance(one, Measured)), None)


@EXERCISE.check(
    ground="observed",
    after=("takes_it_from_the_host",),
    hints=("Bring the state to the gradients, not the gradients to the state.",),
)
def computes_in_device_memory(record: Record) -> Result:
    """`step` computes with arrays in device memory."""
    for name in PROGRAMS:
        found = seen(record).facts.get(facts.on_host(name))
        if found is None:
            return Unable("`step` was not traced")
        if found:
            named = ", ".join(map(str, found))
            observed = f"computed with arrays in host memory, or on the host: {named}"
            expected = "arrays only wait in host memory: nothing is computed there"
            return Failure(expected, observed, definition(record, "step"))
    return None


@EXERCISE.check(
    ground="program",
    after=("computes_in_device_memory",),
    hints=("`step(...)[0]` is the params, [1] the state, [2] the loss.", OF_THE_OLD),
)
def same_results(record: Record) -> Result:
    """Params, state and loss are those of a step without offloading."""
    for name in PROGRAMS:
        if not isinstance(program := _program(record, name), Measured):
            return program
        if failure := differing_output(record, name, rtol=1e-4, atol=1e-6):
            return _other_result(record, failure, name)
        if failure := differing_output(record, name, rtol=2e-5, atol=1e-6, part="[2]"):
            return _other_result(record, failure, name)
        if other := other_output_step(record, name):
            return replace(other, culprits=statements.result(record, "step", 0, 3))
        if other := other_output_moment(record, name):
            return replace(other, culprits=statements.result(record, "step", 1, 3))
    return None


UPHILL = "By which sign do the params change? optax's updates are added to the params."


def _other_result(record: Record, failure: Failure, name: str) -> Failure:
    """The failure at the value that is wrong, with what is known of the step's length."""
    part = next((n for n in range(3) if f"(...)[{n}]" in failure.expected), None)
    observed, hint = lost_states(record, name)
    if observed and failure.hint == FORM:
        place = statements.filled(record, "new_state") or statements.result(record, "step", 1, 3)
        expected = "the new state has an entry for each name in params, in the form of the old one"
        return Failure(expected, observed, place, hint)
    if waits_alone(record, name):
        place = statements.result(record, "step", *(() if part is None else (part, 3)))
        return replace(failure, culprits=place, hint=NO_GRADIENT)
    whole = part is None or failure.hint == FORM
    place = statements.result(record, "step", *(() if whole else (part, 3)))
    ratio = output_step_ratio(record, name, "") if part == 0 else None
    if part in (0, 1) and ratio is None and (times := gradient_ratio(record, name)):
        observed = f"{failure.observed}; the gradient is {times:.4g} times the reference's"
        place = statements.division(record, "step") or place
        return replace(failure, observed=observed, culprits=place, hint=SCALED)
    if ratio is None or failure.hint:
        hints = {0: OF_THE_UPDATE, 2: OF_THE_OLD}
        hint = "" if part is None else hints.get(part, "")
        return replace(failure, culprits=place, hint=failure.hint or hint)
    observed = f"{failure.observed}; the step of the params {step_in_words(ratio)}"
    place = (statements.subtraction(record, "step") if ratio < 0 else []) or place
    return replace(failure, observed=observed, culprits=place, hint=UPHILL if ratio < 0 else "")


@EXERCISE.check(
    ground="program",
    after=("same_results",),
    hints=(
        "The step may work once, and leave the state on the device for the next call.",
        "A result stays where it was computed: device_put(x, jax.memory.Space.Host) in the step, "
        "or out_shardings with the memory kind.",
    ),
)
def goes_back_to_the_host(record: Record) -> Result:
    """The step returns the new state in host memory, and params and loss in device memory."""
    for name in PROGRAMS:
        program, theirs = _program(record, name), record.reference_measured.get(name)
        if not isinstance(program, Measured):
            return program
        if theirs is None:
            return Unable("the reference was not compiled")
        names = seen(record).facts[facts.results(name)]
        if found := moved_result(names, program, theirs):
            of_state = "`state" in found[0]
            place = statements.result(record, "step", int(of_state), 3)
            hint = counts_alone(names, program, theirs) if of_state else STATE_ALONE
            return Failure(*found, place, hint)
    return None


STATE_ALONE = "Only the state waits on the host. What sends this result there with it?"


@EXERCISE.check(
    ground="program",
    after=("goes_back_to_the_host",),
    hints=("Host memory holds one state, not two: donate params and state.",),
)
def in_place(record: Record) -> Result:
    """The new params and the new state take the place of the old ones, and the batch stays."""
    place = statements.call(record, "step", "jit")
    for name in PROGRAMS:
        if not isinstance(program := _program(record, name), Measured):
            return program
        of_batch = seen(record).facts.get(facts.batch_donated(name))
        if found := not_in_place(program, seen(record).facts[facts.paths(name)]):
            expected, observed = found
            observed += "; the batch is donated" * bool(of_batch)
            return Failure(expected, observed, place, FROM_ZERO if of_batch else "")
        if of_batch:
            return Failure(*OF_THE_BATCH, place, BATCH_STAYS)
    return None


FROM_ZERO = (
    "The arguments of `step` are params, state and batch, counted from 0. Which of them does the "
    "marked line give away?"
)


@EXERCISE.check(
    ground="target",
    after=("in_place",),
    hints=(
        "The compiler starts a copy as early as it can. What could make it wait for a gradient?",
        "jax.lax.optimization_barrier((grad, state)) returns both once both are there. Use one for "
        "each param: with one barrier for all params, the whole state comes at once.",
        "Let the barrier of each param also take the state that went back before it. Then the "
        "states come one by one.",
    ),
    anchor="what-is-saved-and-when",
)
def never_whole_on_the_device(record: Record) -> Result:
    """On the target, the step never has more than a part of the state on the device."""
    found = target_program(record, "step")
    if not isinstance(found, Measured):
        return found
    machine = target_of(record).device_kind
    over = state_at_once(found, target_reference(record, "step"), machine)
    if not isinstance(over, tuple):
        return over
    return Failure(*over, *bringing(record, "step"))
