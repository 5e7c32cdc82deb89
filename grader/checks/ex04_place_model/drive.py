"""Drives ex04_place_model: places models of drawn sizes, and takes a step with one of them.

The first model, and one more, have the file's optimizer: a step is taken with one of the two, and
`place` cannot know with which. The others have other optimizers, whose states have other types, and
one of them has arrays of other dtypes, one without numbers, one that stands in two places, the very
params, and empty nodes, too, and its params are in bfloat16, and the dtypes of its batch are those
that NumPy makes unless it is told another; the state of one has no array at all, and the dtypes of
its batch are smaller ones; the batch of a third is of whole numbers without a sign. So it helps
nobody to take Adam's state apart, or to name one device always. The inputs of these three have more
dimensions than two, as images do, and their labels may have two. But for the first model's, inputs
lie column by column in memory, and in one of these three in yet another order, and some arrays of a
batch are an np.memmap. The two models are of one size, and go from the same device to the same one:
only their numbers differ. At last the params and the state of one model are placed again, on
another device, and once more on that one, where the arrays are other ones than those of the call
before: a step may have donated these. No count is 0: a state made anew by `init` differs. A step
that JAX refuses is a fact about the placement, and no error of the run; with other optimizers, a
step is traced only. What `place` returned, and the batches that it was given, are looked at when
all models are placed.

Drawn: how many models are placed (7 or 8), with which a step is taken, the default device and the
device asked for each time, the optimizers, their order and what they clip at, the features and rows
of each batch, once 1, its dtypes, and all numbers, some of them 0, negative or large. But for the
first model, some are none, infinite, -0.0 or tiny. Where the file names numbers, one model has more
features, one more rows, and one more layers than each of them, up to MOST_..., and before the last
two calls, `place` is called more often.
"""

import traceback
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

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
from grader.judging.words import plural
from grader.probes import alive, dumped, launches
from grader.probes.describe import in_other_order
from grader.probes.observe import Observe, other_part, unpack
from grader.stages.drawn import beside, beyond, one_of, some_odd

PROMISE = "`place` returns (params, opt_state, batch)"
SIZES = (range(1, 2), range(3, 64), range(64, 200), range(60, 200, 60))
"""Features are drawn from one of these; rows from each of them at least once."""
MOST_FEATURES, MOST_ROWS, MOST_LAYERS, MOST_CALLS = 20_000, 20_000, 80, 300
"""Up to where the numbers are reached that the file names."""
NARROW = 6
"""How many features the model with more rows has at most."""
TWICE = (5, 1, 1, 1, 7)
"""The shape of the array that stands in two places, which no other has."""
TRACED = 9973
"""Features of the network that is traced: no other size of its parameters."""
FEWEST = 7
"""So many models are placed at least."""
OF_OTHER_DTYPES = "optax.chain(a key, masked(trace), apply_if_finite(adam in bfloat16))"
"""An optimizer whose state holds uint32, complex64, bools, bfloat16 and optax.MaskedNode, too.

It is always among those that are drawn.
"""
WITHOUT_ARRAYS = "optax.sgd without momentum"
"""An optimizer whose state holds no array. It is always among those that are drawn."""


type _Dtypes = tuple[Any, Any]
"""Of the inputs and of the labels of a batch."""
USUAL: _Dtypes = (np.float32, np.int32)
WIDE: _Dtypes = (np.float64, np.int64)
UNSIGNED: Sequence[_Dtypes] = ((np.uint16, np.uint32), (np.uint32, np.uint16))
PIXELS = ((2, 2, 3), (3, 1, 1))
"""What the shape of the inputs has behind rows and features, if they have more dimensions."""
SMALL: Sequence[_Dtypes] = ((np.float16, np.int8), (np.uint8, np.uint8), (np.float16, np.int16))


class Average(NamedTuple):
    """The state of an average of params: where no step was taken, it is the params themselves."""

    params: Any


_AVERAGE = optax.GradientTransformation(Average, lambda updates, state, _=None: (updates, state))


def _with_average(state: Any, params: Any) -> Any:
    """A state in which each `Average` holds these params."""

    def held(node: Any) -> Any:
        return Average(params) if isinstance(node, Average) else node

    return jax.tree.map(held, state, is_leaf=lambda node: isinstance(node, Average))


def _others(rng: Any) -> dict[str, Any]:
    """Optimizers that the file does not have, by the words for them."""
    clip, rate = float(rng.uniform(0.5, 2)), 0.1
    return {
        "optax.chain(clip, adam)": optax.chain(
            optax.clip(clip), optax.adam(optax.constant_schedule(rate))
        ),
        "optax.chain(clip_by_global_norm, adagrad)": optax.chain(
            optax.clip_by_global_norm(clip), optax.adagrad(rate)
        ),
        "optax.sgd with momentum": optax.sgd(rate, momentum=0.9),
        "optax.lion": optax.lion(rate),
        "optax.rmsprop": optax.rmsprop(rate, momentum=0.9, centered=True),
        "optax.inject_hyperparams(adam)": optax.inject_hyperparams(optax.adam)(rate),
        "optax.MultiSteps(adamw)": optax.MultiSteps(optax.adamw(rate), 4),
        WITHOUT_ARRAYS: optax.sgd(rate),
        OF_OTHER_DTYPES: optax.chain(
            optax.GradientTransformation(_a_key, lambda updates, state, _=None: (updates, state)),
            optax.masked(optax.trace(0.9), lambda tree: jax.tree.map(lambda x: x.ndim > 1, tree)),
            optax.apply_if_finite(optax.adam(rate, mu_dtype=jnp.bfloat16), 9),
            _AVERAGE,
        ),
    }


def _a_key(_: Any) -> Any:
    """The state of a part of an optimizer: the two words of a random key, and what is rare.

    That is complex numbers, an array without numbers, and two of one shape and dtype.
    """
    rare = jnp.zeros(3, jnp.complex64), jnp.zeros((0, 2)), jnp.zeros(TWICE), jnp.zeros(TWICE)
    return jnp.zeros(2, jnp.uint32), rare


def _values(rng: Any, shape: Any) -> Any:
    """NumPy values for a `ShapeDtypeStruct`: bools, integers far from 0, floats.

    Some of the floats are 0, and some are large. Numbers have both signs if their type has.
    """
    if shape.dtype == bool:
        return rng.random(shape.shape) < 0.5
    if np.issubdtype(shape.dtype, np.integer):
        signs = [1, -1][: 1 + np.issubdtype(shape.dtype, np.signedinteger)]
        drawn = rng.choice(signs, shape.shape) * rng.integers(3, 1 << 20, shape.shape)
        return np.asarray(drawn, shape.dtype)
    if shape.dtype == np.complex64 or shape.shape == TWICE:
        drawn = beside(rng).standard_normal((2, *shape.shape))
        rare = drawn[0] if shape.shape == TWICE else drawn[0] + 1j * drawn[1]
        return np.asarray(rare, shape.dtype)
    sizes = rng.choice([0, 0.25, 1000], shape.shape, p=[0.1, 0.8, 0.1])
    return np.asarray(sizes * rng.uniform(-1, 1, shape.shape), shape.dtype)


def _parameters(network: Any) -> Any:
    """The parameters of `network` for inputs of `TRACED` features, as `ShapeDtypeStruct`s."""
    key = jax.ShapeDtypeStruct((2,), np.uint32)
    return jax.eval_shape(network.init, key, jax.ShapeDtypeStruct((1, TRACED), np.float32))


def _inputs(
    traced: Any,
    optimizer: Any,
    rng: Any,
    features: int,
    rows: int,
    dtypes: _Dtypes,
    *,
    odd: bool,
    moved: bool = False,
) -> tuple[Any, ...]:
    """Parameters and optimizer state on the default device, uncommitted; a NumPy batch.

    `traced` is what `_parameters` returns. inputs (rows, features) and labels (rows,) are of
    `dtypes`; they have more dimensions if these are not USUAL. With `odd`, some numbers are those
    of `some_odd`, and inputs lie column by column in memory, or with `moved` in another order.
    """
    usual = dtypes == USUAL
    more = () if usual else PIXELS[rng.integers(len(PIXELS))]
    more = PIXELS[0] if moved else more
    inputs = rng.standard_normal((rows, features, *more))
    unsigned = np.issubdtype(dtypes[0], np.unsignedinteger)
    inputs = (abs(100 * inputs) if unsigned else inputs).astype(dtypes[0])
    labels = rng.integers(0, 4, (rows,) if usual else (rows, *(1, 2)[: rng.integers(2)]))
    labels = labels.astype(np.int32 if dtypes == WIDE else dtypes[1])

    dtype = jnp.bfloat16 if dtypes == WIDE else np.float32

    def sized(leaf: Any) -> Any:
        shape = tuple(features if size == TRACED else size for size in leaf.shape)
        return jax.ShapeDtypeStruct(shape, dtype)

    params = jax.tree.map(sized, traced)
    state = params, _with_average(jax.eval_shape(optimizer.init, params), ())
    drawn = jax.tree.map(lambda shape: _values(rng, shape), state)
    if odd:
        leaves = (leaf for leaf in jax.tree.leaves(drawn) if not _is_rare(leaf))
        some_odd(rng, *leaves, inputs, labels)
    labels = labels.astype(dtypes[1])
    if odd:
        inputs = _with_moved_axis(inputs) if moved else np.asfortranarray(inputs)
        apart = beside(rng)
        inputs, labels = (
            one.view(np.memmap) if apart.integers(2) else one for one in (inputs, labels)
        )
    placed, state = _in_two_places(jax.device_put(drawn))
    return placed, _with_average(state, placed), (inputs, labels)


def _with_moved_axis(array: Any) -> Any:
    """The same array, whose last dimension lies before the two that precede it in memory."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, -1, -3)), -3, -1)


def _is_rare(leaf: Any) -> bool:
    """Whether it is one of those with which `_a_key` begins."""
    return leaf.dtype == np.complex64 or leaf.shape == TWICE or not leaf.size


def _in_two_places(tree: Any) -> Any:
    """The tree, in which one array stands in all places whose arrays have the shape TWICE."""
    known = [leaf for leaf in jax.tree.leaves(tree) if leaf.shape == TWICE]
    return jax.tree.map(lambda leaf: known[0] if leaf.shape == TWICE else leaf, tree)


def _sizes(rng: Any, rows: range, number: int) -> tuple[Any, Any, int, int]:
    """The default device, another one that is asked for, the features, and the rows of a batch.

    `number` counts the sizes that were drawn before. The first ones reach what the file names, in
    features, or in rows; the others are what it names.
    """
    default, device = rng.permutation(jax.devices())[:2]
    features = int(rng.choice(SIZES[rng.integers(len(SIZES))]))
    drawn = int(rng.choice(rows))
    if number == 0:
        return default, device, beyond(rng, features, MOST_FEATURES, each=16), drawn
    if number == 1:
        few = min(features, NARROW)
        more = beyond(rng, drawn, MOST_ROWS, each=few)
        return default, device, features if more == drawn else few, more
    features = one_of(rng, features, range(1, max(SIZES[2])), each=16)
    return default, device, features, one_of(rng, drawn, rows, each=features)


def _with_layers(traced: Any, count: int) -> Any:
    """The parameters, as `_parameters` returns them, of a network with `count` layers."""
    *_, last = traced.values()
    names = [*traced, *(f"mlp/~/linear_{n}" for n in range(len(traced), count))]
    return {name: traced.get(name, last) for name in names}


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Place models, and take a step with one of those that have the file's optimizer."""
    others = _others(rng)
    count = int(rng.integers(FEWEST, len(MODELS) + 1))
    usual = [name for name in others if name not in (OF_OTHER_DTYPES, WITHOUT_ARRAYS)]
    drawn = [OF_OTHER_DTYPES, *rng.choice(usual, count - 6, replace=False).tolist()]
    words = ["", *rng.permutation([*drawn, WITHOUT_ARRAYS, ""]).tolist(), *[rng.choice(drawn)] * 2]
    ranges = rng.permutation(np.arange(count - 3) % len(SIZES)).tolist()
    unusual = {
        OF_OTHER_DTYPES: WIDE,
        WITHOUT_ARRAYS: SMALL[rng.integers(len(SMALL))],
        drawn[1]: UNSIGNED[rng.integers(len(UNSIGNED))],
    }
    moved = beside(rng).choice([*unusual])
    observe.fact(PLACED, count)
    through = 0
    stepped = MODELS[rng.choice([index for index, name in enumerate(words) if not name])]
    with observe.unwatched():
        traced = _parameters(submission.network)
        programs = launches.Places()
        again = _Again()
    sizes, given = dict[str, tuple[Any, ...]](), dict[str, tuple[Any, ...]]()
    twice = list[str]()
    returned, batches = list[tuple[str, bool, Any]](), list[tuple[Any, Any]]()
    layers = beyond(rng, len(traced), MOST_LAYERS, each=2)
    calls, forms = beyond(rng, count, MOST_CALLS), dict[str, Any]()
    observe.fact(CALLS, calls)
    for prefix, name in zip(MODELS[:count], words, strict=True):
        if name not in sizes:
            forms[name] = _with_layers(traced, layers) if len(sizes) == 2 else traced
            sizes[name] = _sizes(rng, SIZES[ranges.pop()], len(sizes))
        default, device, features, rows = sizes[name]
        once_more = prefix in MODELS[count - 2 : count]
        if prefix == MODELS[count - 2]:
            device = rng.choice(
                [d for d in jax.devices() if d not in (default, device)] or [device]
            )
            sizes[name] = default, device, features, rows
            _more_calls(submission, observe, rng, traced, device, calls - count)
        with jax.default_device(default):
            optimizer = others[name] if name else submission.optimizer
            with observe.unwatched():
                dtypes = unusual.get(name, USUAL)
                odd = prefix != MODELS[0]
                sized = rng, features, rows, dtypes
                inputs = _inputs(forms[name], optimizer, *sized, odd=odd, moved=name == moved)
                if once_more and not _deleted(given[name]):
                    inputs = *given[name], inputs[-1]
            given[name] = inputs[:-1]
            batches += [(array, array.copy()) for array in inputs[-1]]
            try:
                with (
                    dumped.programs() as texts,
                    programs.launched(again.launched),
                    observe.phase("place"),
                ):
                    placed = submission.place(*inputs, device)
            except Exception as error:
                if prefix == MODELS[0]:
                    error.add_note(_counted(error, inputs))
                    raise
                said = f"for a state of {name or 'the same optimizer'}, it raised "
                stack = traceback.extract_tb(error.__traceback__)
                lines = [frame.lineno for frame in stack if frame.filename == submission.__file__]
                told = f"{said}{type(error).__name__}: {error}"
                observe.fact(PLACE_RAISED, [told, lines[-1] if lines else None])
                return
            through += sum(map(dumped.uses_the_host, texts))
            placed = unpack(placed, 3, PROMISE)
            if prefix == MODELS[count - 1]:
                observe.fact(SHARED, _shared(returned[-1][-1], placed))
            returned.append((prefix, dtypes == WIDE, placed))
            observe.fact(prefix + FORM_OF_BATCH, type(placed[2]).__name__)
            pairs = list(zip(TREES, inputs, placed, strict=True))
            twice = [*twice, *_in_one_memory(placed)]
            turned = [tree + path for tree, _, one in pairs for path in in_other_order(one)]
            observe.fact(prefix + IN_OTHER_ORDER, turned)
            nodes = {tree: other_part(tree, *both) for tree, *both in pairs[:-1]}
            observe.fact(prefix + OTHER_NODES, nodes)
            if prefix == stepped:
                _step(submission, observe, placed, prefix)
            elif name:
                _trace_a_step(optimizer, observe, placed, name)
    _keep(observe, returned)
    changed = any(array.tobytes() != before.tobytes() for array, before in batches)
    observe.fact(BATCHES_CHANGED, changed)
    observe.fact(TWICE_IN_ONE, twice)
    observe.fact(GONE, any(map(_deleted, given.values())))
    observe.fact(THROUGH_HOST, through)
    observe.fact(AGAIN, again.given)
    observe.fact(UNSEEN, programs.problem)


def _counted(error: Exception, inputs: Any) -> str:
    """How many arrays there are in each tree, in words, if the error is about that; or ""."""
    if "PyTreeDef" not in str(error):
        return ""
    pairs = zip(TREES, map(jax.tree.leaves, inputs), strict=True)
    listed = ", ".join(f"`{tree}` has {plural(len(leaves), 'array')}" for tree, leaves in pairs)
    return f"{listed}: each tree has a structure of its own"


def _more_calls(
    submission: ModuleType, observe: Observe, rng: Any, traced: Any, device: Any, times: int
) -> None:
    """Have one small model placed so many times."""
    if not times:
        return
    with observe.unwatched():
        inputs = _inputs(traced, submission.optimizer, rng, 3, 2, USUAL, odd=False)
    for _ in range(times):
        if not _deleted(inputs):
            with observe.phase("place"):
                submission.place(*inputs, device)


def _keep(observe: Observe, returned: list[tuple[str, bool, Any]]) -> None:
    """Keep what `place` returned for each model, and whether its batch was of 64 bits."""
    for prefix, wide, placed in returned:
        for kind, tree in zip(TREES, placed, strict=True):
            tree = jax.tree.map(_not_mapped, tree)
            observe.value(prefix + kind, jax.tree.map(_of_32_bits, tree) if wide else tree)


def _not_mapped(leaf: Any) -> Any:
    """A plain NumPy array for an np.memmap, so that only its place is another one."""
    return np.asarray(leaf) if type(leaf) is np.memmap else leaf


def _of_32_bits(leaf: Any) -> Any:
    """A NumPy array with the dtype that JAX gives it, so that only its place is another one."""
    if type(leaf) is not np.ndarray:
        return leaf
    return leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype))


def _shared(before: Any, now: Any) -> str:
    """The path of an array of what a call of `place` returned that the call before returned, too.

    "" if there is none.
    """
    paths = alive.in_one_memory((before, now))
    if [path[:3] for path in paths] != ["[0]", "[1]"]:
        return ""
    return TREES[int(paths[1][4])] + paths[1][6:]


def _in_one_memory(placed: tuple[Any, ...]) -> list[str]:
    """The paths of two arrays that a call of `place` returned in one memory; none if none are."""
    paths = alive.in_one_memory(placed)
    return [TREES[int(path[1])] + path[3:] for path in paths]


def _deleted(tree: Any) -> bool:
    """Whether an array of a tree is gone, since `place` gave it away."""
    leaves = jax.tree.leaves(tree)
    return any(leaf.is_deleted() for leaf in leaves if isinstance(leaf, jax.Array))


class _Again:
    """Counts what programs are given on devices where it lies already.

    By the name of the program, if it is given a single array.
    """

    def __init__(self) -> None:
        self.given: dict[str, int] = {}

    def launched(self, name: str, devices: Sequence[str], given: Sequence[Any]) -> None:
        """Count the arrays of one launch."""
        if there := launches.given_there(devices, given):
            name = name if len(given) == 1 else "of several"
            self.given[name] = self.given.get(name, 0) + there


def _step(submission: ModuleType, observe: Observe, placed: tuple[Any, ...], prefix: str) -> None:
    """Take one step with what `place` returned, and keep its results, or what it raised."""
    try:
        with observe.phase("step"):
            results = submission.train_step(*placed)
    except Exception as error:  # noqa: BLE001 (whatever it raises is a fact to judge)
        observe.fact(STEP_RAISED, f"{type(error).__name__}: {error}")
    else:
        observe.value(prefix + STEPPED, results, data=False)


def _trace_a_step(optimizer: Any, observe: Observe, placed: tuple[Any, ...], name: str) -> None:
    """Trace a step of another optimizer with what `place` returned: nothing is computed."""
    params, state, _ = placed
    try:
        with observe.unwatched():
            jax.eval_shape(optimizer.update, params, state, params)
    except Exception as error:  # noqa: BLE001 (whatever it raises is a fact to judge)
        told = f"{type(error).__name__}: {error}"
        observe.fact(TRACE_RAISED, f"{told}, with the params and the state of {name}")
