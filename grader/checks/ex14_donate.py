"""ex14_donate: the compiled step writes the new state over the old one, and spares the batch."""

from types import ModuleType
from typing import Any

from grader.checking import Exercise, Failure, Observe, Result, Unable, unpack
from grader.evidence import (
    compiled_program,
    definition,
    differing_leaf,
    differing_output,
    seen,
    wanted,
)
from grader.record import Leaf, Measured, Memory, Record
from grader.words import where

PROMISE = "`step` returns (state, losses)"


def _owned(values: Any) -> Any:
    """A device array with a buffer of its own: one that borrows NumPy's cannot be donated.

    JAX borrows aligned memory. These values start one element off, so they are copied,
    and nothing is compiled for it as `jnp.array` would.
    """
    import jax
    import numpy as np

    shifted = np.empty(values.size + 17, values.dtype)
    start = 1 + (-shifted.ctypes.data // values.itemsize) % 16
    off = shifted[start : start + values.size].reshape(values.shape)
    off[...] = values
    return jax.device_put(off)


def _state(rng: Any, width: int) -> dict[str, Any]:
    """Parameters, their momentum, and a count, as the starter describes them."""
    import jax
    import numpy as np

    def draw() -> dict[str, Any]:
        shapes = {"w1": (16, width), "b1": (width,), "w2": (width,)}
        return {k: (rng.standard_normal(s) / 8).astype(np.float32) for k, s in shapes.items()}

    count = np.asarray(rng.integers(100), np.int32)
    state = {"params": draw(), "momentum": draw(), "count": count}
    return {k: jax.tree.map(_owned, v) for k, v in state.items()}


def _batch(rng: Any, rows: int) -> tuple[Any, Any]:
    """Inputs (rows, 16) and targets (rows,), float32, on the device."""
    import numpy as np

    inputs = rng.standard_normal((rows, 16)).astype(np.float32)
    return _owned(inputs), _owned(np.tanh(inputs[:, 0]))


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Export the step for one size, and call it with another."""
    import jax

    step = submission.step
    observe.fact("type", type(step).__name__)
    observe.fact("jitted", type(step) is type(jax.jit(len)))
    if type(step) is not type(jax.jit(len)):
        return
    state, batch = _state(rng, 512), _batch(rng, 8)
    _donations(step, observe, state, batch)
    observe.program("step", step, state, batch)
    state, batch = _state(rng, 320), _batch(rng, 12)
    observe.value("old state", state, data=False)
    new, losses = unpack(step(state, batch), 2, PROMISE)
    observe.value("state", new)
    observe.value("losses", losses)
    observe.value("old state after the call", state, data=False)
    observe.value("batch after the call", batch, data=False)


def _donations(step: Any, observe: Observe, state: Any, batch: Any) -> None:
    """What `step` offers: which arguments, and whether a function inside offers some."""
    import jax

    offered = [leaf.donated for leaf in jax.tree.leaves(step.lower(state, batch).args_info)]
    arrays = len(jax.tree.leaves(state))
    inner = step.trace(state, batch).jaxpr.eqns
    observe.fact("state bytes", sum(leaf.nbytes for leaf in jax.tree.leaves(state)))
    observe.fact("state donated", any(offered[:arrays]))
    observe.fact("batch donated", any(offered[arrays:]))
    observe.fact("donated inside", any(any(e.params.get("donated_invars", ())) for e in inner))


EXERCISE = Exercise(
    title="Update state in place",
    lesson="lessons/09-what-jit-does-to-memory",
    anchor="donate-what-you-replace",
    edits=("step",),
    drive=drive,
    hints=(
        "While the step runs, the old state is still an argument. Who could give it up?",
        "jax.jit can be told that the caller will never use an argument again.",
        "Write @jax.jit(donate_argnums=...) with the position of `state`, and of nothing else.",
    ),
)


@EXERCISE.check(
    ground="observed",
    hints=("Donation is an agreement of jax.jit: hand back what jax.jit returns.",),
)
def jitted(record: Record) -> Result:
    """`step` itself is a function that jax.jit made."""
    facts = seen(record).facts
    if facts.get("jitted") is True:
        return None
    return Failure(
        "`step` is what jax.jit returns",
        f"`step` is of type `{facts.get('type')}`: what happens around a jitted function "
        "is no part of its program",
        definition(record, "step"),
    )


@EXERCISE.check(
    ground="observed",
    after=("jitted",),
    hints=(
        "The next step takes this state. What it holds more needs room; what has other bytes "
        "than before has no old buffer to lie in.",
        "Look at the keys and at each dtype: `+ 1.0` makes a float32 of an int32.",
    ),
    anchor="a-donation-can-be-refused",
)
def state_fits(record: Record) -> Result:
    """The new state has the arrays of the old one: same names, shapes, dtypes and memory."""
    failure = _misfit(_described(record, "old state"), _described(record, "state"))
    if failure is None:
        return None
    return Failure(failure.expected, failure.observed, definition(record, "step"))


def _described(record: Record, name: str) -> dict[str, Leaf]:
    return {leaf.path: leaf for leaf in seen(record).values.get(name, ())}


def _misfit(old: dict[str, Leaf], new: dict[str, Leaf]) -> Failure | None:
    if old.keys() != new.keys():
        odd = ", ".join(f"`state{path}`" for path in sorted(old.keys() ^ new.keys()))
        return Failure(
            f"the new state has the {len(old)} arrays of the old one",
            f"it has {len(new)}; only on one side: {odd}",
        )
    for path, before in old.items():
        if _what(before) != _what(new[path]):
            return Failure(
                f"`state{path}` stays {_what(before)}",
                f"it becomes {_what(new[path])}",
            )
    return None


def _what(leaf: Leaf) -> str:
    """`float32[16,192] in device memory`."""
    if leaf.kind != "jax":
        return where(leaf)
    return f"{leaf.dtype}[{','.join(map(str, leaf.shape))}] in {leaf.memory_kind} memory"


@EXERCISE.check(ground="observed", after=("state_fits",))
def same_results(record: Record) -> Result:
    """The new state and the losses are the reference's."""
    for name in ("state", "losses"):
        failure = differing_leaf(record, name, rtol=1e-4, atol=1e-5)
        if failure:
            return failure
    return differing_output(record, "step", rtol=1e-4, atol=1e-5)


@EXERCISE.check(
    ground="program",
    after=("state_fits",),
    hints=(
        "Inside jit nothing is overwritten by wishing: `x += 1`, .at[].set and `del` make new "
        "arrays or drop names. The caller's buffer is the caller's until it is donated.",
        "The outermost jit decides: give it donate_argnums=0, or donate_argnames='state'.",
    ),
)
def state_in_place(record: Record) -> Result:
    """Every array of the new state is written over the old one's, as compiled and when called."""
    program = compiled_program(record, "step")
    if not isinstance(program, Measured):
        return program
    return _compiled_in_place(record, program) or _called_in_place(record)


def _compiled_in_place(record: Record, program: Measured) -> Failure | None:
    leaves = seen(record).values["old state"]
    kept = set(program.aliases.values())
    missing = [leaf.path for index, leaf in enumerate(leaves) if index not in kept]
    if not missing:
        return None
    total = wanted(record).facts["state bytes"]
    return Failure(
        f"all {len(leaves)} arrays of the state, {total:,} bytes, are written in place",
        f"{len(leaves) - len(missing)} of {len(leaves)}: {_offer(record)}",
        definition(record, "step"),
    )


def _called_in_place(record: Record) -> Failure | None:
    """After a call the old state is deleted, and the new one lies at its addresses."""
    left = seen(record).values["old state after the call"]
    alive = [f"`state{leaf.path}`" for leaf in left if not leaf.deleted]
    if alive:
        return Failure("the old state is deleted", f"still alive: {', '.join(alive)}")
    old = {leaf.buffer for leaf in _described(record, "old state").values()}
    new = _described(record, "state").values()
    moved = [f"`state{leaf.path}`" for leaf in new if leaf.buffer not in old]
    if moved:
        return Failure("the new state lies in the old buffers", f"moved: {', '.join(moved)}")
    return None


def _offer(record: Record) -> str:
    """What the learner's `step` donates, in words."""
    facts = seen(record).facts
    if facts.get("state donated"):
        return "`state` is donated, but no result fits the others"
    if facts.get("batch donated"):
        return "`step` donates `batch`, not `state`"
    if facts.get("donated inside"):
        return "a jitted function inside `step` donates, but the jit around it does not"
    return "`step` donates nothing, so the old state and the new one both need room"


@EXERCISE.check(
    ground="observed",
    after=("state_in_place",),
    hints=(
        "What is donated is gone for the caller too. Which argument does the caller use again?",
        "Donate position 0 alone.",
    ),
)
def batch_is_kept(record: Record) -> Result:
    """The batch is not donated: the caller can use it in the next epoch."""
    if not seen(record).facts.get("batch donated"):
        return None
    names = ("inputs", "targets")
    found = seen(record).values["batch after the call"]
    gone = [name for name, leaf in zip(names, found, strict=True) if leaf.deleted]
    after = f", and its {' and '.join(gone)} deleted after one call" if gone else ""
    return Failure(
        "`step` donates `state` alone", f"`batch` is donated too{after}", definition(record, "step")
    )


@EXERCISE.check(
    ground="program",
    after=("state_in_place", "same_results"),
    hints=("Update each array from its own gradient; a flat vector of all of them is a copy.",),
    anchor="two-copies-at-the-peak",
)
def one_copy_of_the_state(record: Record) -> Result:
    """The program needs no room for a second copy of the state."""
    program, reference = compiled_program(record, "step"), record.reference_measured.get("step")
    if not isinstance(program, Measured):
        return program
    if program.memory is None or reference is None or reference.memory is None:
        return Unable("this backend does not say how much memory a program needs")
    state = int(wanted(record).facts["state bytes"])
    room, limit = _room(program.memory), _room(reference.memory) + state // 3
    if room <= limit:
        return None
    return Failure(
        f"at most {limit:,} bytes: the reference's need, and a third of the state's {state:,}",
        f"{room:,} bytes, {program.memory.temporaries:,} of them for intermediate results",
        definition(record, "step"),
    )


def _room(memory: Memory) -> int:
    """Bytes a program needs on its device."""
    return memory.arguments + memory.outputs + memory.temporaries - memory.aliased
