"""A training loop under watch: who called what, in which order, and when it waited.

The drive of an exercise gives out `ask`, `put`, `step` and `stop`. A `Book` writes down each
call, in order, and makes it a mark, so that a read of a loss, which only a probe sees, has
its place between the calls. Nothing here depends on speed, and nothing knows JAX: how a
batch is placed is the drive's.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

from grader.checking import Observe
from grader.evidence import events, seen
from grader.record import Event, Record

Call = tuple[str, int]


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
        """One step; the batch comes last; -1 stands for one that `put` did not return."""
        batch = arguments[-1]
        index = next((i for placed, i in self._placed if placed is batch), -1)
        self._note("step", index)
        return self._step(*arguments)

    def stopping(self, last: int) -> Callable[[Any], bool]:
        """A `stop` that ends the run at its call number `last`, counted from 0."""

        def stop(loss: Any) -> bool:
            float(loss)  # a device array would be read here, in the loop all the same
            self._note("stop", len([call for call in self.calls if call[0] == "stop"]))
            return self.calls[-1][1] >= last

        return stop


def calls_of(record: Record, name: str) -> list[Call]:
    """The calls of one run, as the drive kept them: fact `calls of {name}`."""
    return [(what, index) for what, index in seen(record).facts[f"calls of {name}"]]


def indices(calls: list[Call], what: str) -> list[int]:
    """The batches of all calls of one kind, in order."""
    return [index for kind, index in calls if kind == what]


def early_step(calls: list[Call]) -> int | None:
    """The first step that began before `stop` was asked about the loss of the step before."""
    steps = asked = 0
    for what, _ in calls:
        steps, asked = steps + (what == "step"), asked + (what == "stop")
        if steps > asked + 1:
            return steps - 1
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
