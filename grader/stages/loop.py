"""What a training loop works with, staged: batches, slow reads, `put`, `step` and `stop`.

A `Book` gives these out, and writes down what was called in which order. Each call is a
mark, so that a read of a loss, which only a probe sees, has its place between the calls.
A batch is known by its arrays, whatever tuple or list they come in. Nothing here depends on
speed, and nothing knows JAX: the drive says how a batch is placed. What the calls mean is for
`grader.judging.loops` to say.
"""

import functools
import inspect
import itertools
import math
import operator
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from grader.judging.loops import Call
from grader.probes.observe import Observe
from grader.stages.drawn import far


class Future:
    """A read under way; `result()` calls `waited`, and waits for it."""

    def __init__(self, batch: Any, ready: float, waited: Callable[[], None]) -> None:
        self._batch, self._ready, self._waited = batch, ready, waited

    def done(self) -> bool:
        """Whether `result()` would return at once."""
        return time.perf_counter() >= self._ready

    def result(self, timeout: float | None = None) -> Any:
        """The batch. `timeout` is accepted as by any future, but a read never fails."""
        self._waited()
        time.sleep(max(0.0, self._ready - time.perf_counter()))
        return self._batch

    def cancel(self) -> bool:
        """False: a read that has begun cannot be cancelled."""
        return False

    def cancelled(self) -> bool:
        """Never."""
        return False

    def exception(self, timeout: float | None = None) -> None:
        """Wait, as `result()` does, and return None: a read never fails."""
        self.result(timeout)


ODD = (0.0, -1.0, 1e6, math.inf, math.nan)
"""By what the losses of some steps are multiplied: a loop goes on until `stop` ends it."""
LONG = 16
"""From so many steps on, a run has such losses."""
MOST, BESIDE = 1e30, 1e3
"""Up to which number losses are drawn that are further from 0 than those that a file names, and by
how much more, as a loss is about 1 or less."""


def odd_losses(rng: Any, steps: int) -> dict[int, float]:
    """At which of so many steps, from 0, the loss is another one, and by what it is multiplied.

    The first one is not. NaN comes once by itself, and once at several steps in a row. Where the
    submission names numbers, two losses are further from 0 than most of these.
    """
    if steps < LONG:
        return {}
    apart, large = rng.spawn(1)[0], BESIDE * far(rng, MOST)
    by = (*ODD, large, -large) if large else ODD
    odd = dict(zip(apart.permutation(range(1, steps))[: len(by)].tolist(), by, strict=True))
    own = apart.spawn(1)[0]
    row, begin = int(own.integers(2, LONG // 2)), int(own.integers(1, steps - LONG // 2))
    return odd | dict.fromkeys(range(begin, begin + row), math.nan)


def with_losses(step: Callable[..., Any], odd: Mapping[int, float]) -> Callable[..., Any]:
    """`step`, for one run, whose last result is multiplied at the calls that `odd` names."""
    numbers = itertools.count()

    @functools.wraps(step)
    def stepped(*given: Any) -> Any:
        *results, loss = step(*given)
        number = next(numbers)
        return *results, loss * odd[number] if number in odd else loss

    return stepped


class Book:
    """Gives out the functions that `train` works with, and writes down each call of them.

    `alive` counts the bytes of the arrays that are alive. It is called as each step begins, and
    what was alive before the first call of any is left out, and the losses, which are kept here.
    """

    def __init__(
        self,
        observe: Observe,
        batches: list[Any],
        step: Callable[..., Any],
        place: Callable[[Any], Any],
        alive: Callable[[], int] = lambda: 0,
    ) -> None:
        self._observe, self._batches, self._step, self._place = observe, batches, step, place
        self._indices = {_identities(batch): index for index, batch in enumerate(batches)}
        self._signature = inspect.signature(step)
        self._alive, self._before = alive, alive()
        self._more: list[int] = []
        self._given: list[tuple[int, list[Callable[[], Any]]]] = []
        self._aged: list[tuple[int, int]] = []
        self._placed: list[tuple[list[Callable[[], Any]], int]] = []
        self._losses: list[Any] = []
        self._told: list[tuple[int, str, str]] = []
        self.calls: list[Call] = []
        self.last: list[Any] = []
        """What the last step returned, but for its loss."""

    def _note(self, what: str, index: int) -> None:
        self.calls.append((what, index))
        self._observe.mark()

    def ask(self, i: int) -> Future:
        """A read that is done at once: here only the order counts.

        Raises:
          IndexError: there is no such batch.
          TypeError: `i` is no integer.
        """
        index = operator.index(i)
        self._note("ask", index)
        last = len(self._batches) - 1
        if not 0 <= index <= last:
            raise IndexError(f"batch {index} was asked for; there are batches 0 to {last}")
        batch = self._batches[index]
        return Future(batch, 0.0, lambda: self._note("wait", index))

    def reads(self) -> Iterator[Any]:
        """The batches, one by one, as an iterator that reads them would give them."""
        for index, batch in enumerate(self._batches):
            self._note("read", index)
            yield batch

    def put(self, batch: Any) -> Any:
        """Place a batch; -1 is noted for one whose arrays are not those that were read."""
        arrays = _arrays(batch)
        index = self._indices.get(_identities(batch), -1)
        if index == -1:
            found = (i for i, known in enumerate(self._batches) if _equal(_arrays(known), arrays))
            index = next(found, -1)
        self._note("put", index)
        placed = self._place(batch)
        # A book that held the batches would hide who else holds them.
        self._placed.append(([_reference(array) for array in _arrays(placed)], index))
        return placed

    def step(self, *given: Any, **named: Any) -> Any:
        """One step: batch and loss come last. -1 is noted for a batch that `put` did not return."""
        arguments = self._signature.bind(*given, **named).args
        arrays = _arrays(arguments[-1])
        index = next((i for placed, i in self._placed if _same(placed, arrays)), -1)
        self._note("step", index)
        own = sum(getattr(loss, "nbytes", 0) for loss in self._losses)
        self._more.append(self._alive() - self._before - own)
        self._note_age(arguments)
        results = self._step(*arguments)
        *self.last, loss = results
        self._losses.append(loss)
        return results

    def _note_age(self, arguments: tuple[Any, ...]) -> None:
        """Note where something is alive that a step was given before the last one.

        What the first step is given belongs to the caller of `train` as well.
        """
        number = len(self._losses)
        alive = [(step, [ref for ref in refs if ref() is not None]) for step, refs in self._given]
        self._given = [(step, refs) for step, refs in alive if refs]
        self._aged += [(number, step) for step, _ in self._given if step < number - 1][:1]
        if number:
            leaves = [leaf for leaf in _leaves(arguments) if hasattr(leaf, "is_deleted")]
            self._given.append((number, list(map(_reference, leaves))))

    def stopping(self, last: int) -> Callable[[Any], Any]:
        """A `stop` that ends the run after step number `last`, counted from 0.

        If that is odd, it returns bools of NumPy's, as comparisons of NumPy's numbers give them.
        """
        answer = np.bool_ if last % 2 else bool

        def stop(loss: Any) -> Any:
            steps = len(self._losses)
            # If the loss is a device array, float() reads it here, inside the loop.
            self._told.append((steps - 1, type(loss).__name__, str(float(loss))))
            self._note("stop", len(self._told) - 1)
            return answer(steps > last)

        return stop

    def keep(self, name: str) -> None:
        """Keep the facts of a run: its calls, each step's loss, and what `stop` was given."""
        with self._observe.unwatched():
            losses = [str(float(loss)) for loss in self._losses]  # no fact is NaN
        self._observe.fact(f"calls of {name}", self.calls)
        self._observe.fact(f"losses in {name}", losses)
        self._observe.fact(f"told in {name}", self._told)
        self._observe.fact(f"alive in {name}", self._more)
        self._observe.fact(f"aged in {name}", self._aged)


def _arrays(batch: Any) -> list[Any]:
    """What lies in the tuples and lists of a batch, in order."""
    if type(batch) in (tuple, list):
        return [array for part in batch for array in _arrays(part)]
    return [batch]


def _leaves(tree: Any) -> list[Any]:
    """What lies in the tuples, lists and dicts of a tree."""
    parts = tree.values() if isinstance(tree, dict) else tree
    inner = isinstance(tree, tuple | list | dict)
    return [leaf for part in parts for leaf in _leaves(part)] if inner else [tree]


def _identities(batch: Any) -> tuple[int, ...]:
    """Which objects the arrays of a batch are."""
    return tuple(map(id, _arrays(batch)))


def _reference(array: Any) -> Callable[[], Any]:
    """What returns `array` as long as somebody else holds it, where its type allows that."""
    try:
        return weakref.ref(array)
    except TypeError:
        return lambda: array


def _same(known: list[Callable[[], Any]], given: list[Any]) -> bool:
    """Whether `known` refers to the objects that are given."""
    return len(known) == len(given) and all(
        ref() is array for ref, array in zip(known, given, strict=True)
    )


def _equal(known: list[Any], given: list[Any]) -> bool:
    """Whether both hold the same objects, or NumPy arrays of equal dtype, shape and values."""
    return len(known) == len(given) and all(map(_equal_arrays, known, given))


def _equal_arrays(known: Any, given: Any) -> bool:
    if known is given:
        return True
    if not type(known) is type(given) is np.ndarray or known.dtype != given.dtype:
        return False
    return bool(np.array_equal(known, given))
