"""Checks of ex04_place_model: the placed trees, the copies that placed them, and a step."""

from dataclasses import replace

from grader.checks.ex04_place_model import EXERCISE
from grader.checks.ex04_place_model.facts import (
    AGAIN,
    BATCHES_CHANGED,
    CALLS,
    FORM_OF_BATCH,
    GONE,
    IN_OTHER_ORDER,
    MODELS,
    OTHER_NODES,
    PLACE_RAISED,
    PLACED,
    SHARED,
    STEP_RAISED,
    STEPPED,
    THROUGH_HOST,
    TRACE_RAISED,
    TREES,
    TWICE_IN_ONE,
    UNSEEN,
)
from grader.judging.arrays import FORM, LEFT_OUT, load
from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import (
    calls_of,
    culprit,
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
from grader.judging.results import differing_leaf, renamed, zeros_of_other_sign
from grader.judging.words import plural, where
from grader.records.record import Event, EventKind, Leaf, Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File

ANY_TREE = (
    "The types and the number of parts of an optimizer's state are up to optax. For "
    "jax.device_put and jax.tree.map, it is a tree like any other."
)


STEP = ("train_step", "loss_fn")
"""What is given to take a step with."""
NO_STEP = "A step changes params and state. Which call of `place` does more than copy?"


@EXERCISE.check(
    ground="observed",
    hints=(
        "Placing is a copy: same structure, same dtypes, same numbers. A state that "
        "`optimizer.init` made anew has forgotten all its steps.",
        ANY_TREE,
    ),
)
def same_trees(record: Record) -> Result:
    """The trees that `place` returns hold the same values, and the batch given keeps its own."""
    raised = seen(record).facts.get(PLACE_RAISED)
    if raised:
        told, line = raised
        steps = bool(line) and File(record.source).top_level_at(int(line)) in STEP
        return Failure(
            "`place` copies, and computes nothing"
            if steps
            else "`place` takes the state of any optax optimizer",
            str(told),
            [culprit(record, int(line))] if line else definition(record, "place"),
            NO_STEP if steps else ANY_TREE,
        )
    for model in _models(record):
        for tree in TREES:
            failure = differing_leaf(record, model + tree, rtol=0, atol=0)
            failure = failure or zeros_of_other_sign(record, model + tree)
            if failure:
                found = renamed(failure, model + tree, tree)
                return _in_the_tree(record, tree, found, _call(record, model))
            if other := seen(record).facts[model + OTHER_NODES].get(tree):
                expected = (
                    f"`{tree}` has nodes of the types that it was given with{_call(record, model)}"
                )
                place = statements.call(record, "place")
                return Failure(expected, other, place, NODES, _made(record, tree))
        mine, theirs = (side(record).facts[model + FORM_OF_BATCH] for side in (seen, wanted))
        if mine != theirs:
            return Failure(
                f"`batch` is a {theirs}, as it was given{_call(record, model)}",
                f"a {mine}",
                definition(record, "place"),
                FORM,
                _made(record, "batch"),
            )
    if seen(record).facts[BATCHES_CHANGED]:
        place = statements.written_into(record, "place")
        return Failure(
            "the given batch is as it was", "its arrays hold other numbers", place, ITS_OWN
        )
    return None


def _in_the_tree(record: Record, tree: str, found: Failure, call: str) -> Failure:
    """The failure for one of the trees, with the call that it is of, and its lines."""
    of_state, hint, known = tree == "opt_state", found.hint, list[Culprit]()
    places, made = statements.call(record, "place", *["init"] * of_state), _made(record, tree)
    leaves = plural(len(next(iter(_states(record)))), "value")
    if of_state and found.observed == f"it is {leaves}":
        found = replace(found, observed=f"it is {leaves}: so many leaves are in the whole state")
        hint = WITHOUT_A_TREE
    elif of_state and found.observed.endswith(LEFT_OUT):
        hint = EMPTY_PARTS
    elif of_state and ("a list or tuple" in found.observed or " is an object" in found.expected):
        hint, known = NAMED, statements.call(record, "place", "tuple", "list")
    elif tree == "batch" and found.observed.startswith("dtype "):
        casts = "asarray", "array", "astype"
        hint, known = DTYPES, statements.call(record, "place", *casts)
        if known == definition(record, "place") and len(there := calls_of(record, casts)) == 1:
            known = there  # in a function that `place` calls by another name
    if tree == "batch" and _in_another_order(record, found):
        known = statements.call(record, "place", "tobytes", "frombuffer", "ravel", "reshape")
        found, hint = replace(found, observed=ANOTHER_ORDER), BY_COLUMNS
    if not (hint or of_state):
        hint = AS_GIVEN
    if known and known != definition(record, "place"):
        places, made = known, []
    return replace(found, expected=found.expected + call, culprits=places, made=made, hint=hint)


def _in_another_order(record: Record, found: Failure) -> bool:
    """Whether an array of a batch, which is wrong, has the right numbers in other places."""
    import numpy as np

    if " at [" not in found.expected:
        return False
    for name in (model + "batch" for model in _models(record)):
        for leaf, want in zip(seen(record).values[name], wanted(record).values[name], strict=True):
            if leaf.data != want.data and leaf.data and want.data:
                mine, right = (np.sort(load(data), None) for data in (leaf.data, want.data))
                return mine.tobytes() == right.tobytes()
    return False


ANOTHER_ORDER = "the same numbers in another order, as they lie in the memory of the given array"
BY_COLUMNS = (
    "The numbers of a NumPy array may lie row by row in memory, or column by column. Which line "
    "goes by their order there?"
)
AS_GIVEN = "Placing is a copy: same structure, same dtypes, same numbers. Which line does more?"


def _states(record: Record) -> list[list[Leaf]]:
    """The leaves of the optimizer's state of each model."""
    return [wanted(record).values[model + "opt_state"] for model in _models(record)]


def _made(record: Record, tree: str) -> list[Culprit]:
    """Where `place` makes the tree that it returns in the place of `tree`."""
    return statements.result(record, "place", TREES.index(tree), len(TREES))


ITS_OWN = "The batch belongs to the caller. Which line writes into its arrays?"
WITHOUT_A_TREE = (
    "jax.tree.leaves and jax.tree.flatten make a flat list of a tree. jax.tree.unflatten makes a "
    "tree of the leaves again."
)
NAMED = (
    "optax's states are named tuples, each of a class of its own. tuple(...) and [...] make plain "
    "ones; jax.tree.map and jax.device_put keep the class."
)
NODES = (
    "jax.tree.map takes two trees together only if their dicts and tuples are of the same types. "
    "Which line makes another one?"
)
DTYPES = "Each array of a batch keeps its dtype, whichever that is. Which call asks for another?"
EMPTY_PARTS = (
    "A state may have parts without any array, such as optax.EmptyState(). They keep their places. "
    "jax.tree.map and jax.device_put leave them where they are."
)


def _call(record: Record, model: str) -> str:
    """`, in the third call of `place``; nothing for the first call."""
    which, last = f"the {model.strip()} call", _models(record)[-2:]
    if model in last and int(wanted(record).facts[CALLS]) > len(_models(record)):
        which = ("the last call but one", "the last call")[last.index(model)]
    return f", in {which} of `place`" if model else ""


def _calls(record: Record) -> str:
    """`7 calls`: how often `place` is called."""
    return plural(int(wanted(record).facts[CALLS]), "call")


def _models(record: Record) -> tuple[str, ...]:
    """What the names of the values of each placed model begin with."""
    return MODELS[: int(wanted(record).facts[PLACED])]


def _leaves(record: Record, model: str) -> list[tuple[str, Leaf, Leaf]]:
    """Every placed leaf of a model: its tree, the submission's leaf, the reference's."""
    mine, theirs = seen(record).values, wanted(record).values
    return [
        (tree, leaf, want)
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


NO_DEVICE = (
    "jax.device_put without a device leaves an array where it is, and puts a NumPy array on the "
    "default device. jax.default_device moves nothing that is there already."
)
IN_NUMPY = "NumPy arrays are in host memory. A jitted call copies them each time."


ANOTHER_DEVICE = (
    "A function of jnp, such as jnp.asarray, makes its array on the default device, unless it is "
    "told another. Which call says where the batch goes?"
)
NOT_MOVED = (
    "jax.default_device says where new arrays are made. It moves none that is there already, and "
    "jnp.asarray returns such an array as it is."
)
THE_REST = "The other arrays are in their place. Which line is to place these?"
AS_IT_CAME = (
    "`place` returns the copies that jax.device_put makes on `device`. Which line returns what it "
    "was given?"
)
NOT_IN_THIS_CALL = "The calls before moved their arrays. What is different in this one?"
KEPT = (
    "This call gets the params and the state of an earlier one, and another device. What does "
    "your code keep between two calls?"
)
COPIES = (
    "A step may donate what it gets, and an array that two calls share is deleted for both. What "
    "does your code keep between two calls?"
)


def _whose(trees: set[str], model: str, *, moved: bool, numpy: bool) -> str:
    """The hint for what is elsewhere, or "" for the check's first one."""
    if not moved:
        return NOT_IN_THIS_CALL if model else AS_IT_CAME
    if trees == {"batch"}:
        return IN_NUMPY if numpy else ANOTHER_DEVICE
    if "params" in trees and len(trees) < len(TREES):
        return THE_REST
    if "params" in trees:
        return "`device` is where all three trees are to go. Which device does your code name?"
    return ANY_TREE if model and trees == {"opt_state"} else ""


def _as_it_came(leaf: Leaf) -> bool:
    """Whether an array lies where it may have been before: uncommitted, or in NumPy."""
    return not leaf.committed if leaf.kind == "jax" else leaf.kind == "numpy"


@EXERCISE.check(
    ground="observed",
    after=("same_trees",),
    hints=(
        "The optimizer state does not move with the parameters, and its `count` is an array "
        "like any other.",
        IN_NUMPY,
    ),
)
def on_the_device(record: Record) -> Result:
    """Every leaf lies on the device, and on no other."""
    for model in _models(record):
        leaves = _leaves(record, model)
        wrong = [(tree, mine) for tree, mine, want in leaves if where(mine) != where(want)]
        if wrong:
            nowhere = statements.with_one_argument(record, "place", "device_put")
            moved = len(wrong) < len(leaves) or not all(_as_it_came(leaf) for _, leaf in wrong)
            elsewhere = f"{len(wrong)} of {len(leaves)} are elsewhere"
            trees = list(dict.fromkeys(tree for tree, _ in wrong))
            numpy = any(leaf.kind == "numpy" for _, leaf in wrong)
            some = len(wrong) < len(leaves) and all(_as_it_came(leaf) for _, leaf in wrong)
            hint = (
                NO_DEVICE
                if nowhere
                else THE_REST
                if some and len(trees) == len(TREES)
                else _whose({*trees}, model, moved=moved, numpy=numpy)
            )
            if model in _models(record)[-2:] and trees != ["batch"]:
                hint = KEPT
            by_default = hint == THE_REST and statements.uses(record, "place", "default_device")
            made = {place.line: place for tree in trees[::-1] for place in _made(record, tree)}
            return Failure(
                f"every array is on {where(leaves[0][2])}{_call(record, model)}",
                f"{elsewhere if moved else 'nothing was moved'}. {_listed(wrong)}",
                nowhere or definition(record, "place"),
                NOT_MOVED if by_default else hint,
                made=[made[line] for line in sorted(made)] if len(trees) < len(TREES) else (),
            )
    return None


@EXERCISE.check(
    ground="observed",
    after=("same_trees",),  # an error that quotes arrays has read them
    hints=("np.asarray, jax.device_get, float() and print bring an array's values to the host.",),
)
def not_through_the_host(record: Record) -> Result:
    """No array is read to the host while it is placed."""
    reads = to_host(seen(record), phase="place")
    if not reads and (programs := seen(record).facts.get(THROUGH_HOST)):
        return Failure(
            "no array is kept in host memory",
            f"{plural(programs, 'program')} that `place` compiles keep arrays there",
            statements.call(record, "place", "jit"),
            "Which line names a memory? A device's own is used where none is named.",
        )
    if not reads:
        return probe_gap(seen(record), "reads")
    total = sum(event.count for event in reads)
    return Failure(
        "0 device-to-host reads in `place`",
        f"{plural(total, 'read')} in {_calls(record)} of `place`",
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
    """Each array is copied once, straight to the device."""
    mine = list(events(seen(record), "h2d", "d2d", phase="place"))
    theirs = list(events(wanted(record), "h2d", "d2d", phase="place"))
    (total, size), (fewest, least) = map(weight, (mine, theirs))
    if shared := seen(record).facts[SHARED]:
        return Failure(
            "each call of `place` makes copies of its own",
            f"`{shared}` is the very array that the call before returned: it got the same params, "
            "the same state and the same device",
            _made(record, shared.split("[")[0].split(".")[0]),
            COPIES,
        )
    given_away = statements.donated(record, "place")
    if given_away or seen(record).facts[GONE]:
        return Failure(
            "the caller still has the params and the state that it gave: it may place them again",
            "an array is given away, as `donate=True` asks for"
            if given_away
            else "some of them are deleted",
            given_away or statements.call(record, "place", "delete", "jit"),
            AGAIN_LATER,
        )
    if both := seen(record).facts[TWICE_IN_ONE]:
        return Failure(
            "each place in a tree gets an array of its own, which a step may donate",
            f"`{both[0]}` and `{both[1]}` are one array in one memory",
            definition(record, "place"),
            IN_TWO_PLACES,
        )
    if total <= fewest and size <= least:
        return _copied_again(record) or probe_gap(seen(record), "transfers")
    moves = _of_kind(mine, "d2d")
    between_devices = weight(_of_kind(theirs, "d2d"))[1]
    between, more = sum(event.count for event in moves), size - least
    # A batch that goes to the default device first makes as many bytes more as it has.
    detour = more > 0 and more != weight(_of_kind(theirs, "h2d"))[1]
    return Failure(
        f"{plural(fewest, 'copy')} of {least:,} bytes in {_calls(record)} of `place`",
        f"{plural(total, 'copy')} of {size:,} bytes: {total - between} from host to device, "
        f"{between} from device to device",
        _heaviest_first(record, mine if detour or not more else _of_kind(mine, "h2d")),
        DETOUR if detour and weight(moves)[1] > between_devices else "",
    )


def _copied_again(record: Record) -> Result:
    """The failure if programs get arrays on the device where these lie, to make them once more."""
    if problem := seen(record).facts[UNSEEN]:
        return Unable(problem)
    given: dict[str, int] = seen(record).facts[AGAIN]
    if OF_JAX not in record.source:
        given = {name: count for name, count in given.items() if OF_JAX not in name}
    if not (again := sum(given.values())):
        return None
    return Failure(
        "`place` runs no program on the device where its arrays lie",
        f"{plural(again, 'array')} went into programs there: what these return are further copies",
        statements.call(record, "place", "jit", "copy", "array", "map"),
        "Which line computes with arrays, or copies them to where they are? device_put is enough.",
    )


AGAIN_LATER = "What is donated is gone for the caller, too. Which line gives it away?"
IN_TWO_PLACES = (
    "One array may stand in two places of what comes in. A step that donates its copy in one of "
    "them deletes it in the other. What does your code keep of an array that came before?"
)
SAME_TYPES = (
    "The optimizer takes params and state together, and expects the types of dicts and tuples that "
    "it made. Which line makes a tree of another type?"
)
OF_JAX = "_identity_fn"
"""The program in which jnp.asarray(array, device=...) ends, when it has copied the array there.
It is given that array alone."""
DETOUR = (
    "One copy takes an array from the device where it is to `device`. Which line copies it to "
    "another device on its way?"
)


def _of_kind(copies: list[Event], kind: EventKind) -> list[Event]:
    return [event for event in copies if event.kind == kind]


def _heaviest_first(record: Record, copies: list[Event]) -> list[Culprit]:
    """The learner's lines behind copies, those first that copy the most bytes."""
    weights: dict[int, int] = {}
    for event in copies:
        if event.line is not None:
            weights[event.line] = weights.get(event.line, 0) + weight([event])[1]
    return sorted(culprits(record, copies), key=lambda place: -weights[place.line])


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
    if raised := seen(record).facts.get(TRACE_RAISED):
        expected = "a step with another optimizer can be traced"
        place = definition(record, "place")
        return Failure(expected, f"it raised {raised}", place, SAME_TYPES)
    copies = sum(e.count for e in events(seen(record), "h2d", "d2d", phase="step"))
    for model in _models(record):
        if ordered := seen(record).facts[model + IN_OTHER_ORDER]:
            return in_other_order(record, f"`{ordered[0]}`", "place", _call(record, model))
    for name in (model + STEPPED for model in _models(record)):
        if name not in wanted(record).values:
            continue  # a model with which no step is taken
        target = where(wanted(record).values[name][0])
        places = sorted({where(leaf) for leaf in seen(record).values[name]})
        if copies or places != [target]:
            return Failure(
                f"0 copies in a step, and its results are on {target}",
                f"{plural(copies, 'copy')} in the step, and results are on {', '.join(places)}",
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
        uncommitted = [f"`{tree}{mine.path}`" for tree, mine, _ in leaves if not mine.committed]
        if uncommitted:
            count, listed = len(uncommitted), ", ".join(uncommitted)
            trees = {tree for tree, mine, _ in leaves if not mine.committed}
            return Failure(
                f"every array is committed{_call(record, model)}",
                f"{count} of {len(leaves)} are on the device, but uncommitted: {listed}",
                definition(record, "place"),
                made=_made(record, trees.pop()) if len(trees) == 1 else (),
            )
    return None
