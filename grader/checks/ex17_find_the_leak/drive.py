"""Drives ex17_find_the_leak: trains, and notes at each step what is alive; then trains five times.

Drawn: the steps (110 to 179), the rows of a batch and the width of the network, so that no size of
the history or of the params is known in advance; which batch is the easiest (from a fifth to four
fifths of the way), so that neither the first nor the last params are the best ones; a large factor
of all losses and errors, so that no number that a loop begins with is above them; and all numbers.
The run is long, so that a small array that is kept at each step adds up. Five more follow: in one
(25 to 34 steps) the first step is given the best params, in the next (3 to 6 steps) the last one
is, the third has a single step with a batch of one row, the fourth has hundreds (300 to 599), so
that no number of entries is enough, and the fifth is as long as the first. In the second, params
are a list of layers, and every other batch has half of the rows. The batches of these runs come
from an iterator that is no generator. All losses and errors are below 0 there. What is alive at
each step is counted in the first, the fourth and the fifth of them, too, and after each what is
left, also on the host. Every history is compared with what the reports said, to the last bit. Where
the file names numbers, the first run has more steps than each of them that is below MOST_STEPS, the
one of hundreds has more, up to MOST_HUNDREDS, and the one whose last step is given the best params
a wider network, up to MOST_WIDTH, and now and then as many rows as a number says; losses and errors
are larger, up to MOST_LOSS, and those below 0 as far from it.

On a CPU, the arrays that `train` gets lie in memory that NumPy allocated. tracemalloc counts that
memory, so that it also sees copies on the host, and views that outlive their array. What comes and
goes in Python hides a few copies from that sum; what the variables of the file lead to is therefore
added up, too, at each step. At the last step it tells which variable holds most.
"""

import copy
import gc
import hashlib
import math
import operator
import sys
import tracemalloc
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from grader.checks.ex17_find_the_leak.facts import (
    AGAIN,
    BEST_OF,
    BETTER_ALONE,
    FIRST,
    HISTORY_OF,
    HUNDREDS,
    KEEPERS,
    KEPT_FROM,
    KEPT_OF_REPORTS,
    KEPT_ON_HOST,
    LAST,
    LATER,
    LOWEST,
    NOT_AS_TOLD,
    ONLY,
    OTHER_PARAMS,
    SETTLED,
    TRAINS,
    WATCHED,
    WINDOW_LATER,
    Alive,
    Holder,
)
from grader.checks.ex17_find_the_leak.holders import holders, host_bytes, kept_bytes, running
from grader.probes.observe import Misused, Observe, unpack
from grader.stages.drawn import beyond, far, one_of

PROMISE = "`train` returns (best, history)"
LATER_RUNS = {
    FIRST: (25, 35),
    LAST: (3, 7),
    ONLY: (1, 2),
    HUNDREDS: (300, 600),
    AGAIN: (25, 35),
}
"""From how many steps on, and below how many, the later runs have."""
Told = dict[str, float]
"""The entry of a history that a report makes: its loss, and the largest of its errors."""
MOST_STEPS, MOST_HUNDREDS, MOST_WIDTH, MOST_ROWS = 320, 1100, 4096, 1000
"""Up to where steps, width and rows reach the numbers that the file names."""
SEEN = 30
"""So many steps later, what is kept from a step on is seen."""
SMALLEST, MOST_LOSS = 1e-3, 1e36
"""The smallest loss of a step before it is multiplied; and by how much it may be multiplied, so
that the largest error is finite."""
ENDS = 40
"""So many steps of a later run are looked at after the lowest loss so far, and at its end."""
MAGNITUDES = (31, 33)
"""The decimal logarithm of the factor of all losses and errors is between these."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Train, and write down what was alive at each step, and what was deleted; train again."""
    observe.without_trace()
    steps = _beyond(rng, int(rng.integers(110, 180)), MOST_STEPS)
    easiest = int(steps * rng.uniform(0.2, 0.8))
    rows = int(rng.integers(600, 1000))
    width = int(rng.integers(90, 130))
    params = _params(rng, width)
    magnitude = copy.deepcopy(rng).uniform(*MAGNITUDES)
    factor = max(10**magnitude, far(rng, SMALLEST * MOST_LOSS) / SMALLEST)
    step = _scaled(submission.sgd_step, np.float32(factor))
    alive: list[Alive] = []
    deleted: list[str] = []
    given: list[Any] = []
    starts: list[bytes] = []
    ends: list[bytes] = []
    told: list[Told] = []
    with observe.unwatched():  # what `train` may delete is needed again
        first = {name: np.array(x) for name, x in params.items()}
        before = len(jax.live_arrays())
    slope = 1 / steps
    again = _batches(copy.deepcopy(rng), rows, steps, easiest, slope, [])
    held: list[Holder] = []
    noting = _noting(step, told, ends)
    watched = _watched(submission, noting, observe, alive, given, starts, steps, held)
    with observe.phase(TRAINS), _left_alone(params):
        made = submission.train(watched, params, _batches(rng, rows, steps, easiest, slope, given))
    tracemalloc.stop()
    best, history = unpack(made, 2, PROMISE)
    deleted += _deletions(params, given)
    observe.fact("alive", msgspec.to_builtins(alive))
    observe.fact("holders", msgspec.to_builtins(held))
    observe.fact("bytes of params", 4 * 18 * width)
    observe.fact("bytes of params and two reports", 4 * (18 * width + 2 * rows))
    observe.value("best", best)
    observe.fact(BEST_OF, _step_of(best, starts))
    pairs = enumerate(zip(starts[1:], ends, strict=False), 1)
    observe.fact(OTHER_PARAMS, next((i for i, (start, end) in pairs if start != end), 0))
    observe.value("history", history)
    not_as_told = [_not_as_told(history, told, steps)]
    del made, best
    more, left = _train_again(submission, observe, rng, rows, first, not_as_told)
    deleted += more
    own = sum(len(jax.tree.leaves(batch)) for batch in given)  # which the drive holds
    observe.fact(KEPT_FROM, left - own - before)
    observe.fact("deleted", deleted)
    observe.fact(NOT_AS_TOLD, not_as_told)
    if observe.reference:
        with observe.unwatched():
            for name, value in _slips(step, first, again).items():
                observe.value(name, value)


def _beyond(rng: Any, usual: int, most: int) -> int:
    """`usual`, or so many steps that what begins at a number of the file's is seen."""
    steps = beyond(rng, usual, most)
    return steps + SEEN * (steps > usual)


@contextmanager
def _left_alone(params: Any) -> Iterator[None]:
    """A block that calls `train` with these params: their tree holds the same arrays after it."""
    form: Any = jax.tree.structure(params)
    before = jax.tree.leaves(params)
    try:
        yield
    except Exception as error:
        if isinstance(params, list):
            error.add_note("here, `params` is a list of layers, and no dict")
        raise
    after = jax.tree.leaves(params)
    if form != jax.tree.structure(params) or any(map(operator.is_not, before, after)):
        promise = "`train` leaves `params` as they are: they belong to its caller"
        raise Misused(promise, "it puts other arrays into that tree, or takes some out")


def _deletions(params: Any, batches: list[Any]) -> list[str]:
    """What of the params and the batches that `train` was given was deleted, in words."""
    numbers = (index for index, batch in enumerate(batches, 1) if _is_deleted(batch))
    found = [f"an array of batch {number} was deleted" for number in numbers]
    return found + ["an array of `params` was deleted"] * _is_deleted(params)


def _noting(
    step: Callable[..., Any], told: list[Told], ends: list[bytes] | None = None
) -> Callable[..., Any]:
    """The step, which returns what is NumPy's.

    What each report says is appended to `told`, and what tells the new params from all others to
    `ends`.
    """

    def noting(params: Any, batch: Any) -> Any:
        new, report = step(params, batch)
        told.append({"loss": float(report["loss"]), "worst": float(report["errors"].max())})
        if ends is not None:
            ends.append(_digest(new))
        return new, report

    return noting


def _not_as_told(history: Any, told: list[Told], batches: int) -> str:
    """How a history differs from what the reports said, in words; or "". Floats may be NumPy's."""
    entries = [*history] if isinstance(history, list | tuple | deque) else [history]
    if len(entries) != batches or len(told) < batches:
        return f"it has {len(entries)} entries after {len(told)} steps, of {batches} batches"
    for index, (entry, report) in enumerate(zip(entries, told, strict=False)):
        if not isinstance(entry, Mapping) or entry.keys() != report.keys():
            return f"`history[{index}]` is not a dict of `loss` and `worst`"
        for key, number in report.items():
            if not isinstance(entry[key], float | np.floating) or float(entry[key]) != number:
                return f"`history[{index}]['{key}']` is {entry[key]!r:.60}, and that is {number!r}"
    return ""


def _train_again(
    submission: ModuleType,
    observe: Observe,
    rng: Any,
    rows: int,
    first: Any,
    not_as_told: list[str],
) -> tuple[list[str], int]:
    """Train in runs where the first step is given the best params, or the last.

    How their histories differ from what they were told is appended to `not_as_told`. Returns what
    was deleted, in words, and how many arrays are alive in the end.
    """
    given, later, levels = list[Any](), list[list[Alive]](), list[Alive]()
    told, reports = list[Told](), list[weakref.ref[Any]]()
    factor = np.float32(-max(1, far(rng, MOST_LOSS)))
    width = first["b1"].size
    wide = beyond(rng, width, MOST_WIDTH, each=16)
    wider = first if wide == width else jax.device_get(_params(rng, wide))
    other_rows = one_of(rng, rows, range(2, MOST_ROWS + 1))

    def lower(params: Any, batch: Any) -> Any:
        in_layers = isinstance(params, list | tuple)
        whole = {name: layer[name] for layer in params for name in layer} if in_layers else params
        new, report = jax.device_get(submission.sgd_step(whole, batch))
        new = _in_layers(new) if in_layers else new
        return new, {name: np.asarray(factor / (1 + value)) for name, value in report.items()}

    noting = _noting(lower, told)

    def stepped(params: Any, batch: Any) -> Any:
        new, report = _placed(noting(params, batch))
        reports.extend(map(weakref.ref, report.values()))
        return new, report

    def below_0(params: Any, batch: Any) -> Any:
        with observe.unwatched():
            if len(levels) < steps - ENDS and _lowest(told) + ENDS <= len(levels):
                levels.append(levels[-1])
                return stepped(params, batch)
            own = {id(x) for x in jax.tree.leaves(given)}
            if len(levels) % WINDOW_LATER:
                held = levels[-1].held  # to walk through a history takes as long as it is
            else:
                frames = running(sys._getframe(1), str(submission.__file__))
                held = host_bytes(frames, submission)
                del frames
            arrays = [(x, 0) for x in jax.live_arrays() if id(x) not in own]
            levels.append(_alive(0, held, arrays))
            del arrays
            return stepped(params, batch)

    deleted, host = list[str](), list[int]()
    for name, span in LATER_RUNS.items():
        steps = int(rng.integers(*span))
        steps = _beyond(rng, steps, MOST_HUNDREDS) if name == HUNDREDS else steps
        levels.clear()
        told.clear()
        easiest, many = (steps - 1, other_rows) if name == LAST else (0, rows)
        sizes = {LAST: (-(-many // 2), many), ONLY: (1,)}.get(name, (many,))
        # A chain is no generator, and so has no `close`.
        batches = chain(_batches(rng, many, steps, easiest, 2 / steps, given, sizes))
        with observe.unwatched():
            params = _placed(_in_layers(wider) if name == LAST else first)
        with observe.phase(TRAINS), _left_alone(params):
            best, history = unpack(submission.train(below_0, params, batches), 2, PROMISE)
        observe.value(name, best)
        not_as_told.append(_not_as_told(history, told, steps))
        if name == HUNDREDS:
            observe.fact(LOWEST, _lowest(told))
        if name in HISTORY_OF:
            observe.value(HISTORY_OF[name], history)
        deleted += _deletions(params, given)
        if name in WATCHED:
            later.append([*levels])
        del batches, params, best, history
        given.clear()
        gc.collect()
        with observe.unwatched():
            host.append(kept_bytes(submission))
    observe.fact(LATER, msgspec.to_builtins(later))
    observe.fact(KEPT_ON_HOST, host[-1] - host[0])
    observe.fact(KEEPERS, msgspec.to_builtins(holders([], submission)))
    left = (reference() for reference in reports)
    observe.fact(KEPT_OF_REPORTS, [_kind(array) for array in left if array is not None])
    return deleted, len(jax.live_arrays())


def _lowest(told: list[Told]) -> int:
    """The step with the lowest loss of those that are told so far; 0 if none is."""
    return min(range(len(told)), key=lambda index: told[index]["loss"], default=0)


OTHER_ERRORS: dict[str, Callable[[Any], Any]] = {
    "the smallest of the errors, not the largest": np.min,
    "the mean of the errors, not the largest": np.mean,
    "the sum of the errors, not the largest": np.sum,
    "the index of the largest error, not that error": np.argmax,
    "the first of the errors, not the largest": lambda errors: errors[0],
    "the last of the errors, not the largest": lambda errors: errors[-1],
}
"""What is taken for the largest error of a step, and how it is made of the errors."""


def _slips(step: Callable[..., Any], first: Any, batches: Iterator[Any]) -> dict[str, Any]:
    """What known mistakes return, by the name of the value and the mistake in words."""
    params, best, highest, after = first, -math.inf, first, first
    lowest = before = least = math.inf
    given = fallen = mildest = first
    stuck: list[dict[str, float]] = []
    so_far: list[dict[str, float]] = []
    better: list[dict[str, float]] = []
    others: dict[str, list[dict[str, float]]] = {name: [] for name in OTHER_ERRORS}
    for batch in batches:
        new, report = step(params, batch)
        loss, errors = float(report["loss"]), report["errors"]
        if loss > best:
            best, highest = loss, params
        if loss < lowest:
            lowest, after = loss, new
            better.append({"loss": loss, "worst": float(errors.max())})
        if loss < before:
            fallen = params
        if (largest := float(errors.max())) < least:
            least, mildest = largest, params
        so_far.append({"loss": loss, "worst": max([largest, *(x["worst"] for x in so_far[-1:])])})
        before, given = loss, params
        for name, other in OTHER_ERRORS.items():
            others[name].append({"loss": loss, "worst": float(other(errors))})
        _, report = step(first, batch)
        worst = float(report["errors"].max())
        stuck.append({"loss": float(report["loss"]), "worst": worst})
        params = new
    return {
        "best, the set of params before the first step": first,
        "best, the set of params that the step with the lowest loss returned": after,
        "best, the set of params with the highest loss": highest,
        "best, the set of params after the last step": params,
        "best, the set of params that the last step was given": given,
        "best, the last set of params whose loss is below the loss before it": fallen,
        "best, the set of params with the smallest of the largest errors": mildest,
        "history, the largest error of all steps so far, not of the step": so_far,
        f"history, {BETTER_ALONE}": better,
        "history, what comes of giving each step the first params again": stuck,
        **{f"history, {name}": made for name, made in others.items()},
    }


def _params(rng: Any, width: int) -> dict[str, Any]:
    """float32 parameters of the network on the device: (16, width), (width,), (width,)."""
    shapes = {"w1": (16, width), "b1": (width,), "w2": (width,)}
    drawn = {k: (rng.standard_normal(s) / 8).astype("float32") for k, s in shapes.items()}
    placed: dict[str, Any] = _placed(drawn)
    return placed


def _in_layers(params: Any) -> list[Any]:
    """The parameters of the network as a list of its two layers."""
    return [{name: params[name] for name in layer} for layer in (("w1", "b1"), ("w2",))]


def _batches(
    rng: Any,
    rows: int,
    steps: int,
    easiest: int,
    slope: float,
    given: list[Any],
    sizes: Sequence[int] = (),
) -> Iterator[Any]:
    """Inputs (rows, 16) and targets (rows,), float32, each batch made when it is asked for.

    The batch `easiest` is the easiest, and `slope` says how much so. `given` gets each batch as
    arrays of its own in the same memory: they show a batch that was deleted, whenever that was.
    Of `sizes`, if there are any, each batch has as many rows as the next one says, in turn.
    """

    @partial(jax.jit, static_argnums=2)
    def make(index: Any, harder: Any, count: int) -> Any:
        # Made by JAX: a batch in NumPy's memory would count among the bytes of the host.
        inputs = jnp.roll(drawn, index)[:count]
        return inputs, harder * inputs[:, 0]

    drawn = rng.standard_normal((rows, 16)).astype("float32")
    held: deque[Any] = deque(maxlen=2)
    for index in range(steps):
        count = sizes[index % len(sizes)] if sizes else rows
        held.append(make(index, 1 + abs(index - easiest) * slope, count))
        given.append(jax.tree.map(_alias, held[-1]))
        yield held[-1]


def _placed(tree: Any) -> Any:
    """The arrays on the device; on a CPU, in memory that NumPy allocated."""

    def place(x: Any) -> Any:
        room = np.empty(x.nbytes + 64, np.uint8)
        start = -room.ctypes.data % 64  # JAX shares an array only if it starts at such an address
        memory = room[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
        memory[...] = x
        return jax.device_put(memory)

    return jax.tree.map(place, tree)


def _alias(array: Any) -> Any:
    """Another array in the same memory."""
    alias = jax.make_array_from_single_device_arrays
    return alias(array.shape, array.sharding, [array])


def _is_deleted(tree: Any) -> bool:
    """Whether an array of the tree was deleted.

    Of another array in the same memory, the client of a device next door knows only what it asks
    for: to wait for what was deleted is refused.
    """
    try:
        return any(x.block_until_ready().is_deleted() for x in jax.tree.leaves(tree))
    except RuntimeError:
        return True


def _scaled(step: Callable[..., Any], factor: Any) -> Callable[..., Any]:
    """The step with all losses and errors multiplied by `factor`; what it returns is NumPy's."""

    def scaled(params: Any, batch: Any) -> Any:
        new, report = jax.device_get(step(params, batch))
        return new, {name: np.asarray(factor * value) for name, value in report.items()}

    return scaled


def _digest(params: Any) -> bytes:
    """What tells a set of params from all others."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(params):
        found.update(np.asarray(leaf).tobytes())
    return found.digest()


def _step_of(best: Any, starts: list[bytes]) -> int:
    """The step that was given these params, of those that are noted in `starts`; or -1."""
    if not all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(best)) or _is_deleted(best):
        return -1
    mine = _digest(best)
    return starts.index(mine) if mine in starts else -1


def _watched(
    submission: ModuleType,
    whole_step: Callable[..., Any],
    observe: Observe,
    alive: list[Alive],
    given: list[Any],
    starts: list[bytes],
    steps: int,
    held: list[Holder],
) -> Any:
    """The step that `train` gets: each call appends to `alive` what is alive at that moment.

    The params that it gets are noted in `starts`.
    The last of `steps` calls also says in `held` which variables hold the most arrays, and the
    most of the host's memory. The arrays of `given` are the drive's own, and do not count.
    """
    own = 0  # bytes of `alive`
    born = _Born()

    def step(params: Any, batch: Any) -> Any:
        nonlocal own
        if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((params, batch))):
            observed = (
                "it was traced: `step` is jitted already. A loop of jax.lax or a jit around it "
                "sees no batch, and a jit that donates deletes what belongs to the caller"
            )
            raise Misused("`step` is called once for each batch", observed)
        if len(alive) == SETTLED // 2:
            tracemalloc.start()  # not at the first step: compiling would take twice as long
        with observe.unwatched():
            before = tracemalloc.get_traced_memory()[0]
            arrays = born.alive(len(alive), {id(x) for x in jax.tree.leaves(given)})
            frames = running(sys._getframe(1), str(submission.__file__))
            alive.append(_alive(before - own, host_bytes(frames, submission), arrays))
            if len(alive) == steps:
                held.extend(holders(frames, submission))
            del frames
            starts.append(_digest(params))
            own += tracemalloc.get_traced_memory()[0] - before
            return _placed(whole_step(params, batch))

    return step


class _Born:
    """Knows since which step each live array has been there."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[weakref.ref[Any], int]] = {}

    def alive(self, step: int, own: set[int]) -> list[tuple[Any, int]]:
        """The live arrays at `step`, each with the step at which it was first there.

        Those whose `id` is in `own` do not count.
        """
        arrays = [array for array in jax.live_arrays() if id(array) not in own]
        known, self._since = self._since, {}
        for array in arrays:
            ref, since = known.get(id(array), (None, step))
            if ref is None or ref() is not array:  # the one of that `id` is gone
                ref, since = weakref.ref(array), step
            self._since[id(array)] = ref, since
        return [(array, self._since[id(array)][1]) for array in arrays]


def _kind(array: Any) -> str:
    """`float32[64]`: the kind of an array."""
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


def _alive(host: int, held: int, arrays: list[tuple[Any, int]]) -> Alive:
    """What is alive now; `host` bytes are held by Python and NumPy, `held` by variables."""
    alive = Alive(0, {}, host, held, sorted({since for _, since in arrays}))
    for array, _ in arrays:
        name = _kind(array)
        alive.arrays[name] = alive.arrays.get(name, 0) + 1
        alive.nbytes += array.nbytes
    return alive
