"""Checks of ex04_place_model: the placed trees, the copies that placed them, and a step."""

from dataclasses import replace

from grader.checks.ex04_place_model import EXERCISE
from grader.checks.ex04_place_model.facts import (
    IN_OTHER_ORDER,
    MODELS,
    PLACE_RAISED,
    PLACED,
    STEP_RAISED,
    STEPPED,
    TREES,
)
from grader.judging.checking import Failure, Result
from grader.judging.evidence import (
    culprits,
    definition,
    differing_leaf,
    events,
    probe_gap,
    seen,
    wanted,
)
from grader.judging.record import Event, Leaf, Record
from grader.judging.words import plural, where


@EXERCISE.check(
    ground="observed",
    hints=(
        "Placing is a copy: same structure, same dtypes, same numbers. A state that "
        "`optimizer.init` made anew has forgotten all its steps.",
        "The types and the number of parts of an optimizer's state are up to optax. For "
        "jax.device_put and jax.tree.map, it is a tree like any other.",
    ),
)
def same_trees(record: Record) -> Result:
    """The trees that `place` returns hold the same values."""
    raised = seen(record).facts.get(PLACE_RAISED)
    if raised:
        return Failure(
            "`place` takes the state of any optax optimizer",
            str(raised),
            definition(record, "place"),
        )
    for name in (prefix + tree for prefix in _models(record) for tree in TREES):
        failure = differing_leaf(record, name, rtol=0, atol=0)
        if failure:
            return replace(failure, culprits=definition(record, "place"))
    return None


def _models(record: Record) -> tuple[str, ...]:
    """What the names of the values of each placed model begin with."""
    return MODELS[: int(wanted(record).facts[PLACED])]


def _leaves(record: Record, model: str) -> list[tuple[str, Leaf, Leaf]]:
    """Every placed leaf of a model: its tree's name, the submission's leaf, the reference's."""
    mine, theirs = seen(record).values, wanted(record).values
    return [
        (model + tree, leaf, want)
        for tree in TREES
        for leaf, want in zip(mine[model + tree], theirs[model + tree], strict=True)
    ]


def _listed(found: list[tuple[str, Leaf]]) -> str:
    """`params['b']` and 3 more of params: cpu:0. The leaves are grouped by tree and place."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, leaf in found:
        groups.setdefault((name, where(leaf)), []).append(f"`{name}{leaf.path}`")
    listed = []
    for (name, place), paths in groups.items():
        more = f" and {len(paths) - 1} more of {name}" if len(paths) > 1 else ""
        listed.append(f"{paths[0]}{more}: {place}")
    return "; ".join(listed)


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
    for model in _models(record):
        leaves = _leaves(record, model)
        wrong = [(name, mine) for name, mine, want in leaves if where(mine) != where(want)]
        if wrong:
            return Failure(
                f"every array is on {where(leaves[0][2])}",
                f"{len(wrong)} of {len(leaves)} are elsewhere. {_listed(wrong)}",
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
        f"{plural(total, 'read')} in {plural(len(_models(record)), 'call')} of `place`",
        culprits(record, reads),
    )


@EXERCISE.check(
    ground="observed",
    after=("on_the_device", "not_through_the_host"),
    hints=(
        "jnp.asarray puts a NumPy array on the default device first. jax.device_put copies it "
        "from the host to the device that you name.",
    ),
)
def copied_once(record: Record) -> Result:
    """Each array is transferred once, straight to the device."""
    mine = list(events(seen(record), "h2d", "d2d", phase="place"))
    theirs = list(events(wanted(record), "h2d", "d2d", phase="place"))
    (total, size), (fewest, least) = map(_weight, (mine, theirs))
    if total <= fewest and size <= least:
        return probe_gap(seen(record), "transfers")
    between = sum(event.count for event in mine if event.kind == "d2d")
    return Failure(
        f"{plural(fewest, 'copy')} of {least:,} bytes in {plural(len(_models(record)), 'call')} "
        "of `place`",
        f"{plural(total, 'copy')} of {size:,} bytes: {total - between} from host to device, "
        f"{between} from device to device",
        culprits(record, mine),
    )


def _weight(copies: list[Event]) -> tuple[int, int]:
    """How many copies there are, and how many bytes they copy."""
    bytes_copied = sum((event.nbytes or 0) * event.count for event in copies)
    return sum(event.count for event in copies), bytes_copied


@EXERCISE.check(
    ground="observed",
    after=("on_the_device",),
    hints=(
        "An uncommitted array may be moved: a jitted call takes it back to the default device. "
        "jax.default_device says where arrays are made, and commits nothing.",
    ),
    anchor="committed-or-not",
)
def step_copies_nothing(record: Record) -> Result:
    """A step with what `place` returned runs on the device, and copies nothing."""
    raised = seen(record).facts.get(STEP_RAISED)
    if raised:
        return Failure("the step runs", f"it raised {raised}", definition(record, "place"))
    copies = sum(e.count for e in events(seen(record), "h2d", "d2d", phase="step"))
    for model in _models(record):
        if ordered := seen(record).facts[model + IN_OTHER_ORDER]:
            return Failure(
                "each array lies in memory as a program expects it",
                f"the dimensions of `{ordered[0]}` are in another order: each step copies it",
                definition(record, "place"),
            )
    for name in (model + STEPPED for model in _models(record)):
        if name not in wanted(record).values:
            continue  # a model with another optimizer
        target = where(wanted(record).values[name][0])
        places = sorted({where(leaf) for leaf in seen(record).values[name]})
        if copies or places != [target]:
            return Failure(
                f"0 copies in a step, and its results are on {target}",
                f"{plural(copies, 'copy')} in all steps, and results are on {', '.join(places)}",
                definition(record, "place"),
            )
    return probe_gap(seen(record), "transfers")


@EXERCISE.check(
    ground="observed",
    after=("step_copies_nothing",),
    hints=(
        "Today, uncommitted arrays follow the committed arrays of the same call. Name the device "
        "when you place them, and they stay.",
    ),
    anchor="committed-or-not",
)
def committed(record: Record) -> Result:
    """Every leaf is committed to the device."""
    for model in _models(record):
        leaves = _leaves(record, model)
        uncommitted = [f"`{name}{mine.path}`" for name, mine, _ in leaves if not mine.committed]
        if uncommitted:
            count, listed = len(uncommitted), ", ".join(uncommitted)
            return Failure(
                "every array is committed",
                f"{count} of {len(leaves)} are on the device, but uncommitted: {listed}",
                definition(record, "place"),
            )
    return None
