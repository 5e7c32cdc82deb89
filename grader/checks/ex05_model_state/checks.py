"""Checks of ex05_model_state: the placed model, how it got there, and what the steps keep."""

from dataclasses import replace
from itertools import pairwise

from grader.checks.ex05_model_state import EXERCISE
from grader.checks.ex05_model_state.facts import (
    ANOTHER_CHANGED,
    AT_THE_END,
    IN_OTHER_ORDER,
    MODELS,
    PLACED,
    STEPS,
    THROUGH_HOST,
    USED_UP,
    before,
    first,
    later,
    losses,
    settings,
    trained,
)
from grader.judging.arrays import FORM, compare, load
from grader.judging.checking import Failure, Result
from grader.judging.evidence import (
    calls_of,
    culprits,
    definition,
    events,
    in_other_order,
    probe_gap,
    seen,
    to_host,
    wanted,
    weight,
)
from grader.judging.results import differing_leaf, zeros_of_other_sign
from grader.judging.steps import GRADIENT, change_error, change_of_all, change_ratio
from grader.judging.words import plural, where
from grader.records.record import Event, Leaf, Observed, Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File
from grader.source.places import of_decorators


def _placed(record: Record) -> tuple[str, ...]:
    """The names of the models that `place` returned."""
    return MODELS[: int(wanted(record).facts[PLACED])]


@EXERCISE.check(
    ground="observed",
    hints=(
        "Placing is a copy: the numbers are those of the given model, not of one made anew, and "
        "the copy is still in train mode.",
    ),
)
def same_values(record: Record) -> Result:
    """The placed model holds the values and the settings of the given model."""
    for placed in _placed(record):
        failure = differing_leaf(record, placed, rtol=0, atol=0)
        failure = failure or zeros_of_other_sign(record, placed)
        if not failure and (failure := differing_leaf(record, settings(placed), rtol=0, atol=0)):
            first, now = (
                seen(record).values[settings(one)] for one in (_placed(record)[0], placed)
            )
            kept = placed != _placed(record)[0] and [x.data for x in first] == [x.data for x in now]
            failure = replace(failure, hint=KEPT if kept else ALL_ELSE)
        if failure:
            new = ["key", "PRNGKey", "Rngs"] * ("Rng" in failure.expected)
            place = statements.call(record, "place", *new, "eval", "train", "set_metadata")
            return replace(failure, culprits=place)
    return None


KEPT = (
    "All settings of this model are those of the first one. What does your code keep of an earlier "
    "call of `place`?"
)
ALL_ELSE = (
    "Only the places of the arrays change. Modes, rates, and the hooks of variables stay as they "
    "are. Which line changes one of these?"
)


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
        "A model has parameters (Param), statistics of its batches (BatchStat), and the key and "
        "the count of dropout (RngState). Which of them does `place` move?",
        "nnx.state(model) without a filter has them all.",
    ),
)
def all_on_the_device(record: Record) -> Result:
    """Every variable of the placed model lies on the device, and on no other."""
    for placed in _placed(record):
        place = where(wanted(record).values[placed][0])
        leaves = seen(record).values[placed]
        left = [leaf for leaf in leaves if where(leaf) != place]
        if left:
            elsewhere = ", ".join(sorted({where(leaf) for leaf in left}))
            every = len(left) == len(leaves)
            return Failure(
                f"all {len(leaves)} arrays of the model are on {place}",
                f"all are on {elsewhere}"
                if every
                else f"{len(left)} on {elsewhere}: {_listed(left)}",
                definition(record, "place")
                if every
                else statements.every(record, "place", "device_put"),
                TO_GO if every else "",
            )
    if turned := seen(record).facts[IN_OTHER_ORDER]:
        return in_other_order(record, f"`model{turned[0]}`", "place")
    return None


TO_GO = (
    "The model is made already. Which call of `place` moves arrays that are there, and where to?"
)


@EXERCISE.check(
    ground="observed",
    after=("all_on_the_device",),
    hints=("A device named in the call commits: jax.device_put(state, device).",),
    anchor="committed-or-not",
)
def committed(record: Record) -> Result:
    """Every variable of the placed model is committed to the device."""
    models = [seen(record).values[placed] for placed in _placed(record)]
    uncommitted = next((u for u in ([x for x in m if not x.committed] for m in models) if u), [])
    if not uncommitted:
        return None
    return Failure(
        "every array is committed",
        f"{plural(len(uncommitted), 'array')} uncommitted: {_listed(uncommitted)}",
        definition(record, "place"),
    )


@EXERCISE.check(
    ground="observed",
    after=("same_values",),
    hints=("np.asarray, jax.device_get and a checkpoint take the arrays through host memory.",),
    anchor="one-call-moves-the-tree",
)
def not_through_the_host(record: Record) -> Result:
    """No array goes through the host while the model is placed."""
    read = to_host(seen(record), phase="place")
    # For `variable[...] = array`, JAX sends an index of no bytes.
    found = [*read, *(e for e in events(seen(record), "h2d", phase="place") if e.nbytes != 0)]
    if not found and seen(record).facts[THROUGH_HOST][0]:
        return _in_host_memory(record, "place")
    if not found:
        return probe_gap(seen(record), "reads", "transfers")
    reads = sum(event.count for event in read)
    copies = sum(event.count for event in found) - reads
    return Failure(
        "0 reads by the host and 0 copies from it in `place`",
        f"{plural(reads, 'read')} by the host, {plural(copies, 'copy')} from it",
        _reads_first(record, read, found),
    )


def _in_host_memory(record: Record, function: str) -> Failure:
    """The failure for a program that a function compiles, with arrays in host memory."""
    return Failure(
        "no array is kept in host memory",
        f"a program that `{function}` compiles keeps arrays there",
        statements.call(record, function, "jit", "device_put"),
        "Which line names a memory? A device's own is used where none is named.",
    )


def _reads_first(record: Record, read: list[Event], found: list[Event]) -> list[Culprit]:
    """The lines behind `found`, first those that read: the others may have no choice."""
    reading = {event.line for event in read}
    return sorted(culprits(record, found), key=lambda place: place.line not in reading)


@EXERCISE.check(
    ground="observed",
    after=("all_on_the_device", "not_through_the_host"),
    hints=(
        "One copy takes an array from the default device to the other. Name that device in the "
        "first call.",
    ),
    anchor="one-call-moves-the-tree",
)
def copied_once(record: Record) -> Result:
    """Each array of the model is transferred once."""
    mine = list(events(seen(record), "d2d", phase="place"))
    theirs = list(events(wanted(record), "d2d", phase="place"))
    (total, size), (fewest, least) = map(weight, (mine, theirs))
    if total <= fewest and size <= least:
        return probe_gap(seen(record), "transfers")
    return Failure(
        f"{plural(fewest, 'copy')} from device to device, of {least:,} bytes",
        f"{plural(total, 'copy')} of {size:,} bytes",
        culprits(record, mine),
        WRITTEN_INTO if "[...] = " in record.source else "",
    )


WRITTEN_INTO = (
    "`variable[...] = array` writes into the old array, and copies that to the device first. "
    "`variable.set_value(array)` and nnx.update put the new array in its place."
)


AFTER_ONE_STEP = 2e-5, 2e-6
"""How far numbers may be from the reference's after a step from the same values: rounding only.

Statistics of later steps, too: a right answer that rounds otherwise was seen to differ by 2e-7."""
UNCHANGED = "after the step, they have the values from before it"
ONCE = (
    "In train mode, each call of the model changes the statistics once. In eval mode, no call does."
)


def _lost(record: Record, name: str, number: int, kind: str, old: str = "") -> Failure | None:
    """The failure for the first variable of a kind that is not the reference's in a round.

    Where the submission kept no change of that kind at all, the failure says so: none since `old`,
    or since the round began.
    """
    mine, theirs = _of_kind(seen(record), name, kind), _of_kind(wanted(record), name, kind)
    exact = kind == "BatchStat" or name == first(number)
    rtol, atol = AFTER_ONE_STEP if exact else (1e-3, 1e-5)
    failure = compare(name, mine, theirs, "", "", rtol=rtol, atol=atol)
    if failure is None:
        return None
    was = {leaf.path: leaf.data for leaf in wanted(record).values[old or before(number)]}
    changing = {leaf.path for leaf in theirs if leaf.data != was[leaf.path]}
    kept = [leaf for leaf in mine if leaf.path in changing and leaf.data == was[leaf.path]]
    if len(kept) == len(changing):
        failure = Failure(
            f"a step changes {_listed(kept)}" + f", in round {number + 1} of steps" * bool(number),
            f"{UNCHANGED}: the step changed a copy of the model, or did not change them",
        )
    elif kind == "Param":
        sides = _of_kind(wanted(record), before(number), kind), mine, theirs
        ratio = change_ratio(*sides)
        told = f": a step changes them {_times(ratio)} as much" if ratio is not None else ""
        if ratio is None and (same := change_of_all(*sides)) is not None:
            told = f": a step changes each of them by {same:.3g}, whatever its gradient"
        elif ratio is None and (left := _left_alone(kept, theirs)):
            told = f": the step left {_listed(left)} as they were"
        if ratio is None and (turned := _gradient(*sides)):
            told = f": that is the gradient, not the params: {turned:.4g} times the right step"
            got = failure.observed.partition(", and ")[0]
            failure = replace(failure, observed=got, hint=GRADIENT)
        elif ratio is None and _exchanged(*sides):
            told = f": that is the gradient less {RATE} times the params"
            failure = replace(failure, hint=EXCHANGED)
        rate = ["sgd"] * (ratio is not None and ratio > 0)
        place = statements.call(record, "train_step", *rate, "apply_updates", "update")
        if "update(" in place[0].text and (new := statements.argument(record, *UPDATED)):
            place = new
        return replace(failure, observed=failure.observed + told, culprits=place)
    return replace(failure, culprits=definition(record, "train_step"))


def _gradient(old: list[Leaf], mine: list[Leaf], theirs: list[Leaf]) -> float:
    """How many times the reference's step `mine` is, where it is the gradient of it; else 0."""
    import numpy as np

    sides = ([load(leaf.data or b"").ravel() for leaf in side] for side in (old, mine, theirs))
    before, got, right = (np.concatenate(side, dtype=np.float64) for side in sides)
    if got.shape != right.shape or not (step := right - before).any():
        return 0.0
    times = float(got @ step / (step @ step))
    apart = np.linalg.norm(got - times * step)
    return times if times < 0 and apart < NEARLY * np.linalg.norm(got) else 0.0


def _exchanged(old: list[Leaf], mine: list[Leaf], theirs: list[Leaf]) -> bool:
    """Whether `mine` are gradients less a part of the params, not params less that of gradients."""
    import numpy as np

    sides = ([load(leaf.data or b"").ravel() for leaf in side] for side in (old, mine, theirs))
    before, got, right = (np.concatenate(side, dtype=np.float64) for side in sides)
    if got.shape != right.shape:
        return False
    turned = (before - right) / RATE - RATE * before
    return bool(np.linalg.norm(got - turned) < NEARLY * np.linalg.norm(got))


RATE = 0.1
"""By what a step multiplies its gradients."""
EXCHANGED = (
    "jax.tree.map calls its function with a leaf of each tree, in the order of the trees. Which "
    "comes first in this line, and which in the function?"
)
NEARLY = 1e-3
"""How far a gradient may be off, as a share of its length: the step was taken from params that are
larger, so it is rounded."""


def _times(ratio: float) -> str:
    """`2 times`, or `0.0435 times, 1/23,`, where it is a part by a whole number."""
    parts = round(1 / ratio) if ratio else 0
    whole = parts > 1 and abs(ratio * parts - 1) < WHOLE
    return f"{ratio:.3g} times, 1/{parts}," if whole else f"{ratio:.3g} times"


WHOLE = 1e-3
"""How near to 1 a ratio times a whole number is that is its part, as rounding leaves it."""


UPDATED = "train_step", "update", 1
"""What a step writes into the model: the second argument of nnx.update."""


def _left_alone(kept: list[Leaf], theirs: list[Leaf]) -> list[Leaf]:
    """Those variables of `kept` that the reference's step changes, and not only by rounding."""
    right = {leaf.path: leaf for leaf in theirs}
    pairs = ((leaf, right[leaf.path]) for leaf in kept)
    return [x for x, want in pairs if compare("", [x], [want], "", "", rtol=1e-5, atol=1e-6)]


def _of_kind(observed: Observed, name: str, kind: str) -> list[Leaf]:
    """The variables of a kept model whose type begins with `kind`."""
    return [leaf for leaf in observed.values[name] if leaf.path[2:].startswith(kind)]


@EXERCISE.check(
    ground="observed",
    hints=(
        "A function under jax.jit works on a copy of the model, and so does what nnx.merge makes. "
        "What is written into a copy is gone when the function returns, without a word.",
        ONCE,
    ),
    anchor="what-a-step-changes-has-to-come-out",
)
def statistics_go_on(record: Record) -> Result:
    """After a step, the batch statistics of the model are the reference's."""
    # After one step only: later statistics depend on the new parameters, too.
    failure = _lost(record, first(0), 0, "BatchStat")
    if failure and not failure.hint and not failure.observed.startswith(UNCHANGED):
        calls = statements.every(record, "train_step", "loss_fn")
        observed = failure.observed + _times_called(record)
        return replace(failure, observed=observed, hint=ONCE, culprits=calls or failure.culprits)
    if not failure or failure.hint:
        return failure
    params = _lost(record, first(0), 0, "Param")
    if params is None or not params.observed.startswith(UNCHANGED):
        observed = "the step left them as they were, though its parameters have changed"
        makers = (x for x in ("clone", "deepcopy") if statements.uses(record, "train_step", x))
        if copies := [p for one in makers for p in statements.every(record, "train_step", one)]:
            return replace(failure, observed=observed, culprits=copies, hint=COPY)
        place = statements.call(record, "train_step", "eval", "update")
        return replace(failure, observed=observed, culprits=place, hint=MODE)
    above = of_decorators(File(record.source), ["train_step"], "")
    return replace(
        failure, culprits=[one for one in above if "jax.jit" in one.text] or failure.culprits
    )


def _times_called(record: Record) -> str:
    """How often the first step called the model, by the count of its dropout, if not once."""
    sides = (wanted(record).values[before(0)], seen(record).values[first(0)])
    old, new = (
        [int(load(leaf.data or b"")) for leaf in leaves if leaf.path.startswith("['RngCount")]
        for leaves in sides
    )
    times = {b - a for a, b in zip(old, new, strict=True)}
    if min(times, default=0) < 2:
        return ""
    return f": going by the count of its dropout, the model was called {max(times)} times"


COPY = (
    "A copy of a model has statistics and a count of its own. Which model does the loss get, and "
    "which one is to go on?"
)
MODE = (
    "A model changes its statistics when it is called in train mode. Is it in that mode here, and "
    "is every kind of state written back?"
)


@EXERCISE.check(
    ground="observed",
    after=("statistics_go_on",),
    hints=(
        "Dropout draws from its key and its count, and adds 1 to the count. A count that is lost "
        "or set back drops the same units at every step.",
        "The key and the count are of type nnx.RngState. Let them come out of the step with the "
        "rest.",
    ),
    anchor="what-a-step-changes-has-to-come-out",
)
def dropout_goes_on(record: Record) -> Result:
    """After a step, the key and the count of dropout are the reference's."""
    failure = _lost(record, first(0), 0, "Rng")
    kept = statements.every(record, "train_step", "state")
    some = [place for place in kept if "BatchStat" in place.text and "Rng" not in place.text]
    return replace(failure, culprits=some) if failure and some else failure


@EXERCISE.check(
    ground="observed",
    after=("dropout_goes_on",),
    hints=(
        "Gradients are taken in train mode, each step starts from what the step before left, and "
        "params change by -0.1 times their gradient.",
    ),
    anchor="what-a-step-changes-has-to-come-out",
)
def same_training(record: Record) -> Result:
    """After each round of steps, the losses and the whole model are the reference's."""
    for number in range(int(wanted(record).facts[STEPS][0])):
        name = trained(number)
        failure = _lost(record, first(number), number, "Param")
        failure = failure or _other_settings(record, name)
        failure = failure or _lost(record, first(number), number, "BatchStat")
        failure = failure or _another(record, number)
        failure = failure or _stood_still(record, number)
        failure = failure or _lost(record, name, number, "Param")
        failure = failure or _other_change(record, number) or _small_left(record, number)
        failure = failure or _other_losses(record, number)
        names = [first(number), *_later(record, number)]
        for old, after in pairwise(names):
            failure = failure or _lost(record, after, number, "BatchStat", old)
        failure = failure or _lost(record, name, number, "Rng")
        failure = failure or differing_leaf(record, name, rtol=1e-3, atol=1e-5)
        if failure:
            hint = failure.hint or (LATER if number else "")
            if hint == FORM and failure.expected.startswith("`trained model`"):
                hint = OF_THE_MODEL
            places = failure.culprits or definition(record, "train_step")
            return replace(failure, culprits=places, hint=hint)
    return None


def _other_losses(record: Record, number: int) -> Failure | None:
    """The failure if the steps of a round return other losses than the reference's."""
    name = losses(number)
    failure = differing_leaf(record, name, rtol=1e-4, atol=1e-5)
    if not failure:
        mine, theirs = (side(record).values[name] for side in (seen, wanted))
        alike = len(mine) if number % 2 == 0 else 1  # where values are large, rounding grows
        rtol, atol = AFTER_ONE_STEP
        failure = compare(name, mine[:alike], theirs[:alike], "", "", rtol=rtol, atol=atol)
    return failure and replace(failure, made=statements.result(record, "train_step"))


def _other_settings(record: Record, name: str) -> Failure | None:
    """The failure if a round leaves a model in another mode, or with other rates."""
    failure = differing_leaf(record, settings(name), rtol=0, atol=0)
    place = statements.call(record, "train_step", "eval", "train")
    return failure and replace(failure, hint=AS_IT_WAS, culprits=place)


AS_IT_WAS = (
    "A step changes the variables of a model, and leaves it in train mode. What else does your "
    "step change?"
)


SAME = 2**-13
"""By how much of its length a change of all params may differ from the reference's. Right answers
were seen to make the same change to the last bit, or, where they round otherwise, to 2**-18."""
LARGE = 2**-11
"""As SAME, of later steps from large values, where rounding grows: 2**-16 was seen."""


def _other_change(record: Record, number: int) -> Failure | None:
    """The failure if one of the first steps of a round changes the params by something else.

    That is small beside the params, so they may be close to the reference's all the same.
    """
    steps = [("first", before(number), first(number))]
    theirs = wanted(record)
    names = [first(number), *_later(record, number)]
    steps += zip(ORDINALS, names, names[1:], strict=False)
    for which, name, after in steps:
        mine, right = (_of_kind(side, after, "Param") for side in (seen(record), theirs))
        apart = change_error(_of_kind(theirs, name, "Param"), mine, right)
        if apart is None or apart <= (LARGE if number % 2 and name != before(number) else SAME):
            continue
        which += f" step of round {number + 1}" if number else " step"
        return Failure(
            f"the {which} changes the params as the reference does",
            f"its change differs from that by 1 part in {1 / apart:.0f} of its length",
            statements.call(record, "train_step", "sgd", "update"),
        )
    return None


ORDINALS = ("second", "third", "fourth", "fifth", "sixth")


def _later(record: Record, number: int) -> list[str]:
    """The names of the parameters after each later step of a round, if they were kept."""
    names = (later(number, steps) for steps in range(2, len(ORDINALS) + 2))
    return [name for name in names if name in wanted(record).values]


def _stood_still(record: Record, number: int) -> Failure | None:
    """The failure if a later step of a round leaves all params as they were."""
    names = [first(number), *_later(record, number)]
    for which, old, after in zip(ORDINALS, names, names[1:], strict=False):
        was, now, right = (
            [leaf.data for leaf in _of_kind(side(record), name, "Param")]
            for side, name in ((seen, old), (seen, after), (wanted, after))
        )
        if now != was or now == right:
            continue
        earlier = sum(len(wanted(record).values[losses(one)]) for one in range(number))
        in_all = earlier + ORDINALS.index(which) + 2
        return Failure(
            f"the {which} step of round {number + 1} changes the params, as the step before it did",
            f"it left all of them as they were: it is step {in_all} of the training",
            statements.result(record, "train_step"),
            NO_MORE,
        )
    return None


NO_MORE = (
    "The steps before it were right. What does `train_step` keep or count from one step to the "
    "next, so that a later step takes another way?"
)


SMALL = 2**-6
"""By how much of its length the change of what began as 0 may differ from the reference's."""


def _small_left(record: Record, number: int) -> Failure | None:
    """The failure if weights with small gradients, which begin as 0, change by something else."""
    import numpy as np

    old = _of_kind(wanted(record), before(number), "Param")
    for name in (first(number), *_later(record, number)):
        trees = (_of_kind(side(record), name, "Param") for side in (seen, wanted))
        for was, *new in zip(old, *trees, strict=True):
            begun = load(was.data or b"") == 0
            mine, right = (load(leaf.data or b"")[begun] for leaf in new)
            if np.linalg.norm(mine - right) > SMALL * np.linalg.norm(right):
                return Failure(
                    f"a step changes `{was.path[2:-2]}` where its gradient is small, too",
                    f"where it was 0, it is not the reference's {name.removeprefix('model ')}",
                    statements.call(record, "train_step", "where", "sgd", "update"),
                )
    return None


def _another(record: Record, number: int) -> Failure | None:
    """The failure if a round changes the model that takes no step in it, or deletes a batch."""
    if number in seen(record).facts[USED_UP]:
        return Failure(
            "a step leaves its batch as it is",
            "an array of the batch is deleted after the step: no other step can get it",
            statements.call(record, "train_step", "jit", "delete"),
            NOT_ITS_OWN,
        )
    if number not in seen(record).facts[ANOTHER_CHANGED]:
        return None
    expected = f"the steps of round {number + 1} change the model that they are given, and no other"
    return Failure(expected, "the other model has other numbers", definition(record, "train_step"))


NOT_ITS_OWN = (
    "The batch belongs to the caller. Which line deletes it, or gives it to a program that may?"
)
OF_THE_MODEL = (
    "A step gives the variables of a model new values. Which line gives the model another variable?"
)
LATER = (
    "The round before came out right. What does `train_step` do otherwise in later calls, or with "
    "another model?"
)
BROUGHT = (
    "All that a step needs is on the device. A read is a copy, and so is a NumPy array or a number "
    "that is passed to a jitted function, and what a callback hands to Python."
)
CALLBACKS = ("debug.callback", "debug.print", "io_callback", "pure_callback")
CALLS_BACK = (
    "A callback goes through the host in each step in which it runs: what it is given is copied "
    "there. The loss is returned anyway."
)
FEW = 3
"""So few copies a step are of single values; a step outside jit makes many more."""


@EXERCISE.check(
    ground="observed",
    hints=(
        "Is all of `train_step` compiled? Outside jit, each operation copies its constants again.",
        BROUGHT,
        "Constants inside the jitted function are a part of the program.",
    ),
    anchor="committed-or-not",
)
def step_copies_nothing(record: Record) -> Result:
    """A step with a placed model copies nothing, and leaves the model where it was."""
    read = to_host(seen(record), phase="step")
    found = [*events(seen(record), "h2d", "d2d", phase="step"), *read]
    place, moved = _moved(record)
    if not (found or moved) and seen(record).facts[THROUGH_HOST][1]:
        return _in_host_memory(record, "train_step")
    if not (found or moved):
        return probe_gap(seen(record), "reads", "transfers")
    called: list[Culprit] = []
    ways = {"h2d": "from the host", "d2d": "between devices"}
    counts = {way: sum(e.count for e in found if e.kind == kind) for kind, way in ways.items()}
    counts["to the host"] = sum(e.count for e in read)
    told = [f"{plural(n, 'copy')} {way}" for way, n in counts.items() if n]
    if moved:
        told.append(f"no longer on {place}: {_listed(moved)}")
    steps, hint, not_compiled = wanted(record).facts[STEPS][1], "", list[Culprit]()
    if not found:
        hint = "Nothing is copied before the step ends. Where does it leave the new values?"
    elif sum(counts.values()) <= FEW * steps:
        hint = CALLS_BACK if (called := calls_of(record, CALLBACKS)) else BROUGHT
    elif not statements.uses(record, "train_step", "jit"):
        not_compiled = definition(record, "train_step")
    return Failure(
        f"0 copies in {steps} steps, and the model stays on {place}",
        "; ".join(told),
        not_compiled + culprits(record, found) or called or definition(record, "train_step"),
        hint,
    )


def _moved(record: Record) -> tuple[str, list[Leaf]]:
    """Where the first model that did not stay is to be, or else the first one; and what moved."""
    places = [where(wanted(record).values[name][0]) for name in AT_THE_END]
    for name, place in zip(AT_THE_END, places, strict=True):
        if moved := [leaf for leaf in seen(record).values[name] if where(leaf) != place]:
            return place, moved
    return places[0], []
