"""ex17_find_the_leak: what is alive at each step of a loop stays the same, whatever it reports.

On a CPU the arrays that `train` gets lie in NumPy's memory. tracemalloc counts that, so that
copies on the host, and views that outlive their array, are seen as well.
"""

import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import msgspec

from grader.checking import Exercise, Failure, Misused, Observe, Result, Unable, unpack
from grader.evidence import definition, differing_leaf, seen, wanted
from grader.looping import FLOATS
from grader.record import Observed, Record
from grader.words import plural

PROMISE = "`train` returns (best, history)"
SETTLED = 5
"""The step from which on nothing may grow: what is read late is late by then."""
WINDOW = 20
"""Steps that are judged together, the first ones against the last: some loops read in tens."""


class Alive(msgspec.Struct):
    """What was alive when a step was called."""

    nbytes: int
    arrays: dict[str, int]
    """`float32[64]` -> how many."""
    host: int
    """Bytes that Python and NumPy hold."""


def _params(rng: Any, width: int) -> dict[str, Any]:
    """float32 parameters of the network on the device: (16, width), (width,), (width,)."""
    shapes = {"w1": (16, width), "b1": (width,), "w2": (width,)}
    drawn = {k: (rng.standard_normal(s) / 8).astype("float32") for k, s in shapes.items()}
    placed: dict[str, Any] = _placed(drawn)
    return placed


def _batches(rng: Any, rows: int, steps: int, deleted: list[str]) -> Iterator[Any]:
    """Inputs (rows, 16) and targets (rows,), made when asked for; the best is in the middle."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def make(index: Any, harder: Any) -> Any:
        inputs = jnp.roll(drawn, index)  # nothing of NumPy's, to be freed at some time
        return inputs, harder * inputs[:, 0]

    drawn = rng.standard_normal((rows, 16)).astype("float32")
    held: deque[Any] = deque(maxlen=2)  # to see whether one of them was deleted
    for index in range(steps):
        held.append(make(index, 1 + abs(index - steps // 2) / steps))
        yield held[-1]
        deleted += _deleted(list(held), f"an array of a batch, by step {index + 1}")


def _placed(tree: Any) -> Any:
    """The arrays on the device; on a CPU, in memory that NumPy has got for them."""
    import jax
    import numpy as np

    def place(x: Any) -> Any:
        room = np.empty(x.nbytes + 64, np.uint8)
        start = -room.ctypes.data % 64  # JAX shares only what begins at such an address
        memory = room[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
        memory[...] = x
        return jax.device_put(memory)

    return jax.tree.map(place, tree)


def _deleted(tree: Any, words: str) -> list[str]:
    import jax

    return [words] if any(x.is_deleted() for x in jax.tree.leaves(tree)) else []


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Train over fresh sizes, looking at each step at what is alive."""
    steps, rows, width = (int(rng.integers(*ends)) for ends in ((64, 72), (1500, 2500), (200, 260)))
    params = _params(rng, width)
    alive: list[Alive] = []
    deleted: list[str] = []
    step = _watched(submission.sgd_step, observe, alive)
    made = submission.train(step, params, _batches(rng, rows, steps, deleted))
    tracemalloc.stop()
    best, history = unpack(made, 2, PROMISE)
    observe.fact("alive", msgspec.to_builtins(alive))
    observe.fact("slack", 4 * (18 * width + 2 * rows))
    observe.fact("deleted", deleted + _deleted(params, "an array of `params`"))
    observe.value("best", best)
    observe.value("history", history)


def _watched(sgd_step: Callable[..., Any], observe: Observe, alive: list[Alive]) -> Any:
    """The step that `train` gets: it keeps what is alive when it is called."""
    import jax

    own = 0  # bytes of `alive`

    def step(params: Any, batch: Any) -> Any:
        nonlocal own
        if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((params, batch))):
            observed = "it was traced, once for all batches: `step` is jitted already"
            raise Misused("`step` is called once for each batch", observed)
        if len(alive) == SETTLED // 2:
            tracemalloc.start()  # not at once: it would make the compiling twice as long
        with observe.unwatched():
            before = tracemalloc.get_traced_memory()[0]
            alive.append(_alive(before - own))
            own += tracemalloc.get_traced_memory()[0] - before
            return _placed(jax.device_get(sgd_step(params, batch)))

    return step


def _alive(host: int) -> Alive:
    import jax

    alive = Alive(0, {}, host)
    for array in jax.live_arrays():
        name = f"{array.dtype}[{','.join(map(str, array.shape))}]"
        alive.arrays[name] = alive.arrays.get(name, 0) + 1
        alive.nbytes += array.nbytes
    return alive


EXERCISE = Exercise(
    title="Stop a loop whose live memory grows",
    lesson="lessons/11-leaks-that-are-and-are-not",
    anchor="who-holds-it",
    edits=("train",),
    drive=drive,
    hints=(
        "An array lives as long as somebody holds it. What does the loop hold at step 1000 that "
        "it did not hold at step 10?",
        "A list of device arrays holds every one of them. What do you need of a report, and how "
        "large is that?",
        "Read two floats at each step, keep those, and keep one set of params: the best so far.",
    ),
)


@EXERCISE.check(
    ground="observed",
    hints=("float(x) is a number. np.asarray(x) of a CPU array is a view of x, and keeps it.",),
)
def history_is_kept(record: Record) -> Result:
    """The history has the reference's loss and worst error for each batch, as floats."""
    for leaf in seen(record).values.get("history", ()):
        if leaf.kind in ("jax", "numpy") and leaf.type not in FLOATS:
            kind = "still a jax.Array" if leaf.kind == "jax" else f"of type `{leaf.type}`"
            return _failed(record, "the history holds floats", f"`history{leaf.path}` is {kind}")
    return _differs(record, "history", atol=1e-6)


def _failed(record: Record, expected: str, observed: str) -> Failure:
    return Failure(expected, observed, definition(record, "train"))


def _differs(record: Record, name: str, *, atol: float) -> Failure | None:
    """The first difference from the reference, with the line of `train`."""
    failure = differing_leaf(record, name, rtol=1e-4, atol=atol)
    return replace(failure, culprits=definition(record, "train")) if failure else None


@EXERCISE.check(
    ground="observed",
    after=("history_is_kept",),
    hints=("A report tells of the params that the step was given, not of those it returned.",),
)
def best_is_kept(record: Record) -> Result:
    """The params with the lowest loss are the reference's."""
    return _differs(record, "best", atol=1e-5)


@EXERCISE.check(
    ground="observed",
    after=("best_is_kept",),
    hints=(
        "The shapes tell who is held: (n,) is a report's errors, (16, h) are params, (n, 16) is a "
        "batch. Which name in `train` leads to them?",
        "del, gc and clearing caches free nothing that a list still holds.",
        "A NumPy view counts as a name: np.asarray(x) may show x's own memory, and keeps x alive.",
    ),
)
def live_bytes_flat(record: Record) -> Result:
    """The bytes that are alive at a step do not grow with the number of steps."""
    mine, theirs = _levels(seen(record)), _levels(wanted(record))
    if len(mine) != len(theirs):
        return _other_steps(record, len(mine), len(theirs))
    slack = int(wanted(record).facts["slack"])
    above = max(one.nbytes for one in mine) - max(one.nbytes for one in theirs)
    grown, when, what = _grown(mine, lambda one: one.nbytes)
    if grown > slack:
        expected = "the same bytes are alive at each step, but for another set of params and report"
        return _failed(record, expected, f"{grown:,} bytes {when}: {what}")
    if above > slack:
        peak = max(range(len(mine)), key=lambda index: mine[index].nbytes)
        return _failed(
            record,
            "at no step more is alive than params, the best of them, two batches and a report",
            f"{above:,} bytes more than with the reference at step {peak + 1} of {len(mine)}: "
            f"{_more(theirs[peak], mine[peak])}",
        )
    return None


def _grown(levels: list[Alive], size: Callable[[Alive], int]) -> tuple[int, str, str]:
    """How much more there is at the end than at first, when, and of what.

    Of each window the step counts at which least is alive: what waits to be read, or to be
    freed, is sometimes gone, and what is kept is always there.
    """

    def least(start: int) -> int:
        return min(range(start, start + WINDOW), key=lambda index: size(levels[index]))

    early, late = least(SETTLED), least(len(levels) - WINDOW)
    before, after = levels[early], levels[late]
    when = f"more at step {late + 1} than at step {early + 1}"
    return size(after) - size(before), when, _more(before, after)


def _levels(observed: Observed) -> list[Alive]:
    return msgspec.convert(observed.facts["alive"], list[Alive])


def _other_steps(record: Record, mine: int, theirs: int) -> Result:
    """Steps are counted to be compared; without any, nothing is known."""
    if not theirs:
        return Unable("the reference called no step")
    expected = f"`step` is called once for each of {theirs} batches"
    return _failed(record, expected, plural(mine, "call"))


def _more(before: Alive, after: Alive) -> str:
    """`21 more of float32[4096]`, for all shapes."""
    more = {name: n - before.arrays.get(name, 0) for name, n in sorted(after.arrays.items())}
    return ", ".join(f"{count} more of `{name}`" for name, count in more.items() if count > 0)


@EXERCISE.check(
    ground="observed",
    after=("live_bytes_flat",),
    hints=(
        "A loss has 4 bytes, and is an array all the same. In a run of a million steps there are "
        "a million of them.",
        "np.asarray(loss) of a CPU array is a view that keeps it; float(loss), in its own step or "
        "one step late, is not.",
    ),
)
def live_arrays_flat(record: Record) -> Result:
    """The number of arrays that are alive at a step does not grow either."""
    mine = _levels(seen(record))
    grown, when, what = _grown(mine, lambda one: sum(one.arrays.values()))
    if grown <= len(seen(record).values["best"]) + 4:  # another set of params, and two reports
        return None
    expected = "as many arrays are alive at the last step as at the first ones"
    return _failed(record, expected, f"{grown} arrays {when}: {what}")


@EXERCISE.check(
    ground="observed",
    after=("live_arrays_flat",),
    hints=("A copy on the host fills the host's memory in place of the device's.",),
)
def host_bytes_flat(record: Record) -> Result:
    """What Python and NumPy hold at a step grows by the history alone."""
    (grown, when, _), (history, *_) = (
        _grown(_levels(side), lambda one: one.host) for side in (seen(record), wanted(record))
    )
    if grown - history <= 2 * int(wanted(record).facts["slack"]):  # objects come and go
        return None
    expected = "beside the floats of its history, the host keeps nothing of a step"
    return _failed(record, expected, f"{grown:,} bytes {when}: copies of arrays, or views")


@EXERCISE.check(
    ground="observed",
    after=("best_is_kept",),
    hints=(
        "delete() frees an array for everybody who holds it. Whose is it?",
        "What nobody holds is freed by itself: delete nothing.",
    ),
)
def given_arrays_stay(record: Record) -> Result:
    """The params and the batches that `train` was given are there for others, too."""
    for words in seen(record).facts["deleted"]:
        expected = "what `train` was given is not deleted: its caller may hold it"
        return _failed(record, expected, f"{words}, was deleted")
    return None
