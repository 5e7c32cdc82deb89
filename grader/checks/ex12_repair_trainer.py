"""ex12_repair_trainer: six faults, each seen by what it does, each judged apart.

`train` is driven with a jitted step whatever the learner's step is, so that no fault hides
another; what each step gets and gives is kept (`grader.probes.repaired`). The default device is
the last one: code that names another one shows.
"""

from types import ModuleType
from typing import Any

from grader.arrays import compare
from grader.checking import Exercise, Failure, Observe, Result, Unable, unpack
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
from grader.record import Event, Measured, Observed, Record
from grader.words import plural, where

STEPS = 5
RUNS = "train", "again", "other"
"""The runs of `train`: the one that is judged, one from the same key, one from key + 1."""
SCALAR = 8
"""Bytes of the largest single number; no array of the model is as small."""
SLACK = 64
"""Bytes a step may bring to the device beside its batch: counters, rates."""
PREFETCHED = "after copy_to_host_async in an earlier step"


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
    """Export `step`, call it with two keys, and train for some steps, three times."""
    import jax

    from grader.probes.repaired import STEP, same, train

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
            observe.fact("old state", same(unpack(after, 3, STEP)[1], model[1]))
    observe.fact("batch bytes", sum(array.nbytes for array in batches[0]))
    with jax.default_device(jax.devices()[-1]):
        for name, key in zip(RUNS, (keys[2], keys[2], keys[2] + 1), strict=True):
            train(submission.train, observe, name, step, (model, key), batches)


def _calls(record: Record, run: str = "train") -> list[dict[str, Any]]:
    """What `step` was called with in one run, call by call."""
    calls: list[dict[str, Any]] = seen(record).facts[f"calls of {run}"]
    return calls


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
    place, calls = definition(record, "train"), _calls(record)
    numbers = [call["batch"] for call in calls]
    if numbers != list(range(STEPS)):
        order = ", ".join("another" if n is None else str(n) for n in numbers) or "none"
        return Failure(
            f"one step for each batch, in order: 0 to {STEPS - 1}", f"taken: {order}", place
        )
    if lost := [i for i, call in enumerate(calls) if not call["goes on"]]:
        expected = "each step starts with the model of the step before"
        return Failure(expected, f"step {lost[0]} does not", place)
    problem = str(seen(record).facts["train returned"])
    return (
        Failure("`train` returns (model, losses): what the steps gave", problem, place)
        if problem
        else None
    )


@EXERCISE.check(
    ground="observed",
    hints=(
        "JAX has no hidden random state: the same key gives the same numbers, at every call.",
        "key, subkey = jax.random.split(key), once for each step: use `subkey`, keep `key`.",
    ),
    anchor="one-key-one-mask",
)
def a_new_key_for_each_step(record: Record) -> Result:
    """Each step gets a key of its own, made from `key`, so that it drops other units."""
    calls = _calls(record)
    keys, again, other = ([tuple(c["key"]) for c in _calls(record, run)] for run in RUNS)
    used = [i for i, c in enumerate(calls) if any(d["key"] in c["parts"] for d in calls[i + 1 :])]
    if len(set(keys)) < len(keys):
        told = f"{plural(len(set(keys)), 'key')}: the same units are dropped again and again"
    elif again != keys:
        told = "called again with the same `key`, it makes other keys: they do not come from `key`"
    elif common := set(keys) & set(other):
        often = f"{len(common)} of {len(keys)} keys are the same"
        told = f"called with `key` + 1, {often}: they do not come from `key` by jax.random"
    elif used:
        told = f"step {used[0]} uses a key that is split later; Haiku splits it too, in the step"
    else:
        return None
    expected = f"{len(keys)} steps, {len(keys)} keys, all made from `key`, none split after its use"
    return Failure(expected, told, definition(record, "train"))


@EXERCISE.check(
    ground="observed",
    hints=("Which line names a device? The model is on one already, the right one.",),
    anchor="the-device-is-not-yours-to-name",
)
def runs_on_the_default_device(record: Record) -> Result:
    """Every step runs on the default device."""
    default, places = _places(wanted(record))[0], _places(seen(record))
    wrong = [place for place in places if place != default]
    if not wrong:
        return None
    told = f"{len(wrong)} of {len(places)} ran on {wrong[0]}, because their arrays were put there"
    return Failure(f"all steps run on {default}", told, definition(record, "train"))


def _places(observed: Observed) -> list[str]:
    """Where the steps ran: their losses are there."""
    losses = (v for k, v in observed.values.items() if k.startswith("train: loss"))
    return [where(leaves[0]) for leaves in losses]


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
    hints=(
        "A step's result is the next step's input. Who needs it on the host in between?",
        "`train` returns the model as its last step gave it, where it is.",
    ),
    anchor="the-model-stays-where-it-is",
)
def model_stays_on_its_device(record: Record) -> Result:
    """The model is neither read to the host nor copied to a device, between steps or at the end."""
    reads = _in_loop(record, small=False)
    copies = [e for e in events(seen(record), "h2d", "d2d", phase="train") if e.step > 1]
    sent = sum((e.nbytes or 0) * e.count for e in copies) // (STEPS - 1)
    limit = int(seen(record).facts["batch bytes"]) + SLACK
    if not reads and sent <= limit:
        return _moved_at_the_end(record) or probe_gap(seen(record), "reads", "transfers")
    read = plural(sum(e.count for e in reads), "array")
    expected = f"no read of an array between steps, at most {limit:,} bytes copied for each step"
    told = f"{read} read to the host, {sent:,} bytes copied a step: the model travels"
    return Failure(expected, told, culprits(record, reads + copies * (sent > limit)))


def _moved_at_the_end(record: Record) -> Failure | None:
    """The failure where `train` returns a model that is not where its last step ran."""
    last = _places(seen(record))[-1:]
    found = [where(leaf) for leaf in seen(record).values["model of train"]]
    moved = [place for place in found if last and place not in last]
    told = f"the model that `train` returns: {', '.join(moved[:1])}"
    expected = f"the model is where the last step ran: {', '.join(last)}"
    return Failure(expected, told, definition(record, "train")) if moved else None


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
