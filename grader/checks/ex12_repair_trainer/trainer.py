"""A run of `train`: what it calls `step` with, call by call, and what it returns.

Runs in a worker. What is right and what is wrong is for the checks to say.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import msgspec
import numpy as np

from grader.checks.ex12_repair_trainer.facts import (
    COMPILES,
    FILLED_AGAIN,
    LAST_LOST,
    Call,
    ManySteps,
    Run,
    through_host,
)
from grader.judging.words import typed
from grader.probes import dumped
from grader.probes.compiles import Compiles
from grader.probes.describe import address
from grader.probes.observe import Misused, Observe, unpack
from grader.probes.tally import Tally
from grader.records.record import Program
from grader.stages.held import Held

STEP = "`step` returns (model, loss)"
MODEL = "the model that `step` returns is (params, state, opt_state)"
TRAIN = "`train` returns (model, losses)"
ONCE = "`train` calls `step` once for each batch"
WRAPPED = "`step` is traced inside another jit: jax.jit belongs on `step` itself, outside `train`"
PARTS = 10
"""How many keys are split from a step's key, and how many are drawn with it. `fold_in` of a small
number gives one of the first."""
FOLDED = 64
"""So many numbers that the file names, at most, are folded into a step's key."""
KEYS = 128
"""So many keys, or a multiple, are split at once: one program does that for runs of any length."""


class Training:
    """One run. What `step` gets is copied on the device, and read only when the run is over."""

    def __init__(
        self,
        observe: Observe,
        step: Callable[..., Any],
        batches: list[Any],
        held: Held | None,
        is_unlike: Callable[[Any, Any], bool],
        named: Sequence[float],
    ) -> None:
        self._observe, self._step, self.batches, self.held = observe, step, batches, held
        self._is_unlike = is_unlike
        self._folded = [int(number) for number in named if PARTS <= number < 1 << 32]
        self._kept: list[Any] = []
        """(model, key, batch) of each call, and (model, loss) that it returned; all copies."""
        self._given: list[list[Any]] = []
        self._gave: list[list[Any]] = []
        self._taken_first = 0

    def take(self) -> Iterator[Any]:
        """The batches, one by one."""
        for batch in self.batches:
            self._taken_first += not self._kept
            yield batch
        if self.held is not None:
            self.held.release()

    def step(self, model: Any, key: Any, batch: Any) -> Any:
        """One step, marked and kept."""
        self._observe.mark()
        with self._observe.unwatched():
            leaves = jax.tree.leaves((model, key, batch))
            if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
                raise Misused(ONCE, WRAPPED)
            given = _copied((model, jax.random.key_data(key))), _on_host(batch)
            self._given.append(jax.tree.leaves(model))
        model, loss = unpack(self._step(model, key, batch), 2, STEP)
        one_loss(loss)
        with self._observe.unwatched():
            if self.held is not None:
                model, loss = self.held.hold((model, loss))
            self._kept.append((*given, *_copied((model, loss))))
            self._gave.append(jax.tree.leaves(model))
        return model, loss

    def run(self, start: Any, default: Any, returned: tuple[Any, Any], losses: Any) -> Run:
        """What the run did. `start` is the model it began with, `returned` what it returned.

        `losses` are those that it returned as they were at that time.
        """
        kept = jax.device_get(self._kept)
        numbers = {_bytes(batch): number for number, batch in enumerate(self.batches)}
        keys = np.array([key for (_, key), *_ in kept], np.uint32).reshape(len(kept), 2)
        padded = np.pad(keys, ((0, -len(keys) % KEYS), (0, 0)))
        numbers_folded = np.resize(np.array([*self._folded, 0], np.uint32), FOLDED)
        parts = _parts(padded, numbers_folded).tolist() if len(kept) else []
        calls, before = [], start
        for index, ((model, key), batch, after, loss) in enumerate(kept):
            goes_on = same(model, before)
            again = self._given[index] if index and goes_on else []
            calls.append(
                Call(
                    key=key.tolist(),
                    parts=parts[index],
                    batch=numbers.get(_bytes(batch)),
                    goes_on=goes_on,
                    copied=_moved(self._gave[index - 1], again),
                    place=place_of(self._kept[index][3]),
                    unlike_the_program=self._is_unlike((model, key, batch), (after, loss)),
                )
            )
            before = after
        given = [float(loss) for *_, loss in kept]
        problem = _problem((returned[0], losses), before, given)
        problem = problem or FILLED_AGAIN * (losses != _listed(returned[1]))
        return Run(len(self.batches), str(default), self._taken_first, calls, problem)


def one_loss(loss: Any) -> None:
    """Refuse a loss that is a tree.

    Raises:
      Misused: it is one.
    """
    if not isinstance(loss, jax.Array | np.ndarray | np.generic | float):
        observed = f"the loss is {_kind(loss)}, not one array"
        raise Misused(STEP, observed)


def in_order(model: Any, given: Any) -> None:
    """Refuse a model whose three parts stand in another order than in the one that was `given`.

    Raises:
      Misused: they do.
    """
    names = ("params", "state", "opt_state")
    forms: list[Any] = [jax.tree.structure(part) for part in given]
    found = [
        next((name for name, form in zip(names, forms, strict=True) if form == mine), "")
        for mine in map(jax.tree.structure, model)
    ]
    if sorted(found) == sorted(names) and tuple(found) != names:
        raise Misused(MODEL, f"it is ({', '.join(found)})")


class _Compiling(Exception):
    """A run compiles on and on."""


def many_steps(
    submitted: Callable[..., Any],
    observe: Observe,
    name: str,
    start: tuple[Any, Any],
    batches: list[Any],
    given: Any,
) -> ManySteps:
    """Run `submitted`, a `train`, over many batches, in the phase `name`; step i gives `given[i]`.

    The step that it calls trains nothing, gives one of two models in turn, and is no program, so
    that many of them take no time. A `train` that compiles on and on, which another check sees, is
    stopped: nothing is left then.
    """
    with observe.unwatched():
        model, key = jax.device_put(start)
        models = model, jax.device_put(jax.tree.map(lambda x: x + 1, start[0]))
        leaves, default = [jax.tree.leaves(one) for one in models], place_of(key)
        losses, before = jax.device_put([*given]), leaves[0]
    kept, places, copied = list[tuple[Any, Any]](), list[str](), list[int]()
    left, problem, end = 0, "", ""
    tally = Tally(lambda _: 0)
    tally.paused = False

    def step(model: Any, key: Any, batch: Any) -> Any:
        nonlocal before
        observe.mark()
        with observe.unwatched():
            if tally.total("compile") > COMPILES:
                raise _Compiling
            mine = jax.tree.leaves(model)
            if kept and _moved(before, mine):
                copied.append(len(kept))
            places.append(_elsewhere([key, *mine, *jax.tree.leaves(batch)], default) or default)
            before = leaves[(len(kept) + 1) % 2]
            kept.append((key, batch))
            return models[len(kept) % 2], losses[(len(kept) - 1) % len(losses)]

    with Compiles(tally), suppress(_Compiling):
        with observe.phase(name):
            answer = submitted(step, model, key, iter(batches))
        with observe.unwatched():
            left = len(batches) - len(kept)
            trained, mine = unpack(answer, 2, TRAIN)
            last = models[len(kept) % 2]
            problem = "" if left else _problem((trained, mine), last, given.tolist())
            end = _elsewhere(jax.tree.leaves(trained), default)
    with observe.unwatched():
        keys, got = jax.device_get(([jax.random.key_data(key) for key, _ in kept], kept))
        pairs = enumerate(zip(got, batches, strict=False))
        other = (i for i, ((_, mine), batch) in pairs if _bytes(mine) != _bytes(batch))
        words, told = [key.tobytes() for key in keys], [_bytes(batch) for _, batch in got]
        made, different = len({*words}), len({*told})
        by_the_batch = made == different == len({*zip(words, told, strict=True)}) < len(keys)
        first = next(other, None)
        return ManySteps(
            len(keys), default, made, by_the_batch, left, problem, first, places, copied, end
        )


_copied: Callable[[Any], Any] = jax.jit(lambda tree: jax.tree.map(lambda x: x + 0, tree))


def train(
    submitted: Callable[..., Any],
    observe: Observe,
    name: str,
    training: Training,
    start: tuple[Any, Any],
) -> Callable[[], None]:
    """Run `submitted`, a `train`, under observation, in the phase `name`.

    Kept under `name`: the place of the model that `train` returned, and how many programs it
    compiled that use the host's memory; and a `Run`, when what is returned here is called: after
    all runs, one of which may have changed what this one returned. `start` is (model, key) of NumPy
    arrays.

    Raises:
      Misused: `train` does not call `step` as it promises, or one of them returns something else.
    """
    with observe.unwatched():
        placed = jax.device_put(start)
        default = place_of(placed[1])
    try:
        with dumped.programs() as texts, observe.phase(name):
            answer = submitted(training.step, *placed, training.take())
    finally:
        if training.held is not None:
            training.held.release()
    through = sum(dumped.uses_the_host(text) and dumped.holds_arrays(text) for text in texts)
    observe.fact(through_host(name), through)
    model, losses = unpack(answer, 2, TRAIN)
    before = _listed(losses)
    observe.value(f"model of {name}", model, data=False)

    def end() -> None:
        with observe.unwatched():
            run = training.run(start[0], default, (model, losses), before)
        observe.fact(name, msgspec.to_builtins(run))

    return end


def unlike(program: Program) -> Callable[[Any, Any], bool]:
    """A function of what `step` was given and gave: whether the exported one gives other numbers.

    Only the numbers are compared, in their order, whatever trees they come in. Where nothing was
    exported, nothing is unlike it: another check says that.
    """
    if not program.blob:
        return lambda given, gave: False
    exported = jax.export.deserialize(bytearray(program.blob))
    call = jax.jit(exported.call)

    def is_unlike(given: Any, gave: Any) -> bool:
        leaves, mine = jax.tree.leaves(given), jax.tree.leaves(gave)
        if [np.size(x) for x in leaves] != [aval.size for aval in exported.in_avals]:
            return True
        pairs = zip(leaves, exported.in_avals, strict=True)
        flat = [np.asarray(x).astype(aval.dtype).reshape(aval.shape) for x, aval in pairs]
        args, kwargs = jax.tree.unflatten(exported.in_tree, flat)
        theirs = jax.tree.leaves(call(*args, **kwargs))
        if [np.shape(x) for x in mine] != [x.shape for x in theirs]:
            return True
        return not all(
            np.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True)
            for a, b in zip(mine, jax.device_get(theirs), strict=True)
        )

    return is_unlike


@jax.jit
def _parts(keys: Any, numbers: Any) -> Any:
    """The words of the keys (n, 2 * PARTS + FOLDED, 2) that come of `keys` (n, 2), uint32.

    PARTS come of splitting a key, as many of drawing words with it, two for each, and the others of
    folding in `numbers` (FOLDED,), uint32.
    """

    def of(key: Any) -> Any:
        drawn = jax.random.bits(key, (PARTS, 2), "uint32")
        folded = jax.vmap(lambda number: jax.random.fold_in(key, number))(numbers)
        return jnp.concatenate([jax.random.split(key, PARTS), drawn, folded])

    return jax.vmap(of)(keys)


def _elsewhere(leaves: Sequence[Any], default: str) -> str:
    """The first place of an array that is not on the device `default`; or "".

    Arrays of NumPy are nowhere.
    """
    places = (place_of(leaf) for leaf in leaves if isinstance(leaf, jax.Array))
    return next((place for place in places if place != default), "")


def place_of(array: Any) -> str:
    """Where an array lies, as `cpu:1`."""
    devices = sorted(array.devices(), key=lambda device: device.id)
    return f"{devices[0].platform}:{','.join(str(device.id) for device in devices)}"


def _on_host(batch: Any) -> Any:
    """The batch; arrays on a device are copied, since `train` may donate them."""
    return tuple(x if isinstance(x, np.ndarray) else _copied(x) for x in jax.tree.leaves(batch))


def _bytes(batch: Any) -> tuple[bytes, ...]:
    return tuple(np.asarray(array).tobytes() for array in jax.tree.leaves(batch))


def _moved(gave: list[Any], given: list[Any]) -> int:
    """How many arrays of a model lie elsewhere than they were returned. Donated ones do not."""
    pairs = zip(gave, given, strict=False)
    return sum(_buffer(a) != _buffer(b) for a, b in pairs if a is not b and not a.is_deleted())


def _buffer(array: Any) -> int | None:
    alive = isinstance(array, jax.Array) and not array.is_deleted()
    return address(array.addressable_data(0)) if alive else None


def _listed(losses: Any) -> Any:
    """The losses in a list of our own; what is no list stays what it is."""
    return [*losses] if isinstance(losses, list | tuple) else losses


def _problem(returned: Any, model: Any, losses: list[float]) -> str:
    """What is wrong with what `train` returned, or ""; the steps gave `model` and `losses`."""
    trained, mine = returned
    if not isinstance(mine, list | tuple):
        return f"the losses are {_kind(mine)}, not a list"
    for index, loss in enumerate(mine):
        if type(loss) is not float and not isinstance(loss, np.floating):
            return f"`losses[{index}]` is {_kind(loss)}, and a float is asked for"
    if len(mine) != len(losses):
        few = f"there are {len(mine)} losses, and {len(losses)} steps"
        return few + LAST_LOST * _are_these(mine, losses[:-1])
    for index, (loss, wanted) in enumerate(zip(mine, losses, strict=True)):
        if not np.array_equal(np.float32(loss), np.float32(wanted), equal_nan=True):
            return f"`losses[{index}]` is {loss:.9g}, and step {index} gave {wanted:.9g}"
    if not isinstance(trained, list | tuple) or len(trained) != 3:
        return f"the model is {_kind(trained)}, not (params, state, opt_state)"
    trees: list[Any] = [jax.tree.structure(tuple(tree)) for tree in (trained, model)]
    if trees[0] != trees[1]:
        return "the model is not built as the one that the last step gave"
    return "" if same(trained, model) else "the model is not the one that the last step gave"


def _are_these(mine: Sequence[Any], losses: Sequence[float]) -> bool:
    """Whether losses are those that the steps gave, in their order."""
    return np.array_equal(
        np.asarray(mine, np.float32), np.asarray(losses, np.float32), equal_nan=True
    )


def _kind(value: Any) -> str:
    """A value's type with its article; every jax.Array is called that."""
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return "a jax.Array" if isinstance(value, jax.Array) else typed(type(value).__name__)


def same(mine: Any, theirs: Any) -> bool:
    """Whether two trees hold the same numbers."""
    mine, theirs = jax.tree.leaves(mine), jax.tree.leaves(theirs)
    return len(mine) == len(theirs) and all(map(np.array_equal, mine, theirs))
