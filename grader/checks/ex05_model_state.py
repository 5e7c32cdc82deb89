"""ex05_model_state: every kind of variable is placed, and a step keeps what it changes."""

from dataclasses import replace
from types import ModuleType
from typing import Any

from grader.arrays import compare
from grader.checking import Exercise, Failure, Misused, Observe, Result
from grader.evidence import culprits, definition, differing_leaf, events, probe_gap, seen, wanted
from grader.record import Leaf, Record
from grader.words import plural, where

STEPS = 3
PLACED, FIRST, TRAINED, LOSSES = "model", "model after a step", "trained model", "losses"
STATE = "a-model-with-more-than-parameters"


def _filled(rng: Any, shape: Any) -> Any:
    """Values for a `ShapeDtypeStruct`: a random key, a count that is not 0, float32 in (0, 1)."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(rng.integers(1 << 32, size=2, dtype=np.uint32))
    if np.issubdtype(shape.dtype, np.integer):
        return np.asarray(rng.integers(3, 99), shape.dtype)
    return rng.random(shape.shape).astype(shape.dtype)


def _model(net: Any, features: int, seed: int) -> Any:
    """A `Net` on the default device, free, with values of which none is fresh from `init`."""
    import jax
    import numpy as np
    from flax import nnx

    rng = np.random.default_rng(seed)
    shapes = nnx.eval_shape(lambda: net(features, nnx.Rngs(params=0, dropout=0)))
    graph, state = nnx.split(shapes)
    return nnx.merge(graph, jax.device_put(jax.tree.map(lambda s: _filled(rng, s), state)))


def _batches(rng: Any, features: int, device: Any) -> list[Any]:
    """Batches on the device: inputs (rows, features) float32, labels (rows,) int32."""
    import jax
    import numpy as np

    rows = int(rng.integers(8, 24))
    batches = [
        (rng.standard_normal((rows, features)).astype(np.float32), rng.integers(0, 4, rows))
        for _ in range(STEPS)
    ]
    return [jax.device_put((x, y.astype(np.int32)), device) for x, y in batches]


def _state(model: Any) -> dict[str, Any]:
    """The arrays of a model by kind and name; a random key by the numbers behind it."""
    import jax
    import jax.numpy as jnp
    from flax import nnx

    def plain(array: Any) -> Any:
        is_key = isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
        return jax.random.key_data(array) if is_key else array

    return {
        f"{type(variable).__name__} {'.'.join(map(str, path))}": plain(variable.get_value())
        for path, variable in nnx.to_flat_state(nnx.state(model))
    }


def _settings(model: Any) -> dict[str, Any]:
    """What else the parts of a model hold: rates, and whether they are in train mode."""
    from flax import nnx

    held = [((*p, k), v) for p, part in nnx.iter_modules(model) for k, v in vars(part).items()]
    return {".".join(map(str, path)): v for path, v in held if isinstance(v, bool | int | float)}


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Place one model; take steps with another that the drive itself has placed."""
    import jax
    from flax import nnx

    device = jax.devices()[-1]
    features, seed = int(rng.integers(5, 30)), int(rng.integers(1 << 30))
    with observe.unwatched():
        model, other = (_model(submission.Net, features, seed) for _ in range(2))
        nnx.update(other, jax.device_put(nnx.state(other), device))
        batches = _batches(rng, features, device)
    with observe.phase("place"):
        placed = submission.place(model, device)
    if not isinstance(placed, nnx.Module):
        raise Misused("`place` returns the model", f"it returned a {type(placed).__name__}")
    with observe.unwatched():
        observe.value(PLACED, _state(placed))
        observe.value("settings", _settings(placed))
    losses = []
    for index, batch in enumerate(batches):
        with observe.phase("step"):
            losses.append(submission.train_step(other, batch))
        with observe.unwatched():
            observe.value(FIRST if index == 0 else TRAINED, _state(other))
    observe.value(LOSSES, losses)


EXERCISE = Exercise(
    title="Place all the state of a model, and keep what a step changes",
    lesson="lessons/03-models-and-their-state",
    anchor=STATE,
    edits=("place", "train_step"),
    drive=drive,
    devices=2,
    hints=(
        "A model of Flax has variables of several kinds, and only some are parameters. Which of "
        "them does each function return, and which does it lose?",
        "nnx.state(model) is the whole state: a tree, for one jax.device_put.",
        "nnx.update writes a state into a model. What jax.jit made works on a copy of the model, "
        "and has to return the new state; what nnx.jit made writes it back into the model.",
    ),
)


@EXERCISE.check(
    ground="observed",
    hints=("Placing is a copy: no model made anew, the same numbers, and still in train mode.",),
)
def same_values(record: Record) -> Result:
    """The placed model holds the values of the model that came, and its settings."""
    found = (differing_leaf(record, name, rtol=0, atol=0) for name in (PLACED, "settings"))
    failure = next((failure for failure in found if failure), None)
    return failure and replace(failure, culprits=definition(record, "place"))


def _listed(leaves: list[Leaf]) -> str:
    """`BatchStat norm.mean, norm.var; RngKey dropout.rngs.key`."""
    groups: dict[str, list[str]] = {}
    for kind, _, name in (leaf.path[2:-2].partition(" ") for leaf in leaves):
        groups.setdefault(kind, []).append(f"`{name}`")
    return "; ".join(f"{kind} {', '.join(names)}" for kind, names in groups.items())


@EXERCISE.check(
    ground="observed",
    after=("same_values",),
    hints=(
        "nnx.state(model, nnx.Param) leaves out the statistics of the batches (BatchStat), and the "
        "key and count of dropout (RngState).",
        "nnx.state(model) without a filter has them all.",
    ),
)
def all_on_the_device(record: Record) -> Result:
    """Every variable of the placed model lies on the device, and on no other."""
    place = where(wanted(record).values[PLACED][0])
    leaves = seen(record).values[PLACED]
    left = [leaf for leaf in leaves if where(leaf) != place]
    elsewhere = ", ".join(sorted({where(leaf) for leaf in left}))
    expected = f"all {len(leaves)} arrays of the model are on {place}"
    observed = f"{len(left)} are on {elsewhere}: {_listed(left)}"
    return Failure(expected, observed, definition(record, "place")) if left else None


@EXERCISE.check(
    ground="observed",
    after=("all_on_the_device",),
    hints=("A device named in the call commits: jax.device_put(state, device).",),
    anchor="committed-or-not",
)
def committed(record: Record) -> Result:
    """Every variable of the placed model is committed to the device."""
    free = [leaf for leaf in seen(record).values[PLACED] if not leaf.committed]
    listed = f"{plural(len(free), 'array')} free to move: {_listed(free)}"
    failure = Failure("every array is committed", listed, definition(record, "place"))
    return failure if free else None


@EXERCISE.check(
    ground="observed",
    after=("same_values",),
    hints=("A checkpoint or jax.device_get takes the arrays through host memory.",),
    anchor="one-call-moves-the-tree",
)
def not_through_the_host(record: Record) -> Result:
    """No array goes through the host while the model is placed."""
    found = list(events(seen(record), "d2h", "h2d", phase="place"))
    if not found:
        return probe_gap(seen(record), "reads", "transfers")
    reads = sum(event.count for event in found if event.kind == "d2h")
    copies = sum(event.count for event in found) - reads
    return Failure(
        "0 reads and 0 copies by the host in `place`",
        f"{plural(reads, 'read')}, {plural(copies, 'copy')} from host to device",
        culprits(record, found),
    )


@EXERCISE.check(
    ground="observed",
    after=("all_on_the_device", "not_through_the_host"),
    hints=("One way leads from the default device to the other: name it at once.",),
    anchor="one-call-moves-the-tree",
)
def copied_once(record: Record) -> Result:
    """Each array of the model is copied once."""
    mine = list(events(seen(record), "d2d", phase="place"))
    fewest = sum(e.count for e in events(wanted(record), "d2d", phase="place"))
    total = sum(event.count for event in mine)
    if total <= fewest:
        return probe_gap(seen(record), "transfers")
    expected = f"{plural(fewest, 'copy')} from device to device"
    return Failure(expected, plural(total, "copy"), culprits(record, mine))


def _lost(record: Record, name: str, kind: str) -> Failure | None:
    """The first variable of a kind that the steps did not leave as the reference's do."""
    both = (seen(record).values[name], wanted(record).values[name])
    mine, theirs = ([x for x in leaves if x.path[2:].startswith(kind)] for leaves in both)
    failure = compare(name, mine, theirs, "", "", rtol=1e-3, atol=1e-5)
    if failure is None:
        return None
    before = {leaf.path: leaf.data for leaf in wanted(record).values[PLACED]}
    changing = {leaf.path for leaf in theirs if leaf.data != before[leaf.path]}
    kept = [leaf for leaf in mine if leaf.path in changing and leaf.data == before[leaf.path]]
    if len(kept) == len(changing):
        same = "afterwards they are what they were: it changed a copy of the model, or nothing"
        failure = Failure(f"a step changes {_listed(kept)}", same)
    return replace(failure, culprits=definition(record, "train_step"))


@EXERCISE.check(
    ground="observed",
    hints=(
        "jax.jit hands your function a copy of the model. What the function writes into it is "
        "gone when it returns, without a word.",
        "In train mode each call of the model changes them once, in eval mode never.",
    ),
    anchor="what-a-step-changes-has-to-come-out",
)
def statistics_go_on(record: Record) -> Result:
    """After a step, the batch statistics of the model are the reference's."""
    # After one step: later they follow from the parameters, too.
    return _lost(record, FIRST, "BatchStat")


@EXERCISE.check(
    ground="observed",
    after=("statistics_go_on",),
    hints=(
        "Dropout draws from its key and its count, and adds 1 to the count. A count that is lost "
        "or set back drops the same units at every step.",
        "Key and count are of type nnx.RngState. Let them come out of the step with the rest.",
    ),
    anchor="what-a-step-changes-has-to-come-out",
)
def dropout_goes_on(record: Record) -> Result:
    """After a step, the key and the count of dropout are the reference's."""
    return _lost(record, FIRST, "Rng")


@EXERCISE.check(
    ground="observed",
    after=("dropout_goes_on",),
    hints=("Gradients are taken in train mode, and each step starts from what the last one left.",),
    anchor="what-a-step-changes-has-to-come-out",
)
def same_training(record: Record) -> Result:
    """After three steps, the parameters and all losses are the reference's."""
    failure = _lost(record, TRAINED, "Param")
    failure = failure or differing_leaf(record, LOSSES, rtol=1e-3, atol=1e-5)
    return failure and replace(failure, culprits=definition(record, "train_step"))


@EXERCISE.check(
    ground="observed",
    hints=(
        "Is all of `train_step` compiled? Outside jit, each operation copies its constants anew.",
        "The device has it all. A read, a NumPy array or a number passed to a jitted function "
        "is a copy, at each step.",
        "Constants inside the jitted function are a part of the program.",
    ),
    anchor="committed-or-not",
)
def step_copies_nothing(record: Record) -> Result:
    """With a placed model, a step copies nothing, and leaves it where it was."""
    found = list(events(seen(record), "h2d", "d2d", "d2h", phase="step"))
    place = where(wanted(record).values[TRAINED][0])
    gone = [leaf for leaf in seen(record).values[TRAINED] if where(leaf) != place]
    if not (found or gone):
        return probe_gap(seen(record), "reads", "transfers")
    ways = {"h2d": "from the host", "d2d": "between devices", "d2h": "to the host"}
    counts = {kind: sum(e.count for e in found if e.kind == kind) for kind in ways}
    told = [f"{plural(n, 'copy')} {ways[kind]}" for kind, n in counts.items() if n]
    told += [f"off {place}: {_listed(gone)}"] if gone else []
    return Failure(
        f"0 copies in {STEPS} steps, and the model on {place}",
        "; ".join(told),
        culprits(record, found) or definition(record, "train_step"),
    )
