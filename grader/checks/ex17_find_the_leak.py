"""ex17_find_the_leak: what is alive at each step of a loop stays the same, whatever it reports."""

from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import msgspec

from grader.checking import Exercise, Failure, Observe, Result, Unable, unpack
from grader.evidence import definition, differing_leaf, seen, wanted
from grader.record import Observed, Record
from grader.words import plural

PROMISE = "`train` returns (best, history)"
SETTLED = 4
"""The step from which on nothing may grow: what is read late is late by then."""


class Alive(msgspec.Struct):
    """What was alive when a step was called."""

    nbytes: int
    arrays: dict[str, int]
    """`float32[64]` -> how many."""


def _params(rng: Any, width: int) -> dict[str, Any]:
    """float32 parameters of the network on the device: (16, width), (width,), (width,)."""
    import jax

    shapes = {"w1": (16, width), "b1": (width,), "w2": (width,)}
    drawn = {k: (rng.standard_normal(s) / 8).astype("float32") for k, s in shapes.items()}
    placed: dict[str, Any] = jax.device_put(drawn)
    return placed


def _batches(rng: Any, rows: int, steps: int) -> Iterator[Any]:
    """Inputs (rows, 16) and targets (rows,), made when asked for; the best is in the middle."""
    import jax

    for index in range(steps):
        inputs = rng.standard_normal((rows, 16)).astype("float32")
        harder = 1 + abs(index - steps // 2) / steps
        yield jax.device_put((inputs, (harder * inputs[:, 0]).astype("float32")))


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Train over fresh sizes, looking at each step at what is alive."""
    steps, rows, width = (int(rng.integers(*ends)) for ends in ((22, 30), (3000, 5000), (150, 200)))
    params = _params(rng, width)
    alive: list[dict[str, Any]] = []

    def step(params: Any, batch: Any) -> Any:
        with observe.unwatched():
            alive.append(_alive())
        return submission.sgd_step(params, batch)

    best, history = unpack(submission.train(step, params, _batches(rng, rows, steps)), 2, PROMISE)
    observe.fact("alive", alive)
    observe.fact("slack", 4 * (18 * width + 2 * rows))
    observe.value("best", best)
    observe.value("history", history)


def _alive() -> dict[str, Any]:
    import jax

    arrays: dict[str, int] = {}
    nbytes = 0
    for array in jax.live_arrays():
        name = f"{array.dtype}[{','.join(map(str, array.shape))}]"
        arrays[name] = arrays.get(name, 0) + 1
        nbytes += array.nbytes
    return {"nbytes": nbytes, "arrays": arrays}


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


@EXERCISE.check(ground="observed")
def history_is_kept(record: Record) -> Result:
    """The history has the reference's loss and worst error for each batch, as floats."""
    for leaf in seen(record).values.get("history", ()):
        if leaf.kind == "jax":
            return Failure(
                "the history holds floats",
                f"`history{leaf.path}` is still a jax.Array",
                definition(record, "train"),
            )
    return _differs(record, "history", atol=1e-6)


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
    grown = mine[-1].nbytes - mine[SETTLED].nbytes
    above = max(one.nbytes for one in mine) - max(one.nbytes for one in theirs)
    if grown <= slack and above <= slack:
        return None
    if grown > slack:
        observed = f"{grown:,} bytes more at step {len(mine)} than at step {SETTLED + 1}"
        return Failure(
            "the same bytes are alive at each step, but for another set of params and report",
            f"{observed}: {_more(mine[SETTLED], mine[-1])}",
            definition(record, "train"),
        )
    peak = max(range(len(mine)), key=lambda index: mine[index].nbytes)
    return Failure(
        "at no step more is alive than params, the best of them, a batch and a report",
        f"{above:,} bytes more than with the reference at step {peak + 1} of {len(mine)}: "
        f"{_more(theirs[peak], mine[peak])}",
        definition(record, "train"),
    )


def _levels(observed: Observed) -> list[Alive]:
    return msgspec.convert(observed.facts["alive"], list[Alive])


def _other_steps(record: Record, mine: int, theirs: int) -> Result:
    """Steps are counted to be compared; without any, nothing is known."""
    if not theirs:
        return Unable("the reference called no step")
    expected = f"`step` is called once for each of {theirs} batches"
    return Failure(expected, plural(mine, "call"), definition(record, "train"))


def _more(before: Alive, after: Alive) -> str:
    """`21 more of float32[4096]`, for all shapes."""
    more = {name: n - before.arrays.get(name, 0) for name, n in after.arrays.items()}
    found = [f"{count} more of `{name}`" for name, count in sorted(more.items()) if count > 1]
    return ", ".join(found) or "arrays of other shapes"


@EXERCISE.check(
    ground="observed",
    after=("live_bytes_flat",),
    hints=(
        "A loss has 4 bytes, and is an array all the same. In a run of a million steps there are "
        "a million of them.",
        "A NumPy view keeps its JAX array alive: np.asarray(loss) may copy nothing.",
        "float(...) it in its own step, or one step late.",
    ),
)
def live_arrays_flat(record: Record) -> Result:
    """The number of arrays that are alive at a step does not grow either."""
    mine = _levels(seen(record))
    before, after = (sum(one.arrays.values()) for one in (mine[SETTLED], mine[-1]))
    most = len(seen(record).values["best"]) + 4  # another set of params, and two reports
    if after - before <= most:
        return None
    return Failure(
        "as many arrays are alive at the last step as at the first ones",
        f"{after - before} arrays more at step {len(mine)} than at step {SETTLED + 1}: "
        f"{_more(mine[SETTLED], mine[-1])}",
        definition(record, "train"),
    )
