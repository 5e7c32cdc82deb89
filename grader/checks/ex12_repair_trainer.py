"""ex12_repair_trainer: six faults, each seen by what it does, each judged apart.

`train` is driven with a jitted step whatever the learner's step is, so that no fault hides
another. The default device is the last one: code that names another one shows.
"""

from types import ModuleType
from typing import Any

from grader.arrays import compare
from grader.checking import Exercise, Failure, Misused, Observe, Result, Unable, unpack
from grader.evidence import (
    compiled_program,
    culprits,
    definition,
    events,
    not_jitted,
    probe_gap,
    seen,
    wanted,
)
from grader.record import Event, Measured, Record
from grader.words import plural, where

STEPS = 5
SCALAR = 8
"""Bytes of the largest single number; no array of the model is as small."""
SLACK = 64
"""Bytes a step may bring to the device beside its batch: counters, rates."""
PREFETCHED = "after copy_to_host_async in an earlier step"
STEP, TRAIN = "`step` returns (model, loss)", "`train` returns (model, losses)"
ONCE = "`train` calls `step` once for each batch"


def _model(submission: ModuleType, rng: Any, batch: Any) -> Any:
    """Parameters, state and optimizer state, as NumPy arrays."""
    import jax

    key = jax.ShapeDtypeStruct((2,), "uint32")
    params, state = jax.eval_shape(submission.network.init, key, batch[0])
    shapes = params, state, jax.eval_shape(submission.optimizer.init, params)

    def draw(shape: Any) -> Any:
        return (rng.standard_normal(shape.shape) / 4).astype(shape.dtype)

    return jax.tree.map(draw, shapes)


def _batch(rng: Any, rows: int) -> Any:
    """NumPy inputs (rows, 16) float32 and labels (rows,) int32."""
    inputs = (1 + rng.standard_normal((rows, 16))).astype("float32")
    return inputs, rng.integers(0, 4, rows).astype("int32")


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Export `step`, call it with two keys, and train for some steps."""
    import jax

    rows = int(rng.integers(20, 40))
    batches = [_batch(rng, rows) for _ in range(STEPS)]
    keys = rng.integers(0, 1 << 32, (3, 2)).astype("uint32")
    model = _model(submission, rng, batches[0])
    step = submission.step if observe.jitted("step", submission.step) else jax.jit(submission.step)
    observe.program("step", submission.step, model, keys[0], batches[0])
    with jax.default_device(jax.devices()[-1]), observe.unwatched():
        for index in range(2):
            after, loss = unpack(step(*jax.device_put((model, keys[index])), batches[0]), 2, STEP)
            observe.value(f"loss with key {index}", loss)
            observe.fact("old state", _same(unpack(after, 3, STEP)[1], model[1]))
        start = jax.device_put((model, keys[2]))
    with jax.default_device(jax.devices()[-1]):
        _train(submission.train, observe, step, start, batches)


def _train(train: Any, observe: Observe, step: Any, start: Any, batches: list[Any]) -> None:
    """Train under observation; what `step` gets and gives is kept, call by call."""
    import jax

    calls, models, losses = [], [jax.device_get(start[0])], []

    def watched(model: Any, key: Any, batch: Any) -> Any:
        observe.mark()
        with observe.unwatched():
            before, drawn, rows = _given((model, key, batch))
            number = next((i for i, known in enumerate(batches) if _same(rows, known)), None)
            goes_on = _same(before, models[-1])
            calls.append({"key": drawn.tolist(), "batch": number, "goes on": goes_on})
        model, loss = unpack(step(model, key, batch), 2, STEP)
        with observe.unwatched():
            models.append(jax.device_get(model))
            losses.append(float(loss))
            observe.value(f"loss of step {len(calls)}", loss, data=False)
        return model, loss

    with observe.phase("train"):
        returned = unpack(train(watched, *start, iter(batches)), 2, TRAIN)
    observe.fact("calls", calls)
    observe.fact("returned", _problem(returned, models[-1], losses))
    observe.fact("batch bytes", sum(array.nbytes for array in batches[0]))


def _problem(returned: Any, model: Any, losses: list[float]) -> str:
    """What is wrong with what `train` returned, after its last step made `model`."""
    import jax
    import numpy as np

    mine = returned[1] if isinstance(returned[1], list | tuple) else [returned[1]]
    odd = next((type(x) for x in mine if not isinstance(x, float | np.floating)), None)
    if odd:
        return f"losses hold a {'jax.Array' if issubclass(odd, jax.Array) else odd.__name__}"
    if len(mine) != len(losses) or not np.allclose(mine, losses, rtol=1e-5):
        return f"losses are {mine}, the steps gave {losses}"
    return "" if _same(returned[0], model) else "the model is not the last step's"


def _given(arguments: Any) -> Any:
    """What `step` was called with, as NumPy arrays."""
    import jax

    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(arguments)):
        raise Misused(ONCE, "it wraps it in another jit, so that each call is not seen")
    return jax.device_get(arguments)


def _same(mine: Any, theirs: Any) -> bool:
    """Whether two trees hold the same numbers."""
    import jax
    import numpy as np

    mine, theirs = jax.tree.leaves(mine), jax.tree.leaves(theirs)
    return len(mine) == len(theirs) and all(map(np.array_equal, mine, theirs))


EXERCISE = Exercise(
    title="Repair a trainer",
    lesson="lessons/07-repair-the-trainer",
    anchor="six-faults-and-what-they-do",
    edits=("step", "train"),
    drive=drive,
    devices=2,
    hints=(
        "Three faults cost time, two change what is learned, one takes the work elsewhere. "
        "Each has a check of its own: take them one at a time.",
        "`step`: one program? What does `network.apply` return besides the logits? `train`: "
        "which lines wait, copy, or name a device, and what should differ from step to step?",
        "jax.jit on `step`, has_aux=True for the new state; in `train` a split of the key a "
        "step, a list of loss arrays read at the end, and no device_put or device_get.",
    ),
)


@EXERCISE.check(ground="observed", hints=("Put @jax.jit on `step`.",), anchor="no-jit-no-program")
def step_is_jitted(record: Record) -> Result:
    """`step` is one compiled program: a function that jax.jit made."""
    return not_jitted(record, "step")


def _differing(record: Record, told: str, *starts: str) -> Failure | Unable | None:
    """How outputs of the program of `step` differ from the reference's; `told` says more."""
    mine, theirs = compiled_program(record, "step"), record.reference_measured.get("step")
    if not isinstance(mine, Measured):
        return mine
    if theirs is None:
        return Unable("the reference was not compiled")
    got, want = ([x for x in p.outputs if x.path.startswith(starts)] for p in (mine, theirs))
    found = compare("step(...)", got, want, "", "", rtol=1e-3, atol=1e-4)
    return found and Failure(found.expected, f"{found.observed}{told}", definition(record, "step"))


@EXERCISE.check(
    ground="program",
    hints=(
        "hk.transform_with_state: `apply` returns (output, state). Who takes the second?",
        "Return the new state from `loss_fn` as its second value, and say has_aux=True.",
    ),
    anchor="state-that-is-thrown-away",
)
def state_is_kept(record: Record) -> Result:
    """`step` returns the state that the network made."""
    lost = ": the state that went in, the new one is lost" * seen(record).facts["old state"]
    return _differing(record, lost, "[0][1]")


@EXERCISE.check(
    ground="program",
    hints=("The network gets the key that `step` was given.",),
    anchor="one-key-one-mask",
)
def same_step(record: Record) -> Result:
    """`step` gives the reference's loss, parameters and optimizer state."""
    losses = [seen(record).values[f"loss with key {i}"][0].data for i in range(2)]
    unused = "; the loss is the same for any key: `key` does not reach the network"
    return _differing(record, unused * (losses[0] == losses[1]), "[0][0]", "[0][2]", "[1]")


@EXERCISE.check(ground="observed", hints=("One batch, one step, in the order they come.",))
def trains_on_every_batch(record: Record) -> Result:
    """`train` takes one step for each batch, from model to model, and returns what they gave."""
    place, calls = definition(record, "train"), seen(record).facts["calls"]
    numbers = [call["batch"] for call in calls]
    if numbers != list(range(STEPS)):
        order = ", ".join("another" if n is None else str(n) for n in numbers) or "none"
        return Failure(f"{ONCE}, in order: 0 to {STEPS - 1}", f"taken: {order}", place)
    if lost := [i for i, call in enumerate(calls) if not call["goes on"]]:
        expected = "each step starts with the model of the step before"
        return Failure(expected, f"step {lost[0]} does not", place)
    problem = str(seen(record).facts["returned"])
    return Failure(f"{TRAIN}: what the steps gave", problem, place) if problem else None


@EXERCISE.check(
    ground="observed",
    hints=(
        "JAX has no hidden random state: the same key gives the same numbers, at every call.",
        "key, subkey = jax.random.split(key), once for each step.",
    ),
    anchor="one-key-one-mask",
)
def a_new_key_for_each_step(record: Record) -> Result:
    """Each step gets a key of its own, so that it drops other units."""
    keys = [tuple(call["key"]) for call in seen(record).facts["calls"]]
    if len(set(keys)) == len(keys):
        return None
    same = f"{plural(len(set(keys)), 'key')}: the same units are dropped again and again"
    return Failure(f"{len(keys)} steps, {len(keys)} keys", same, definition(record, "train"))


@EXERCISE.check(
    ground="observed",
    hints=("Which line names a device? The model is on one already, the right one.",),
    anchor="the-device-is-not-yours-to-name",
)
def runs_on_the_default_device(record: Record) -> Result:
    """Every step runs on the default device."""
    default = where(wanted(record).values["loss of step 1"][0])
    places = [where(v[0]) for k, v in seen(record).values.items() if k.startswith("loss of")]
    wrong = [place for place in places if place != default]
    if not wrong:
        return None
    told = f"{len(wrong)} of {len(places)} ran on {wrong[0]}, because their arrays were put there"
    return Failure(f"all steps run on {default}", told, definition(record, "train"))


def _in_loop(record: Record, small: bool) -> list[Event]:
    """Reads that steps had to wait for: of single numbers, or of arrays."""
    found = events(seen(record), "d2h", phase="train")
    between = [e for e in found if 0 < e.step < STEPS and e.detail != PREFETCHED]
    return [e for e in between if ((e.nbytes or 0) <= SCALAR) == small]


@EXERCISE.check(
    ground="observed",
    hints=(
        "Who needs the number in the loop? An array can be kept, and read after the last step.",
        "To read in the loop: loss.copy_to_host_async() after its step, the read a step later.",
    ),
    anchor="a-read-a-step",
)
def no_waits_for_the_loss(record: Record) -> Result:
    """No step waits until the loss of the step before has been read."""
    waits = [e for e in events(seen(record), "wait", phase="train") if 0 < e.step < STEPS]
    found = _in_loop(record, small=True) + waits
    if not found:
        return probe_gap(seen(record), "reads")
    told = f"{plural(sum(event.count for event in found), 'wait')} in {STEPS} steps"
    return Failure(f"no wait in a step; no read but {PREFETCHED}", told, culprits(record, found))


@EXERCISE.check(
    ground="observed",
    hints=("A step's result is the next step's input. Who needs it on the host in between?",),
    anchor="the-model-stays-where-it-is",
)
def model_stays_on_its_device(record: Record) -> Result:
    """Between steps the model is neither read to the host nor copied to a device."""
    reads = _in_loop(record, small=False)
    copies = [e for e in events(seen(record), "h2d", "d2d", phase="train") if e.step > 1]
    sent = sum((e.nbytes or 0) * e.count for e in copies) // (STEPS - 1)
    limit = int(seen(record).facts["batch bytes"]) + SLACK
    if not reads and sent <= limit:
        return probe_gap(seen(record), "reads", "transfers")
    read = plural(sum(e.count for e in reads), "array")
    expected = f"no read of an array between steps, and at most {limit:,} bytes copied to each"
    told = f"{read} read to the host, {sent:,} bytes copied a step: the model travels"
    return Failure(expected, told, culprits(record, reads + copies * (sent > limit)))


@EXERCISE.check(
    ground="observed",
    hints=("Every call of jax.jit makes a new function, with nothing compiled yet.",),
    anchor="no-jit-no-program",
)
def nothing_compiles_again(record: Record) -> Result:
    """After the first steps nothing is compiled any more."""
    found = [e for e in events(seen(record), "compile", phase="train") if 2 < e.step < STEPS]
    if not found:
        return probe_gap(seen(record), "compiles")
    told = f"{plural(sum(event.count for event in found), 'compile')} in {STEPS - 3} steps"
    return Failure("0 compiles after the second step", told, culprits(record, found))
