"""ex14_donate: the compiled step writes the new state over the old one, and spares the batch."""

from types import ModuleType
from typing import Any

from grader.checking import Exercise, Failure, Observe, Result, Unable, unpack
from grader.evidence import (
    compiled_program,
    definition,
    differing_output,
    not_jitted,
    seen,
    wanted,
)
from grader.record import Measured, Memory, Record

PROMISE = "`step` returns (state, losses)"


def _state(rng: Any, width: int) -> dict[str, Any]:
    """Parameters, their momentum, and a count, as the starter describes them."""
    import jax
    import numpy as np

    def draw() -> dict[str, Any]:
        shapes = {"w1": (16, width), "b1": (width,), "w2": (width,)}
        return {k: (rng.standard_normal(s) / 8).astype(np.float32) for k, s in shapes.items()}

    state = {"params": draw(), "momentum": draw(), "count": np.int32(rng.integers(100))}
    placed: dict[str, Any] = jax.device_put(state)
    return placed


def _batch(rng: Any, rows: int) -> Any:
    """Inputs (rows, 16) and targets (rows,), float32, on the device."""
    import jax
    import numpy as np

    inputs = rng.standard_normal((rows, 16)).astype(np.float32)
    return jax.device_put((inputs, np.tanh(inputs[:, 0])))


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Trace and export the step for fresh sizes; it runs where the file never was."""
    import jax

    step = submission.step
    if not observe.jitted("step", step):
        return
    state = _state(rng, int(rng.integers(20, 33)) * 16)
    batch = _batch(rng, int(rng.integers(6, 13)))
    traced = step.trace(state, batch)
    unpack(traced.out_info, 2, PROMISE)
    observe.fact("old state", _shapes(state))
    observe.fact("new state", _shapes(traced.out_info[0]))
    observe.fact("state bytes", sum(leaf.nbytes for leaf in jax.tree.leaves(state)))
    _donations(traced, observe, len(jax.tree.leaves(state)))
    observe.program("step", step, state, batch)


def _shapes(tree: Any) -> dict[str, str]:
    """Path -> `float32[16,512]`."""
    import jax

    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {
        jax.tree_util.keystr(path): f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]"
        for path, leaf in leaves
    }


def _donations(traced: Any, observe: Observe, arrays: int) -> None:
    """What `step` offers: which arguments, and whether a function inside offers some."""
    import jax

    offered = [leaf.donated for leaf in jax.tree.leaves(traced.lower().args_info)]
    inner = traced.jaxpr.eqns
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
    return not_jitted(record, "step")


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
    """The new state has the arrays of the old one: same names, shapes and dtypes."""
    old, new = seen(record).facts["old state"], seen(record).facts["new state"]
    if old.keys() != new.keys():
        odd = ", ".join(f"`state{path}`" for path in sorted(old.keys() ^ new.keys()))
        return Failure(
            f"the new state has the {len(old)} arrays of the old one",
            f"it has {len(new)}; only on one side: {odd}",
            definition(record, "step"),
        )
    for path, before in old.items():
        if before != new[path]:
            return Failure(
                f"`state{path}` stays {before}",
                f"it becomes {new[path]}",
                definition(record, "step"),
            )
    return None


@EXERCISE.check(ground="program", after=("state_fits",))
def same_results(record: Record) -> Result:
    """The new state and the losses are the reference's."""
    program = compiled_program(record, "step")
    if not isinstance(program, Measured):
        return program
    return differing_output(record, "step", rtol=1e-4, atol=1e-5)


@EXERCISE.check(
    ground="program",
    after=("same_results",),
    hints=(
        "Inside jit nothing is overwritten by wishing: `x += 1`, .at[].set and `del` make new "
        "arrays or drop names. The caller's buffer is the caller's until it is donated.",
        "The outermost jit decides: give it donate_argnums=0, or donate_argnames='state'.",
    ),
)
def state_in_place(record: Record) -> Result:
    """Every array of the new state is written over the old one's, as compiled and when run."""
    program = compiled_program(record, "step")
    if not isinstance(program, Measured):
        return program
    paths = list(seen(record).facts["old state"])
    aliased = set(program.aliases.values())
    missing = [path for index, path in enumerate(paths) if index not in aliased]
    if not missing:
        return _run_in_place(program, paths)
    total = seen(record).facts["state bytes"]
    return Failure(
        f"all {len(paths)} arrays of the state, {total:,} bytes, are written in place",
        f"{len(paths) - len(missing)} of {len(paths)}: {_offer(record)}",
        definition(record, "step"),
    )


def _run_in_place(program: Measured, paths: list[str]) -> Failure | None:
    """After a run the old state is deleted, and the new one lies at its addresses."""
    alive = [f"`state{p}`" for index, p in enumerate(paths) if index not in program.deleted]
    if alive:
        return Failure("a run deletes the old state", f"still alive: {', '.join(alive)}")
    kept = set(program.reused.values())
    moved = [f"`state{p}`" for index, p in enumerate(paths) if index not in kept]
    if moved:
        return Failure("the new state lies in the old buffers", f"left: {', '.join(moved)}")
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
    if seen(record).facts["batch donated"]:
        return Failure(
            "`step` donates `state` alone",
            "`batch` is donated too: after one call the caller's batch may be gone",
            definition(record, "step"),
        )
    return None


@EXERCISE.check(
    ground="program",
    after=("state_in_place",),
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
