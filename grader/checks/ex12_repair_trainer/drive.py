"""Drives ex12_repair_trainer: exports `step`, calls it with two keys, and trains three times.

`train` gets a jitted step, whatever the learner's `step` is, so that a fault in `step` hides none
in `train`. All three runs are judged. One is long, one starts from the same key, so that the same
keys must come out, and one from another key. The long run holds each step until the next one is
called (`grader.stages.held`), so a wait is found that no probe sees. Three more runs are watched
and judged as the others, but their steps train nothing, and give one of two models in turn, so that
hundreds of them cost little; the last batch has fewer rows; of hundreds of batches, some come again
in the end; the losses are of all sizes, one is infinite, and the last one is NaN. `step` is
exported for batches of another size, too, with labels of another dtype, and called once with a row
of NaN. `train` is called twice more with a step, or batches, that raise an error.

Drawn: the steps of each run (60 to 99, 3 to 19, 20 to 59; 1, one of SAME_SIZES, 100 to 259, and 530
to 699), the rows of a batch (of the other size, one of SAME_SIZES), all numbers, of which one in
each array of the model is 0, the seeds of the keys, how many batches come again, the row of NaN,
and which device is the default one in the first run; in the second it is the other one, and
likewise in later ones; in the last one nobody has set it. So code that names a device names the
wrong one at least once. Keys begin with 0, as those of PRNGKey do, but for one. No run that trains
has 100 steps: JAX compiles a program for each hundred elements of an array that Python iterates
over, such as keys. Where the file names numbers, the longest run that trains nothing has more steps
than each of them, or twenty times as many, up to MOST_STEPS; and of the batches of the other size,
the rows are more, up to MOST_ROWS, and an input is larger, up to LARGEST.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import jax
import msgspec
import numpy as np

from grader.checks.ex12_repair_trainer.facts import (
    AGAIN,
    COMPILES,
    HIDES,
    LONG,
    LOSS_AFTER,
    LOSS_MOVED,
    LOSS_OF_NAN,
    MANY,
    MODEL_OF_NAN,
    MOVES,
    OTHER,
    OTHER_ROWS,
    WAITED,
)
from grader.checks.ex12_repair_trainer.trainer import (
    MODEL,
    STEP,
    Training,
    in_order,
    many_steps,
    one_loss,
    train,
    unlike,
)
from grader.probes.observe import Misused, Observe, unpack
from grader.stages.drawn import beside, beyond, far, named
from grader.stages.failing import hidden
from grader.stages.held import Held

SAME_SIZES = (4, 16, 32, 128)
"""Rows or steps whose arrays would have the size of an array of the model, in bytes."""
SOME_STEPS = {LONG: (60, 100), AGAIN: (3, 20), OTHER: (20, 60)}
"""From how many steps on, and below how many, each run has."""
MANY_STEPS = ((100, 260), (530, 700))
"""From how many batches on, and below how many, the runs have that train nothing, and one more.
Before them come one of a single step, and one of as many steps as no run has that trains."""
MOST_STEPS, MOST_ROWS, LARGEST = 3000, 4096, 1000
"""Up to where steps, rows and inputs reach the numbers that the file names."""


def _model(submission: ModuleType, rng: Any, batch: Any) -> Any:
    """Parameters, state and optimizer state, as drawn NumPy arrays."""
    key = jax.ShapeDtypeStruct((2,), "uint32")
    params, state = jax.eval_shape(submission.network.init, key, batch[0])
    shapes = params, state, jax.eval_shape(submission.optimizer.init, params)

    def draw(shape: Any) -> Any:
        drawn = rng.standard_normal(shape.shape) / 4
        drawn.flat[int(rng.integers(drawn.size))] = 0
        return drawn.astype(shape.dtype)

    return jax.tree.map(draw, shapes)


def _batch(rng: Any, rows: int) -> Any:
    """NumPy inputs (rows, 16) float32 and labels (rows,) int32."""
    inputs = (1 + rng.standard_normal((rows, 16))).astype("float32")
    return inputs, rng.integers(0, 4, rows).astype("int32")


def _moves(before: Any, mean: Any, after: Any) -> int:
    """How often the mean in the state `before` was moved towards `mean` to give `after`; or -1."""
    for moves in range(3):
        if _near(before, after):
            return moves
        before = jax.tree.map(lambda x: 0.9 * x + 0.1 * mean, before)
    return -1


def _near(one: Any, other: Any) -> bool:
    """Whether two trees hold about the same numbers."""
    mine, theirs = jax.tree.leaves(one), jax.tree.leaves(other)
    alike = [np.shape(leaf) for leaf in mine] == [np.shape(leaf) for leaf in theirs]
    return alike and all(map(np.allclose, mine, theirs))


def _other_than(rng: Any, low: int, high: int) -> int:
    """A number from `low` on and below `high`, but none of SAME_SIZES."""
    numbers = [number for number in range(low, high) if number not in SAME_SIZES]
    return int(rng.choice(numbers))


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Export `step`, call it with two keys, and train three times."""
    rows = _other_than(rng, 20, 40)
    lengths = {run: _other_than(rng, *ends) for run, ends in SOME_STEPS.items()}
    batches = [_batch(rng, rows) for _ in range(lengths[LONG])]
    keys = rng.integers(0, 1 << 32, (3, 2)).astype("uint32")
    keys[1:, 0] = 0
    model, apart = _model(submission, rng, batches[0]), beside(rng)
    first, second = rng.permutation(jax.devices())[:2]
    step = submission.step if observe.jitted("step", submission.step) else jax.jit(submission.step)
    for index in range(2):
        exported = observe.program("step", submission.step, model, keys[index], batches[index])
    other = beyond(rng, int(apart.choice(SAME_SIZES)), MOST_ROWS, each=16)
    with observe.unwatched():
        inputs, labels = _batch(apart, other)
        inputs[0, 0] += far(apart, LARGEST)
        of_other_rows = inputs, labels.astype("uint8")
    observe.fact(OTHER_ROWS, [rows, other])
    observe.program(OTHER_ROWS, submission.step, model, keys[0], of_other_rows)
    is_unlike = unlike(exported)
    if observe.reference:
        with observe.unwatched():
            (params, state, opt_state), _ = step(model, keys[0], batches[0])
            after = [(params, one, opt_state) for one in (model[1], state)]
            observe.value(LOSS_AFTER, [step(one, keys[0], batches[0])[1] for one in after])
            moved = model[0], state, model[2]
            observe.value(LOSS_MOVED, [step(moved, keys[0], batches[0])[1]])
    with jax.default_device(first), observe.unwatched():
        for index in range(2):
            after, loss = unpack(step(*jax.device_put((model, keys[index])), batches[0]), 2, STEP)
            if isinstance(after, jax.Array) and isinstance(loss, tuple | list):
                raise Misused(STEP, "it returned (loss, model)")
            one_loss(loss)
            observe.value(f"loss with key {index}", loss)
            in_order(unpack(after, 3, MODEL), model)
            observe.fact(MOVES, _moves(model[1], batches[0][0].mean(0), after[1]))
        inputs, labels = batches[0]
        lost = np.where(np.arange(rows)[:, None] == apart.integers(rows), np.float32("nan"), inputs)
        after, loss = unpack(step(*jax.device_put((model, keys[0])), (lost, labels)), 2, STEP)
        observe.value(LOSS_OF_NAN, loss)
        params, _, opt_state = unpack(after, 3, MODEL)
        observe.value(MODEL_OF_NAN, [params, opt_state])
    observe.fact("batch bytes", [array.nbytes for array in batches[0]])
    last = _batch(rng, rows // 2)
    observe.fact("bytes of the last batch", [array.nbytes for array in last])
    observe.fact("model bytes", sorted({leaf.nbytes for leaf in jax.tree.leaves(model)}))
    ends = []
    for name, key, default in (
        (LONG, keys[2], first),
        (AGAIN, keys[2], second),
        (OTHER, keys[2] + np.array([0, 1], "uint32"), first),
    ):
        with jax.default_device(default):
            with observe.unwatched():
                held = Held() if name == LONG and jax.default_backend() == "cpu" else None
            taken = batches[: lengths[name]]
            training = Training(observe, step, taken, held, is_unlike, named(rng))
            ends.append(train(submission.train, observe, name, training, (model, key)))
            if held is not None:
                observe.fact(WAITED, held.waited)
    if jax.default_backend() != "cpu":
        observe.fact(WAITED, [])
    # The last of these runs is where nobody has set a default device.
    other = jax.default_device(max(first, second, key=lambda device: device.id))
    for name, key, place, (many, losses) in zip(
        MANY, keys[[0, 0, 1, 2]], (other, other, other, nullcontext()), _many(rng), strict=True
    ):
        start, taken = (model, key), [*_views(rng, many, rows), last]
        with place:
            done = many_steps(submission.train, observe, name, start, taken, losses)
        observe.fact(name, msgspec.to_builtins(done))
    for end in ends:
        end()
    with jax.default_device(first), observe.unwatched():
        observe.fact(HIDES, _hides_errors(submission, step, (model, keys[0]), batches[:3]))


def _hides_errors(
    submission: ModuleType, step: Any, start: tuple[Any, Any], batches: list[Any]
) -> list[str]:
    """Of what `train` hides an error: of `step`, of `batches`."""
    return hidden(
        lambda step, some: submission.train(step, *jax.device_put(start), some), step, batches
    )


def _views(rng: Any, many: int, rows: int) -> Iterator[Any]:
    """`many` batches of `rows` rows each. Of hundreds, the first ones come again in the end."""
    inputs, labels = _batch(rng, many + rows)
    again = int(beside(rng).integers(1, many // 2)) if many >= MANY_STEPS[0][0] else 0
    for i in (*range(many - again), *range(again)):
        yield inputs[i : i + rows], labels[i : i + rows]


def _many(rng: Any) -> list[tuple[int, Any]]:
    """For each run that trains nothing, how many batches it has before the last, and its losses."""
    few = int(rng.choice([number for number in SAME_SIZES if number < MANY_STEPS[0][0]])) - 1
    steps = [0, few, *(int(rng.integers(*ends)) for ends in MANY_STEPS)]
    steps[-1] = beyond(rng, steps[-1], MOST_STEPS, each=1 / COMPILES)
    return [(many, _losses(rng, many)) for many in steps]


def _losses(rng: Any, many: int) -> Any:
    """One more than `many` losses, float32, of all sizes. One is infinite, and the last one NaN."""
    losses = rng.standard_normal(many + 1) * 10 ** rng.uniform(-3, 30, many + 1)
    losses[: many and 1], losses[-1] = np.inf, np.nan
    rng.shuffle(losses[:-1])
    return losses.astype("float32")
