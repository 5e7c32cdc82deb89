"""ex09_stay_on_cpu: the batch is made on a CPU device, the model runs on the default one.

Where there is no GPU, a simulated CPU device is made the default and stands for the
accelerator, and another is the CPU: neither the first nor the last, so that only who uses
the device that is passed in finds it. On a machine with GPUs both are what they are.
"""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from grader.checking import Exercise, Failure, Observe, Result
from grader.evidence import culprits, definition, differing_leaf, events, probe_gap, seen, wanted
from grader.record import Event, Leaf, Record
from grader.words import plural, where

COMMITMENTS = ("committed", "uncommitted")
COPIES = ("h2d", "d2d", "d2h")


def _places() -> tuple[Any, Any]:
    """The CPU and the accelerator; of four simulated devices, numbers 1 and 2."""
    import jax

    cpus, everything = jax.devices("cpu"), jax.devices()
    return cpus[len(cpus) // 4], everything[len(everything) // 2]


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Prepare two batches, and predict from one of the drive's own, committed and not."""
    import jax

    cpu, accelerator = _places()
    rows = int(rng.integers(20, 60))
    observe.fact("cpu", f"{cpu.platform}:{cpu.id}")
    for index, seed in enumerate(rng.integers(0, 1 << 20, 2)):
        raw = (3 + 2 * rng.standard_normal((rows, 16))).astype("float32")
        with jax.default_device(accelerator):
            with observe.phase(f"prepare {index}"):
                batch = submission.prepare(raw, int(seed), cpu)
            observe.value(f"batch {index}", batch)
            _new_array(observe, "prepare")
    _predict(submission, observe, rng, rows)


def _predict(submission: ModuleType, observe: Observe, rng: Any, rows: int) -> None:
    import jax

    cpu, accelerator = _places()
    for kind in COMMITMENTS:
        draw = [rng.standard_normal(s).astype("float32") for s in ((rows, 16), (16, 24), (24, 4))]
        with jax.default_device(accelerator):
            with observe.unwatched():
                params = {"w1": jax.device_put(draw[1]), "w2": jax.device_put(draw[2])}
                with jax.default_device(cpu):
                    batch = jax.device_put(draw[0], cpu if kind == "committed" else None)
            with observe.phase(f"predict {kind}"):
                found = submission.predict(params, batch, accelerator)
            observe.value(f"prediction {kind}", found)
            _new_array(observe, "predict")


def _new_array(observe: Observe, function: str) -> None:
    """Where a new array lies once `function` has returned."""
    import jax.numpy as jnp

    with observe.unwatched():
        observe.value(f"made after {function}", jnp.zeros(()))


EXERCISE = Exercise(
    title="Prepare on the CPU, predict on the accelerator",
    lesson="lessons/05-who-decides-where-it-runs",
    anchor="who-wins",
    edits=("prepare", "predict"),
    drive=drive,
    devices=4,
    fewest_gpus=1,
    hints=(
        "Two things decide where a program runs: the arrays that are committed, and, if there "
        "is none, the default device. Which of the two reaches an array that is not made yet?",
        "jax.default_device(d) is a context manager: what is made inside is made on d. "
        "jax.device_put(x, d) copies an array to d and commits it there.",
        "`prepare`: its whole body inside `with jax.default_device(cpu):`. "
        "`predict`: put the batch on `device` before the model gets it.",
    ),
)


@EXERCISE.check(ground="observed")
def same_batch(record: Record) -> Result:
    """`prepare` gives the reference's numbers."""
    found = (differing_leaf(record, f"batch {i}", rtol=1e-4, atol=1e-5) for i in range(2))
    return next((failure for failure in found if failure), None)


@EXERCISE.check(
    ground="observed",
    after=("same_batch",),
    hints=("What is made without a word goes to the default device. Name another one.",),
    anchor="new-arrays-follow-the-default",
)
def batch_on_the_cpu(record: Record) -> Result:
    """`prepare` returns its batch on the CPU device, as a jax.Array."""
    cpu, default = _cpu(record), _default(record)
    leaves = [leaf for i in range(2) for leaf in seen(record).values[f"batch {i}"]]
    wrong = next((leaf for leaf in leaves if where(leaf) != cpu), None)
    if wrong is None:
        return None
    place = f"on {where(wrong)}" if wrong.kind == "jax" else where(wrong)
    told = ", the default device: the last of it was made where no other was named" * (
        where(wrong) == default
    )
    return Failure(f"the batch is on {cpu}", f"it is {place}{told}", definition(record, "prepare"))


def _cpu(record: Record) -> str:
    return str(wanted(record).facts["cpu"])


def _default(record: Record) -> str:
    """The device that stands for the accelerator."""
    return where(wanted(record).values["prediction committed"][0])


@EXERCISE.check(
    ground="observed",
    after=("batch_on_the_cpu",),
    hints=(
        "An array beside a committed one is still made on the default device; it is copied when "
        "the two meet. jax.random.key and jax.random.normal make arrays.",
        "jnp.asarray(raw) is a copy to the default device, and whatever follows is the second.",
        "Let the default be `cpu` while you prepare: jax.default_device(cpu).",
    ),
    anchor="new-arrays-follow-the-default",
)
def no_visit_to_the_accelerator(record: Record) -> Result:
    """No array of `prepare` visits the default device on its way."""
    visits = list(events(seen(record), "d2d", "d2h", phase="prepare"))
    if not visits:
        return probe_gap(seen(record), "transfers", "reads")
    return Failure(
        f"every array of `prepare` is made on {_cpu(record)}: no copy between devices, no read",
        f"{_told(visits)} in two calls: an array was made on another device first",
        culprits(record, visits),
    )


def _told(found: list[Event]) -> str:
    """`2 copies between devices, 1 read to the host`."""
    counts = {kind: sum(e.count for e in found if e.kind == kind) for kind in COPIES}
    words = {"h2d": "{} from the host", "d2d": "{} between devices", "d2h": "{} to the host"}
    nouns = {"h2d": "copy", "d2d": "copy", "d2h": "read"}
    return ", ".join(words[k].format(plural(n, nouns[k])) for k, n in counts.items() if n)


@EXERCISE.check(ground="observed")
def same_prediction(record: Record) -> Result:
    """`predict` gives the reference's numbers."""
    names = (f"prediction {kind}" for kind in COMMITMENTS)
    found = (differing_leaf(record, name, rtol=1e-3, atol=1e-4) for name in names)
    return next((failure for failure in found if failure), None)


def _predictions(record: Record) -> Iterator[tuple[str, Leaf]]:
    for kind in COMMITMENTS:
        for leaf in seen(record).values[f"prediction {kind}"]:
            yield kind, leaf


@EXERCISE.check(
    ground="observed",
    after=("same_prediction",),
    hints=(
        "A committed array takes the program to its own device, and uncommitted ones follow. "
        "No default changes that.",
        "jax.device_put(x) without a device leaves a committed array where it is.",
        "jax.device_put(batch, device) copies the batch and commits the copy.",
    ),
    anchor="who-wins",
)
def model_on_the_default_device(record: Record) -> Result:
    """The model runs on the default device, even if the batch is committed to a CPU."""
    default = _default(record)
    for kind, leaf in _predictions(record):
        if where(leaf) != default:
            follow = f"the model followed the {kind} batch, or the result was moved there"
            why = f": {follow}" if where(leaf) == _cpu(record) else ""
            return Failure(
                f"the prediction from the {kind} batch is on {default}",
                f"it is on {where(leaf)}{why}",
                definition(record, "predict"),
            )
    return None


@EXERCISE.check(
    ground="observed",
    after=("model_on_the_default_device",),
    hints=("One array is in the wrong place. Which one, and when must it move?",),
    anchor="who-wins",
)
def batch_is_the_one_copy(record: Record) -> Result:
    """`predict` copies the batch once, before the model, and nothing else."""
    mine = list(events(seen(record), "h2d", "d2d", "d2h", phase="predict"))
    theirs = list(events(wanted(record), "h2d", "d2d", "d2h", phase="predict"))
    total, fewest = (sum(e.count for e in found) for found in (mine, theirs))
    if total <= fewest:
        return probe_gap(seen(record), "transfers", "reads")
    return Failure(
        f"two calls make {plural(fewest, 'copy')}: the batch's",
        f"{_told(mine)}: the params or the result moved too, or the batch took a detour",
        culprits(record, mine),
    )


@EXERCISE.check(
    ground="observed",
    hints=("A `with` block ends, and puts back what it changed. Does yours?",),
    anchor="who-wins",
)
def default_is_as_before(record: Record) -> Result:
    """After both functions the default device is what it was."""
    for name in ("prepare", "predict"):
        found, right = (side(record).values[f"made after {name}"][0] for side in (seen, wanted))
        if where(found) != where(right):
            return Failure(
                f"a new array is on {where(right)} after `{name}`",
                f"it is on {where(found)}: all code after the call works there from now on",
                definition(record, name),
            )
    return None
