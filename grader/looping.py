"""A training loop under watch: who called what, in which order, and when it waited.

The drive of an exercise gives out `ask`, `put`, `step` and `stop`. A `Book` writes down each
call, in order, and makes it a mark, so that a read of a loss, which only a probe sees, has
its place between the calls. Nothing here depends on speed, and nothing knows JAX: how a
batch is placed is the drive's.
"""

import math
import time
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from typing import Any

from grader.checking import Observe
from grader.evidence import events, seen
from grader.record import Event, Record

Call = tuple[str, int]
FLOATS = ("float", "float32", "float64")
"""Types of numbers on the host, Python's and NumPy's."""


class Future:
    """A read under way; `result()` waits for it, and tells `waited` so."""

    def __init__(self, batch: Any, ready: float, waited: Callable[[], None]) -> None:
        self._batch, self._ready, self._waited = batch, ready, waited

    def done(self) -> bool:
        """Whether `result()` would return at once."""
        return time.perf_counter() >= self._ready

    def result(self, timeout: float | None = None) -> Any:
        """The batch; `timeout` is there for the look of it, a read never fails."""
        self._waited()
        time.sleep(max(0.0, self._ready - time.perf_counter()))
        return self._batch

    def cancel(self) -> bool:
        """False, as of any read that has begun."""
        return False

    def cancelled(self) -> bool:
        """Never."""
        return False

    def exception(self, timeout: float | None = None) -> None:
        """Wait, as `result()` does: there is none."""
        self.result(timeout)


class Book:
    """Gives out the functions that `train` works with, and writes down who called what."""

    def __init__(
        self,
        observe: Observe,
        batches: list[Any],
        step: Callable[..., Any],
        place: Callable[[Any], Any],
    ) -> None:
        self._observe, self._batches, self._step, self._place = observe, batches, step, place
        self._placed: list[tuple[Any, int]] = []
        self._losses: list[Any] = []
        self._told: list[tuple[int, str, float]] = []
        self.calls: list[Call] = []

    def _note(self, what: str, index: int) -> None:
        self.calls.append((what, index))
        self._observe.mark()

    def ask(self, index: int) -> Future:
        """A read that is done at once: here only the order counts."""
        self._note("ask", index)
        if not 0 <= index < (count := len(self._batches)):
            there = f"there are batches 0 to {count - 1}"
            raise IndexError(f"batch {index} was asked for; {there}")
        batch = self._batches[index]
        return Future(batch, 0.0, lambda: self._note("wait", index))

    def reads(self) -> Iterator[Any]:
        """The batches, one by one, as an iterator that takes its time would give them."""
        for index, batch in enumerate(self._batches):
            self._note("read", index)
            yield batch

    def put(self, batch: Any) -> Any:
        """Copy a batch; -1 stands for one that was not read as it is."""
        index = next((i for i, known in enumerate(self._batches) if known is batch), -1)
        self._note("put", index)
        placed = self._place(batch)
        self._placed.append((placed, index))
        return placed

    def step(self, *arguments: Any) -> Any:
        """One step; batch and loss come last; -1 stands for one that `put` did not return."""
        batch = arguments[-1]
        index = next((i for placed, i in self._placed if placed is batch), -1)
        self._note("step", index)
        results = self._step(*arguments)
        self._losses.append(results[-1])
        return results

    def stopping(self, last: int) -> Callable[[Any], bool]:
        """A `stop` that ends the run after step number `last`, counted from 0."""

        def stop(loss: Any) -> bool:
            steps = len(self._losses)
            # float() reads a device array here, in the loop all the same.
            self._told.append((steps - 1, type(loss).__name__, float(loss)))
            self._note("stop", len(self._told) - 1)
            return steps > last

        return stop

    def keep(self, name: str) -> None:
        """Facts of the run: its calls, the loss of each step, and what `stop` was told."""
        with self._observe.unwatched():
            losses = [float(loss) for loss in self._losses]
        self._observe.fact(f"calls of {name}", self.calls)
        self._observe.fact(f"losses in {name}", losses)
        self._observe.fact(f"told in {name}", self._told)


def calls_of(record: Record, name: str) -> list[Call]:
    """The calls of one run, as `Book.keep` left them: fact `calls of {name}`."""
    return [(what, index) for what, index in seen(record).facts[f"calls of {name}"]]


def indices(calls: list[Call], what: str) -> list[int]:
    """The batches of all calls of one kind, in order."""
    return [index for kind, index in calls if kind == what]


def most_ahead(calls: list[Call], what: str) -> int:
    """The most batches at any time that were asked for, read or put, and got no step yet."""
    changes = ((kind == what) - (kind == "step") for kind, _ in calls)
    return max(accumulate(changes), default=0)


def early_step(calls: list[Call]) -> int | None:
    """The first step that began before `stop` was asked about the loss of the step before."""
    turns = [what for what, _ in calls if what in ("step", "stop")]
    for place, pair in enumerate(pairwise(turns), 1):
        if pair == ("step", "step"):
            return turns[:place].count("step")
    return None


def unjudged(record: Record, name: str) -> tuple[str, str] | None:
    """(expected, observed) where `stop` did not get each loss, a float, before the next step."""
    if (early := early_step(calls_of(record, name))) is not None:
        expected = f"`stop` judges the loss of step {early - 1} before step {early}"
        return expected, f"step {early} ran first (run of {name})"
    losses = seen(record).facts[f"losses in {name}"]
    for step, kind, value in seen(record).facts[f"told in {name}"]:
        same = [i for i, loss in enumerate(losses) if math.isclose(loss, value, rel_tol=1e-6)]
        if kind not in FLOATS or step not in same:
            got = f"the loss of step {same[0]}" if same else "a number that is no step's loss"
            got += "" if kind in FLOATS else f", of type `{kind}`"
            expected = f"after step {max(step, 0)}, `stop` gets its loss, a float"
            return expected, f"it got {got} (run of {name})"
    return None


def stalls(record: Record, name: str, count: int) -> Iterator[tuple[int, Event | None]]:
    """(step, read) where a loss was waited for while the next of `count` batches was not put.

    The read is None where only the call of `stop` tells of it.
    """
    calls = calls_of(record, name)

    def stalled(place: int) -> int | None:
        steps, puts = (len(indices(calls[:place], what)) for what in ("step", "put"))
        return steps - 1 if 0 < steps < count and puts <= steps else None

    reads = [e for e in events(seen(record), "d2h", "wait") if e.phase == name]
    places: list[tuple[int, Event | None]] = [(e.step, e) for e in reads]
    places += [(place, None) for place, (what, _) in enumerate(calls) if what == "stop"]
    for place, event in places:
        if (step := stalled(place)) is not None:
            yield step, event
