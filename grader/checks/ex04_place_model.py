"""ex04_place_model: all that a step reads lies on one device, committed, copied once."""

from dataclasses import replace
from types import ModuleType
from typing import Any

from grader.checking import Exercise, Failure, Observe, Result, unpack
from grader.evidence import culprits, definition, differing_leaf, events, probe_gap, seen, wanted
from grader.record import Leaf, Record
from grader.words import plural, where

PROMISE = "`place` returns (params, opt_state, batch)"
TREES = ("params", "opt_state", "batch")
MODELS = ("", "second ")
REFUSED = "what `place` raised with the second model"
STEPPED = "the step's results"


def _values(rng: Any, shape: Any) -> Any:
    """NumPy values for a `ShapeDtypeStruct`; counts are positive, so no fresh state fits."""
    import numpy as np

    if np.issubdtype(shape.dtype, np.integer):
        return np.asarray(rng.integers(3, 99, shape.shape), shape.dtype)
    return (rng.random(shape.shape) / 4).astype(shape.dtype)


def _inputs(network: Any, optimizer: Any, rng: Any, features: int, rows: int) -> tuple[Any, ...]:
    """Parameters and optimizer state on the default device, uncommitted; a NumPy batch.

    inputs (rows, features) float32, labels (rows,) int32.
    """
    import jax
    import numpy as np

    inputs = rng.standard_normal((rows, features)).astype(np.float32)
    labels = rng.integers(0, 4, rows).astype(np.int32)
    key = jax.ShapeDtypeStruct((2,), np.uint32)
    params = jax.eval_shape(network.init, key, inputs)
    state = params, jax.eval_shape(optimizer.init, params)
    placed = jax.device_put(jax.tree.map(lambda shape: _values(rng, shape), state))
    return *placed, (inputs, labels)


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Place two models of fresh sizes, then take one step with the first.

    Neither lies on the first device, and only one lies on the last.
    """
    import jax
    import optax

    devices = jax.devices()[1], jax.devices()[-1]
    network, adam = submission.network, submission.optimizer
    decayed = optax.chain(optax.clip(1.0), optax.adam(optax.constant_schedule(0.1)))
    for prefix, optimizer, device in zip(MODELS, (adam, decayed), devices, strict=True):
        with observe.unwatched():
            features, rows = (int(n) for n in rng.integers(5, 30, 2))
            inputs = _inputs(network, optimizer, rng, features, rows)
        try:
            with observe.phase("place"):
                placed = submission.place(*inputs, device)
        except Exception as error:
            if optimizer is adam:
                raise
            observe.fact(REFUSED, f"{type(error).__name__}: {error}")
            return
        placed = unpack(placed, 3, PROMISE)
        for name, tree in zip(TREES, placed, strict=True):
            observe.value(prefix + name, tree)
        if optimizer is adam:
            _step(submission, observe, placed)


def _step(submission: ModuleType, observe: Observe, placed: tuple[Any, ...]) -> None:
    """One step; JAX may refuse what `place` returned, which is a fact about `place`."""
    try:
        with observe.phase("step"):
            results = submission.train_step(*placed)
    except Exception as error:  # noqa: BLE001 (whatever JAX has against the placement)
        observe.fact("step", f"{type(error).__name__}: {error}")
    else:
        observe.value(STEPPED, results, data=False)


EXERCISE = Exercise(
    title="Place a model, its optimizer state and a batch",
    lesson="lessons/03-models-and-their-state",
    anchor="one-call-moves-the-tree",
    edits=("place",),
    drive=drive,
    devices=3,
    hints=(
        "Parameters, optimizer state and a batch are trees of arrays. Which function of JAX "
        "takes a whole tree, and a device?",
        "jax.device_put(tree, device) copies every leaf once, straight to the device, and "
        "commits it.",
        "It takes any tree: a tuple of the three is one, too.",
    ),
)


@EXERCISE.check(
    ground="observed",
    hints=(
        "Placing is a copy: same structure, same dtypes, same numbers. A state that "
        "`optimizer.init` made anew has forgotten all its steps.",
        "Which types and how many parts an optimizer's state has is optax's matter. To "
        "jax.device_put and jax.tree.map, it is a tree like any other.",
    ),
)
def same_trees(record: Record) -> Result:
    """The trees that `place` returns hold the same values."""
    refused = seen(record).facts.get(REFUSED)
    if refused:
        expected = "`place` takes the state of any optax optimizer"
        observed = f"with that of optax.chain(clip, adam), not of `optimizer`, it raised {refused}"
        return Failure(expected, observed, definition(record, "place"))
    for name in (prefix + tree for prefix in MODELS for tree in TREES):
        failure = differing_leaf(record, name, rtol=0, atol=0)
        if failure:
            return replace(failure, culprits=definition(record, "place"))
    return None


def _leaves(record: Record, model: str) -> list[tuple[str, Leaf, Leaf]]:
    """Every placed leaf of a model: its tree's name, the submission's and the reference's."""
    mine, theirs = seen(record).values, wanted(record).values
    return [
        (model + tree, leaf, want)
        for tree in TREES
        for leaf, want in zip(mine[model + tree], theirs[model + tree], strict=True)
    ]


def _listed(found: list[tuple[str, Leaf]]) -> str:
    """The first leaf of each tree and place, and how many more there are."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, leaf in found:
        groups.setdefault((name, where(leaf)), []).append(f"`{name}{leaf.path}`")
    return "; ".join(
        f"{paths[0]} is {place}" + (f", and {len(paths) - 1} more of {name}" * (len(paths) > 1))
        for (name, place), paths in groups.items()
    )


@EXERCISE.check(
    ground="observed",
    after=("same_trees",),
    hints=(
        "The optimizer state does not move with the parameters, and its `count` is an array "
        "like any other.",
        "NumPy arrays are in host memory. A jitted call copies them each time.",
    ),
)
def on_the_device(record: Record) -> Result:
    """Every leaf lies on the device, and on no other."""
    for model in MODELS:
        leaves = _leaves(record, model)
        wrong = [(name, mine) for name, mine, want in leaves if where(mine) != where(want)]
        if wrong:
            return Failure(
                f"every array is on {where(leaves[0][2])}",
                f"{len(wrong)} of {len(leaves)} elsewhere: {_listed(wrong)}",
                definition(record, "place"),
            )
    return None


@EXERCISE.check(
    ground="observed",
    after=("same_trees",),  # an error that quotes arrays has read them
    hints=("np.asarray, jax.device_get, float() and print bring an array's values to the host.",),
)
def not_through_the_host(record: Record) -> Result:
    """No array is read to the host while it is placed."""
    reads = list(events(seen(record), "d2h", phase="place"))
    if not reads:
        return probe_gap(seen(record), "reads")
    total = sum(event.count for event in reads)
    return Failure(
        "0 device-to-host reads in `place`",
        f"{plural(total, 'read')} in two calls of `place`, with two models",
        culprits(record, reads),
    )


@EXERCISE.check(
    ground="observed",
    after=("on_the_device", "not_through_the_host"),
    hints=(
        "jnp.asarray puts a NumPy array on the default device first. device_put takes NumPy "
        "arrays as they are.",
    ),
)
def copied_once(record: Record) -> Result:
    """Each array is copied once, straight to the device."""
    mine = list(events(seen(record), "h2d", "d2d", phase="place"))
    total = sum(event.count for event in mine)
    fewest = sum(e.count for e in events(wanted(record), "h2d", "d2d", phase="place"))
    if total <= fewest:
        return probe_gap(seen(record), "transfers")
    between = sum(event.count for event in mine if event.kind == "d2d")
    return Failure(
        f"{plural(fewest, 'copy')} in two calls of `place`, with two models",
        f"{total}: {total - between} from host to device, {between} from device to device",
        culprits(record, mine),
    )


@EXERCISE.check(
    ground="observed",
    after=("on_the_device",),
    hints=(
        "An uncommitted array may be moved: a jitted call takes it back to the default device. "
        "jax.default_device places, and commits nothing.",
    ),
    anchor="committed-or-not",
)
def step_copies_nothing(record: Record) -> Result:
    """A step on what `place` returned runs on the device, and copies nothing."""
    refused = seen(record).facts.get("step")
    if refused:
        return Failure("the step runs", str(refused), definition(record, "place"))
    copies = sum(e.count for e in events(seen(record), "h2d", "d2d", phase="step"))
    target = where(wanted(record).values[STEPPED][0])
    places = sorted({where(leaf) for leaf in seen(record).values[STEPPED]})
    if not copies and places == [target]:
        return probe_gap(seen(record), "transfers")
    return Failure(
        f"0 copies in a step, and its results on {target}",
        f"{plural(copies, 'copy')}, and results on {', '.join(places)}",
        definition(record, "place"),
    )


@EXERCISE.check(
    ground="observed",
    after=("step_copies_nothing",),
    hints=(
        "Uncommitted arrays follow the committed ones they meet, today. Name the device when you "
        "place them, and they stay.",
    ),
    anchor="committed-or-not",
)
def committed(record: Record) -> Result:
    """Every leaf is committed to the device."""
    for model in MODELS:
        leaves = _leaves(record, model)
        loose = [f"`{name}{mine.path}`" for name, mine, _ in leaves if not mine.committed]
        if loose:
            return Failure(
                "every array is committed",
                f"{len(loose)} of {len(leaves)} on the device, but uncommitted: {', '.join(loose)}",
                definition(record, "place"),
            )
    return None
