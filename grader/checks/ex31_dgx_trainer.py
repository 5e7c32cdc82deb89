"""ex31_dgx_trainer: every part of a trainer for eight GPUs, each judged by itself.

What one function gets, the drive makes (`grader.probes.trainer`): a wrong `place` costs
`make_step` and `train` nothing.
"""

from types import ModuleType
from typing import Any

from grader.checking import Exercise, Failure, Observe, Result, Unable
from grader.evidence import (
    compiled_program,
    culprits,
    definition,
    differing_leaf,
    differing_output,
    not_jitted,
    probe_gap,
    seen,
    target_of,
    target_program,
    target_reference,
    wanted,
)
from grader.looping import calls_of, most_ahead, stalls, unjudged
from grader.memories import PINNED, moved_result, not_in_place, state_at_once
from grader.record import Leaf, Measured, Record
from grader.words import exchanges, plural, where

BLOCKS = 4
RUNS = {"6 batches": 6, "9 batches, stopped early": 9}
MOST_AHEAD = {"put": 4, "read": 5}
"""Batches that no step was run on yet: as many on the devices as `train` promises; and one more
waits on the host. Every run has more."""
SCALE = 512
"""How much larger every dimension is on the target: GiBs, which are never allocated."""
SCALARS = 64
"""Bytes that may be exchanged beside gradients and activations: the loss, a count."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Each function for itself, on what the drive placed."""
    from grader.probes.trainer import Trainer

    trainer = Trainer(submission, observe, rng, BLOCKS)
    trainer.place()
    for name, count in RUNS.items():
        trainer.train(name, count, stopped="stopped" in name)
    trainer.step(SCALE)


EXERCISE = Exercise(
    title="A trainer for eight GPUs",
    lesson="lessons/18-the-dgx-trainer",
    anchor="one-trainer",
    edits=("place", "place_batch", "make_step", "train"),
    drive=drive,
    devices=8,
    fewest_gpus=4,
    hints=(
        "Each check is about one function alone. Take them one by one.",
        "Places first: specs for the batch and for params, the same for the state, in another "
        "memory. Then the step, then the loop.",
        "Each part has a paragraph of its own in the lesson, where the link of its check leads. "
        "The code there does the same for other sizes.",
    ),
)


def _misplaced(record: Record, name: str, function: str) -> Failure | None:
    """The first array that is not split, or not in the memory, as the reference's is."""
    for mine, theirs in zip(seen(record).values[name], wanted(record).values[name], strict=True):
        if _lies(mine) != _lies(theirs):
            expected = f"`{name}{mine.path}` of {theirs.shape} is {_lies(theirs)}"
            return Failure(expected, f"it is {_lies(mine)}", definition(record, function))
    return differing_leaf(record, name, rtol=0, atol=0)


def _lies(leaf: Leaf, shards: str = "") -> str:
    """`shards of (16, 32) on 8 devices, in pinned_host memory`."""
    if leaf.kind != "jax":
        return where(leaf)
    return f"{shards or _shards(leaf)}, in {leaf.memory_kind} memory"


def _shards(leaf: Leaf) -> str:
    return f"shards of {leaf.shard_shape} on {plural(len(leaf.devices), 'device')}"


@EXERCISE.check(
    ground="observed",
    hints=(
        "A spec names the axis that splits a dimension; where none is named, all is copied.",
        'P("data") splits the rows, and gives each part to all devices along "model".',
    ),
    anchor="two-axes",
)
def batch_is_split(record: Record) -> Result:
    """`place_batch` splits the rows over "data", and gives them to all devices along "model"."""
    return _misplaced(record, "batch", "place_batch")


@EXERCISE.check(
    ground="observed",
    hints=(
        "Which dimension of `up` is the 4 d, which of `down`? Axis 'model' splits that one.",
        'P(None, "model") for "up", P("model", None) for "down".',
    ),
    anchor="two-axes",
)
def weights_are_split(record: Record) -> Result:
    """`place` splits the 4 d of every block over "model": columns of `up`, rows of `down`."""
    return _misplaced(record, "params", "place")


@EXERCISE.check(
    ground="observed",
    hints=(
        "An average has the sharding of its param, and another memory kind.",
        'P() for the count; memory_kind="pinned_host" for all.',
    ),
    anchor="state-on-the-host",
)
def state_waits_on_the_host(record: Record) -> Result:
    """`place` leaves Adam's fresh state in pinned host memory, split as the params are."""
    own = {leaf.path: _shards(leaf) for leaf in seen(record).values["params"]}
    pairs = zip(seen(record).values["state"], wanted(record).values["state"], strict=True)
    for mine, theirs in pairs:
        block, name = theirs.path.partition("]")[0], theirs.path.rpartition("[")[2]
        # Beside weights that are split wrongly, both are an answer to what is asked here.
        right = [_lies(theirs), _lies(theirs, own.get(f"{block}][{name}", ""))]
        if _lies(mine) not in right:
            expected = f"`state{mine.path}` of {theirs.shape} is {right[0]}"
            return Failure(expected, f"it is {_lies(mine)}", definition(record, "place"))
    return differing_leaf(record, "state", rtol=0, atol=0)


@EXERCISE.check(ground="observed", anchor="one-trainer")
def one_program(record: Record) -> Result:
    """`make_step` returns a function that jax.jit made."""
    return not_jitted(record, "step", "make_step")


@EXERCISE.check(ground="program", after=("one_program",))
def same_results(record: Record) -> Result:
    """The step's params, state and loss are the reference's."""
    program = compiled_program(record, "step")
    if not isinstance(program, Measured):
        return program
    return differing_output(record, "step", rtol=2e-3, atol=2e-5)


@EXERCISE.check(
    ground="program",
    after=("same_results",),
    hints=(
        "An all-gather makes something whole on every device. Who asks for the whole?",
        "out_shardings of P() do: results that stay split need none.",
    ),
    anchor="count-what-travels",
)
def no_more_travels_than_needed(record: Record) -> Result:
    """Only sums travel: of the gradients over "data", of one activation a block over "model"."""
    program = compiled_program(record, "step")
    if not isinstance(program, Measured):
        return program
    gradients, activations = _needed(record)
    total = sum(c.nbytes * c.count for c in program.collectives)
    ops = {c.op for c in program.collectives}
    if ops == {"all-reduce"} and gradients <= total <= gradients + activations + SCALARS:
        return None
    return Failure(
        f"all-reduces alone: {gradients:,} bytes of gradients, {activations:,} of activations",
        exchanges(program.collectives),
        definition(record, "make_step"),
    )


def _needed(record: Record) -> tuple[int, int]:
    """Bytes that a step exchanges on one device: its gradients; activations, there and back."""
    rows, width = seen(record).facts["sizes"]
    # Backward, the first block's input needs no gradient.
    return 4 * BLOCKS * 8 * width * width // 2, 4 * rows * width * (2 * BLOCKS - 1)


@EXERCISE.check(
    ground="program",
    after=("same_results",),
    hints=("donate_argnums says which arguments the step may overwrite: not the batch.",),
    anchor="donate-both",
)
def written_in_place(record: Record) -> Result:
    """The new params and the new state take the place of the old ones."""
    program = compiled_program(record, "step")
    if not isinstance(program, Measured):
        return program
    facts = seen(record).facts
    state = "device" if "not from the host" in facts else PINNED
    # What leaves in another memory than it came from has no old place: `offloaded` tells of it.
    moved = [
        name
        for name, kind in zip(facts.get("results", ()), program.out_memory_kinds, strict=False)
        if kind != (state if name.startswith("state") else "device")
    ]
    # Nor has what leaves in other parts than it came: `no_more_travels_than_needed` tells of that.
    places = zip(facts["paths"], program.in_shardings, program.out_shardings, strict=False)
    split = [name for name, old, new in places if old != new and name in facts.get("donated", ())]
    found = not_in_place(program, facts["paths"], apart=moved + split)
    return found and Failure(*found, definition(record, "make_step"))


@EXERCISE.check(
    ground="program",
    after=("same_results",),
    hints=(
        "jit moves no argument from one memory to another, and leaves results where they were "
        "computed.",
        "In the step: jax.device_put(..., jax.memory.Space.Device) first, Space.Host at the end. "
        "Where out_shardings are given, they have the last word on the memory too.",
    ),
    anchor="state-on-the-host",
)
def offloaded(record: Record) -> Result:
    """The step takes the state from host memory, computes on the device, and puts it back."""
    program, theirs = compiled_program(record, "step"), record.reference_measured.get("step")
    facts, place = seen(record).facts, definition(record, "make_step")
    if refusal := facts.get("not from the host"):
        return Failure(f"the step takes its state in {PINNED} memory", str(refusal), place)
    if not isinstance(program, Measured):
        return program
    if theirs is None:
        return Unable("the reference was not compiled")
    if found := facts["on host"]:
        observed = f"arithmetic in host memory: {', '.join(map(str, found))}"
        return Failure("in host memory arrays only wait", observed, place)
    moved = moved_result(facts["results"], program, theirs)
    return moved and Failure(*moved, place)


@EXERCISE.check(
    ground="observed",
    hints=("The last batch was read before the loop knew that none follows: it needs its step.",),
    anchor="the-loop",
)
def same_losses(record: Record) -> Result:
    """`train` runs one step for each batch until `stop` ends it, and returns the losses."""
    for name in RUNS:
        if found := unjudged(record, name):
            return Failure(*found, definition(record, "train"))
        for what in ("losses of", "params and state after"):
            failure = differing_leaf(record, f"{what} {name}", rtol=1e-4, atol=1e-5)
            if failure:
                return failure
    return None


@EXERCISE.check(
    ground="observed",
    after=("same_losses",),
    hints=(
        "float(loss) waits for the step. A batch that is put after that line comes late; a whole "
        "epoch that is put before it fills the device.",
        "Between the call of `step` and float(loss), read and put one more batch, not all.",
    ),
    anchor="the-loop",
)
def next_batch_is_on_its_way(record: Record) -> Result:
    """The next batch, and at most 4, is read and put before the loop waits for a loss."""
    place = definition(record, "train")
    for name, count in RUNS.items():
        calls = calls_of(record, name)
        for what, most in MOST_AHEAD.items():
            if (found := most_ahead(calls, what)) > most:
                expected = f"at most {most} batches are {what} and no step was run on them yet"
                return Failure(expected, f"{found} are (run of {name})", place)
        for step, event in stalls(record, name, count):
            expected = f"batch {step + 1} is put before the wait for the loss of step {step}"
            lines = culprits(record, [event]) if event else place
            return Failure(expected, f"it is put after it (run of {name})", lines or place)
    return probe_gap(seen(record), "reads")


@EXERCISE.check(
    ground="target",
    after=("no_more_travels_than_needed", "written_in_place", "offloaded"),
    hints=(
        "A copy to the device starts as early as it can. What makes it wait for the gradients?",
        "One jax.lax.optimization_barrier for each block: of its gradient, its state, and the "
        "state that went back before it. So they come one by one.",
    ),
    anchor="what-it-takes-on-the-target",
)
def fits_on_the_target(record: Record) -> Result:
    """On the target, a device never holds the whole of its state beside its activations."""
    found = target_program(record, "step")
    if not isinstance(found, Measured):
        return found
    machine = target_of(record).device_kind
    over = state_at_once(found, target_reference(record, "step"), machine)
    return Failure(*over, definition(record, "make_step")) if isinstance(over, tuple) else over
