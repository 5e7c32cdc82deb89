"""ex18_running_mean: the compiled mean needs the same memory for any number of updates."""

from types import ModuleType
from typing import Any

from grader.arrays import compare, load
from grader.checking import Exercise, Failure, Observe, Result, Unable
from grader.evidence import compiled_program, definition, not_jitted, wanted
from grader.record import Leaf, Measured, Memory, Record

NAME = "mean_of_updates"
ROOM = 6
"""Arrays like `x` that the program may need beside the reference's own need."""
MEAN = "one-is-not-1001"


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Trace and export the mean for a fresh size and number of updates."""
    import jax

    size = int(rng.integers(24, 41))
    updates = int(rng.integers(1020, 1090))  # never fewer: a loop over the first 1000 is seen
    x = 20 * rng.standard_normal((size, size))
    rates = rng.uniform(0.01, 0.05, updates)
    arguments = [jax.device_put(value.astype("float32")) for value in (x, rates)]
    mean = submission.mean_of_updates
    if not observe.jitted(NAME, mean):
        return
    observe.fact("array bytes", arguments[0].nbytes)
    observe.fact("updates", updates)
    observe.value("x", arguments[0])
    with observe.unwatched():
        last, _ = jax.lax.scan(lambda x, rate: (submission.update(x, rate), None), *arguments)
        observe.value("last state", last)
    observe.program(NAME, mean, *arguments)


EXERCISE = Exercise(
    title="Average a thousand updates in constant memory",
    lesson="lessons/11-leaks-that-are-and-are-not",
    anchor="a-mean-in-constant-memory",
    edits=(NAME,),
    drive=drive,
    hints=(
        "A mean needs the sum and the number. Does it need the states after they were added?",
        "jax.lax.scan hands a carry from round to round, which may be a tuple. What it returns "
        "beside the carry is stacked.",
        "Carry (x, total): return (update(x, rate), total + the new x), None. Divide at the end.",
    ),
)


@EXERCISE.check(
    ground="observed",
    hints=("Without jit, what Python keeps between the updates is seen by nobody.",),
)
def jitted(record: Record) -> Result:
    """`mean_of_updates` itself is a function that jax.jit made."""
    return not_jitted(record, NAME)


def _both(record: Record) -> tuple[Measured, Measured] | Failure | Unable:
    """The learner's program and the reference's."""
    mine, theirs = compiled_program(record, NAME), record.reference_measured.get(NAME)
    if not isinstance(mine, Measured):
        return mine
    return (mine, theirs) if theirs else Unable("the reference was not compiled")


@EXERCISE.check(
    ground="program",
    after=("jitted",),
    hints=(
        "Start at zero or with the first update's state, count each update once, and divide by "
        "how many there were.",
    ),
    anchor=MEAN,
)
def same_mean(record: Record) -> Result:
    """The result is the mean of the states, with `x` not among them."""
    if not isinstance(both := _both(record), tuple):
        return both
    mine, theirs = both
    failure = compare("mean", mine.outputs, theirs.outputs, "", "", rtol=2e-4, atol=1e-4)
    if failure is None:
        return None
    slip = _slip(record, mine.outputs, theirs.outputs)
    observed = f"{failure.observed}: {slip}" if slip else failure.observed
    return Failure(failure.expected, observed, definition(record, NAME))


def _slip(record: Record, mine: list[Leaf], theirs: list[Leaf]) -> str:
    """Which known mistake gives exactly these numbers."""
    import numpy as np

    leaves = [*mine[:1], *theirs[:1], *wanted(record).values["last state"]]
    leaves += wanted(record).values["x"]
    if any(leaf.data is None or leaf.shape != leaves[-1].shape for leaf in leaves):
        return ""
    found, mean, last, x = (np.asarray(load(leaf.data or b""), np.float64) for leaf in leaves)
    updates = int(wanted(record).facts["updates"])
    for words, value in _slips(mean * updates, x, last, updates).items():
        if np.allclose(found, value, rtol=2e-4, atol=1e-4):
            return words
    return ""


def _slips(total: Any, x: Any, last: Any, updates: int) -> dict[str, Any]:
    """What known mistakes make of the sum of the states."""
    return {
        "this is the sum, not divided by the number of updates": total,
        "this is the sum, `x` among them, not divided: the document's 1001 for 1": total + x,
        "`x` is counted too, as one state more": (total + x) / (updates + 1),
        "`x` is in the sum, and not in the number": (total + x) / updates,
        "the last state is not in the sum, and `x` is": (total + x - last) / updates,
        "the last state is not in the sum": (total - last) / updates,
        "the last state is not among them": (total - last) / (updates - 1),
        "divided by one too few": total / (updates - 1),
        "divided by one too many": total / (updates + 1),
        "divided by 1000, whatever the number of updates": total / 1000,
    }


@EXERCISE.check(
    ground="program",
    after=("same_mean",),
    hints=(
        "A scan's second result is stacked: an array for each round. So is what vmap returns.",
        "Keep the sum in the carry, and return None beside it.",
    ),
)
def constant_memory(record: Record) -> Result:
    """The program needs a few arrays like `x`, not one for each update."""
    if not isinstance(both := _both(record), tuple):
        return both
    if both[0].memory is None or both[1].memory is None:
        return Unable("this backend does not say how much memory a program needs")
    mine, theirs = (_room(program.memory) for program in both if program.memory)
    array, updates = (int(wanted(record).facts[name]) for name in ("array bytes", "updates"))
    if mine <= theirs + ROOM * array:
        return None
    return Failure(
        f"room for at most {theirs // array + ROOM} arrays like `x`, for {updates} updates",
        f"room for {mine // array} of them: {mine:,} bytes",
        definition(record, NAME),
    )


def _room(memory: Memory) -> int:
    """Bytes a program needs on its device."""
    return memory.arguments + memory.outputs + memory.temporaries - memory.aliased
