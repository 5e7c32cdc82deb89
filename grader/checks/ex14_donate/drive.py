"""Drives ex14_donate: traces and exports `step` for states of several sizes, and runs it.

Drawn: the width of the network and the rows of a batch, for five programs (a narrow network, a wide
one and one between, two of them with 3 to 6 rows, and one with 1 or 2, and one of any width with 7
or 8, in any order, and then one of as many hidden units as inputs, with 61 to 500), and of another
network, which is run twice, with 8 to 59 rows, for 2 to 19 and for 100 to 139 steps; the count that
a state begins with (0 in one run, where the momentum is 0, too; hundreds to millions in two
programs, and more elsewhere; in the second run it passes a number that 10,000 and 4096 divide); how
many batches a run has, which come again in turn; whether a batch is a list or a tuple, of which at
least two traces get each; whether the runs come before the traces; how large the inputs of a
program are; and all numbers, of which some are 0. In the program with the most rows, some numbers
are far from the others. In that of any width, all of b1 are 0, and so is a row of the batch, whose
error is exactly 0 then. In the last step of the shorter run, one target is very large, and so are
the gradients. Where the file names numbers, the widest network is wider than each of them that is
below MOST_WIDTH, the longer run has more steps, up to MOST_STEPS, and that target is larger, up to
MOST_FAR; one more program has 500 rows; and some counts, widths and rows are named numbers, or
counts that they divide.

The trace shows what `step` donates, and whether the new state has the arrays of the old one. What
the compiler makes of the donation is measured with the exported programs, where the learner's file
never was. In the runs, each step is looked at: whether the old state is gone, whether the new one
lies in its buffers, and whether the batch is as it was.
"""

import math
from types import ModuleType
from typing import Any

import jax
import msgspec
import numpy as np

from grader.checks.ex14_donate import facts
from grader.checks.ex14_donate.facts import FEATURES, FEW, LEAST, MANY, RUNS, TRACED, Run, Traced
from grader.probes.describe import address
from grader.probes.host_operations import uses_host_memory
from grader.probes.observe import Misused, Observe, unpack
from grader.probes.observe import named as called
from grader.stages.drawn import among, beside, beyond, draw, far, named, one_of

PROMISE = "`step` returns (state, losses)"
WIDTHS = ((24, 200), (200, 1100), (1100, 1700))
"""From which width on, and below which, the network of each program is."""
LENGTHS = ((2, 20), (facts.LONG, 140))
FEWEST_ROWS, ROWS, MANY_ROWS = (1, LEAST), (LEAST, FEW + 1), (FEW + 1, MANY + 1)
MORE_ROWS = (61, 501)
COUNTS, SMALLER = (1 << 25, 1 << 30), (140, 1 << 25)
"""From which number on, and below which, the counts are with which most states begin: float32 has
not all of the larger ones."""
ROUND = 2**12 * 3 * 5**6
"""A number that most round numbers divide."""
INPUTS = (0.25, 4.0)
"""How large the inputs are, at least and at most. In a run they are small, so that the training of
no network diverges: that would make much of a difference of rounding."""
ZEROS = 0.05
"""The part of the numbers in a state, and in the inputs, that are 0."""
FAR = 1e16
"""The target that is far from all others in the last step of a run."""
FAR_NUMBERS = {"w1": (1, 2), "b1": (1, 2), "momentum": (2, 4), "batch": (2, 3)}
"""The decimal logarithm of numbers that are far from all others of their array, in one program."""
MOST_WIDTH, MOST_STEPS, MOST_FAR = 20_000, 1000, 1e18
"""Up to where widths, steps and the target reach the numbers that the file names."""
RUN_ROWS, RUN_WIDTH, BATCHES = (8, 60), (40, 200), (2, 6)


def _state(rng: Any, width: int, count: int) -> dict[str, Any]:
    """Parameters, their momentum, and a count, as the starter describes them.

    A training begins without momentum.
    """

    def draw(scale: float) -> dict[str, Any]:
        shapes = {"w1": (FEATURES, width), "b1": (width,), "w2": (width,)}
        drawn = {k: rng.standard_normal(s) * (rng.random(s) >= ZEROS) for k, s in shapes.items()}
        return {k: (scale * x).astype(np.float32) for k, x in drawn.items()}

    momentum = draw(1 / 8 if count else 0)
    state = {"params": draw(1 / 8), "momentum": momentum, "count": np.int32(count)}
    placed: dict[str, Any] = _copied(state)
    return placed


@jax.jit
def _copied(tree: Any) -> Any:
    """Arrays in buffers that a program made: those of NumPy cannot be written over."""
    return jax.tree.map(lambda x: x + 0, tree)


def _batch(rng: Any, rows: int, *, size: float = INPUTS[0], apart: bool = False) -> Any:
    """Inputs (rows, FEATURES) of a size and targets (rows,), float32, on the device.

    One of the targets may be `apart` from all others.
    """
    shape = rows, FEATURES
    inputs = (rng.standard_normal(shape) * (rng.random(shape) >= ZEROS)).astype(np.float32)
    targets = inputs[:, 0].copy()
    if apart:
        targets[int(rng.integers(rows))] = max(FAR, far(rng, MOST_FAR))
    return _copied((np.float32(size) * inputs, targets))


def _with_far_numbers(rng: Any, state: Any, batch: Any) -> tuple[Any, Any]:
    """State and batch, with two numbers in an array that are far from the others, one below 0."""

    def apart(name: str, array: Any) -> Any:
        found = np.array(array)
        for sign, index in zip((1, -1), rng.permutation(found.size)[:2], strict=True):
            found.flat[int(index)] = sign * 10 ** rng.uniform(*FAR_NUMBERS[name])
        return found

    momentum = {key: apart("momentum", array) for key, array in state["momentum"].items()}
    params = {key: apart(key, state["params"][key]) for key in ("w1", "b1")}
    changed = {"params": state["params"] | params, "momentum": momentum}
    placed: tuple[Any, Any] = _copied((state | changed, tuple(apart("batch", x) for x in batch)))
    return placed


def _with_blank_row(rng: Any, state: Any, batch: Any) -> tuple[Any, Any]:
    """State and batch, in which b1 and a row of the batch are 0, so that the row has no error."""
    state["params"]["b1"] = 0 * state["params"]["b1"]
    arrays = [np.array(array) for array in batch]
    row = int(rng.integers(len(arrays[0])))
    for array in arrays:
        array[row] = 0
    placed: tuple[Any, Any] = _copied((state, tuple(arrays)))
    return placed


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Trace, export and run `step`, if it is what jax.jit returns."""
    step = submission.step
    if not observe.jitted("step", step):
        return
    first_run = bool(rng.integers(2))
    seeds = rng.integers(1 << 32, size=2)
    for what in (_run_all, _trace_all) if first_run else (_trace_all, _run_all):
        what(step, observe, draw(int(seeds[int(what is _run_all)]), named(rng)))


def _trace_all(step: Any, observe: Observe, rng: Any) -> None:
    """Trace and export `step` for each size."""
    found = []
    few = rng.permutation([FEWEST_ROWS, ROWS, ROWS])
    sizes = [*zip(WIDTHS, few, strict=True), ((WIDTHS[0][0], WIDTHS[-1][1]), MANY_ROWS)]
    ordered = [sizes[index] for index in rng.permutation(len(sizes))]
    most = [(WIDTHS[1], (MORE_ROWS[1] - 1, MORE_ROWS[1]))] if named(rng) else []
    for number, size in enumerate([*ordered, (WIDTHS[1], MORE_ROWS), *most], 1):
        width, rows = (among(rng, ends) for ends in size)
        if size[0] == WIDTHS[-1]:
            width = beyond(rng, width, MOST_WIDTH, each=FEATURES)
        width = FEATURES if number == len(sizes) + 1 else width
        with observe.unwatched():
            state = _state(rng, width, _count(rng, *(COUNTS if number > 2 else SMALLER)))
            drawn = _batch(rng, rows, size=rng.uniform(*INPUTS))
            if tuple(size[1]) == MANY_ROWS:
                state, drawn = _with_blank_row(beside(rng), state, drawn)
            if rows > MANY:
                state, drawn = _with_far_numbers(rng, state, drawn)
            batch = (list if number % 2 else tuple)(drawn)
        traced = step.trace(state, batch)
        new_state, _ = unpack(traced.out_info, 2, PROMISE)
        found.append(_traced(traced, state, new_state, rows))
        observe.program(facts.program(number), step, state, batch)
    observe.fact(TRACED, msgspec.to_builtins(found))


def _count(rng: Any, least: int, most: int) -> int:
    """A number from `least` to `most`; each magnitude is as likely.

    Every second time, one that a number of the file divides, if there is any.
    """
    usual = int(math.exp(rng.uniform(math.log(least), math.log(most))))
    round_count = _round(rng, most) or usual
    return round_count if round_count != usual and rng.integers(2) else usual


def _round(rng: Any, most: int) -> int:
    """A count up to `most` that a number of the file divides, or 0."""
    meant = [int(number) for number in named(rng) if 2 <= number < most]
    divisor = int(rng.choice(meant)) if meant else 0
    return divisor * int(rng.integers(1, most // divisor + 1)) if divisor else 0


def _run_all(step: Any, observe: Observe, rng: Any) -> None:
    """Run `step` many times, twice; it is compiled once."""
    runs = []
    round_count, width = ROUND * int(rng.integers(1, 6)), int(rng.integers(*RUN_WIDTH))
    round_count = _round(rng, COUNTS[1]) or round_count
    rows, kind = int(rng.integers(*RUN_ROWS)), (list, tuple)[int(rng.integers(2))]
    width = one_of(rng, width, range(*RUN_WIDTH))
    rows = one_of(rng, rows, range(*RUN_ROWS))
    for number, span in enumerate(rng.permutation(LENGTHS), 1):
        steps = int(rng.integers(*span))
        steps = beyond(rng, steps, MOST_STEPS) if steps >= facts.LONG else steps
        with observe.unwatched():
            count = round_count - int(rng.integers(steps)) if number == 2 else 0
            state = _state(rng, width, count)
            drawn = [kind(_batch(rng, rows)) for _ in range(int(rng.integers(*BATCHES)))]
            batches = [drawn[index % len(drawn)] for index in range(steps)]
            if steps < LENGTHS[0][1]:
                batches[-1] = kind(_batch(rng, rows, apart=True))
        runs.append(_run(step, observe, number, state, batches))
    observe.fact(RUNS, msgspec.to_builtins(runs))


def _run(step: Any, observe: Observe, number: int, state: Any, batches: list[Any]) -> Run:
    """One run, of a step for each batch.

    It ends where a new state is built otherwise than the old one.
    """
    run, losses = Run(len(batches), 0, 0, 0), []
    before = [jax.tree.map(np.array, batch) for batch in batches]
    for index, kept in enumerate(before):
        batch = batches[index]
        old, places, form = jax.tree.leaves(state), _places(state), _shapes(state)
        state, lost = unpack(step(state, batch), 2, PROMISE)
        with observe.unwatched():
            jax.block_until_ready((state, lost))
            if _shapes(state) != form:
                return run
            if not isinstance(lost, jax.Array):
                raise Misused(PROMISE, f"its losses are {called(lost)}, and no array")
            run.alive += not all(array.is_deleted() for array in old)
            run.moved += not set(_places(state)) <= set(places)
            run.batch_lost += not _same(batch, kept)
            if run.batch_lost:
                batches = [_copied(batch) for batch in before]
            losses.append(np.array(lost))
    observe.value(facts.losses(number), np.stack(losses))
    observe.value(facts.last_state(number), state)
    return run


def _places(tree: Any) -> list[int | None]:
    """What tells the buffers of a state that a step returned from others."""
    arrays = jax.tree.leaves(tree)
    if any(not isinstance(array, jax.Array) for array in arrays):
        raise Misused(PROMISE, "the state holds something that is no jax.Array")
    return [address(array.addressable_data(0)) for array in arrays]


def _same(batch: Any, before: Any) -> bool:
    """Whether a batch can still be read, and has the numbers that it had."""
    pairs = zip(jax.tree.leaves(batch), jax.tree.leaves(before), strict=True)
    return all(not now.is_deleted() and np.array_equal(now, old) for now, old in pairs)


def _traced(traced: Any, state: Any, new_state: Any, rows: int) -> Traced:
    """What a `jax.stages.Traced` shows."""
    arrays = jax.tree.leaves(state)
    donated = [leaf.donated for leaf in jax.tree.leaves(traced.lower().args_info)]
    inside = [equation.params.get("donated_invars", ()) for equation in traced.jaxpr.eqns]
    return Traced(
        rows=rows,
        old_state=_shapes(state),
        new_state=_shapes(new_state),
        state_bytes=sum(array.nbytes for array in arrays),
        state_donated=any(donated[: len(arrays)]),
        batch_donated=any(donated[len(arrays) :]),
        donated_inside=any(any(arguments) for arguments in inside),
        uses_the_host=uses_host_memory(traced.jaxpr.jaxpr),
    )


def _weak(leaf: Any) -> str:
    """`weakly typed `, if an array is, or what stands for one."""
    return facts.WEAKLY * bool(getattr(leaf, "weak_type", False))


def _shapes(tree: Any) -> dict[str, str]:
    """Path -> `float32[16,512]`, or `weakly typed float32[16,512]`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {
        jax.tree_util.keystr(path): f"{_weak(leaf)}{leaf.dtype}[{','.join(map(str, leaf.shape))}]"
        for path, leaf in leaves
    }
