"""Drives ex27_prefetch: trains under observation, and in timed windows.

Runs are watched of fewer batches than may be asked for at once, of just as many, of some more, and
of more than a hundred. `stop` ends others: one at each of the first steps, when few batches are
left; one at any step, and one of more than a hundred batches later. It answers with bools of
Python's in some runs, and with NumPy's in others. Drawn are the number of batches of each run, the
steps at which `stop` ends the last two, and two sizes of network and batch, of which each run takes
one. In runs of 16 steps and more, some losses are 0, below 0, large, infinite or NaN, whatever the
step made. Where the file names numbers, the long run has more batches than each of them that is
below MOST_BATCHES, two short runs have more rows and a wider network, and some counts of batches
are numbers of the file. A `Book` gives out `ask`, `put`, `step` and `stop`, and writes down the
order of their calls. That order does not depend on speed: only the timed runs do, whose reads take
as long as three steps. A watched step is held on its device until the next batch is put, so that a
loop that waits first is found by whatever means it waits. At each call of `stop`, the calls of
Python that are under way are counted: a loop that is a recursion goes deeper at each step. No read
is done where a loop asks for the first time whether it is. In two runs more, a batch cannot be
read: the first one, and a later one, which is drawn.
"""

import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import jax
import numpy as np

from grader.checks.ex27_prefetch.facts import AHEAD, GIVEN_LAST, HIDES, READ_IN_STEPS, depths
from grader.judging.words import plural
from grader.probes import alive
from grader.probes.devices import is_next_door
from grader.probes.observe import Observe, Stretch, unpack
from grader.stages.ahead import Ahead
from grader.stages.busy_step import staged
from grader.stages.drawn import beside, beyond, named, one_of
from grader.stages.failing import Failed, returns
from grader.stages.loop import Book, Future, odd_losses, with_losses

MOST_BATCHES, MOST_STOPPED, MOST_ROWS, MOST_WIDTH = 1100, 300, 10_000, 10_000
"""Up to where the runs reach the numbers that the file names; the second one holds for the last of
those that `stop` ends."""
STOPPED = 6
"""After each of so many first steps, `stop` ends a run."""
PROMISE = "`train` returns (params, losses)"


def _parameters(rng: Any, width: int) -> dict[str, Any]:
    """float32 parameters of the two-layer network; (16, width), (width,), (width, 4).

    They are small in a wide one, where steps of 0.05 would be too long for others.
    """
    shapes, scale = {"w1": (16, width), "b1": (width,), "w2": (width, 4)}, max(8, width / 256)
    drawn = {k: (rng.standard_normal(s) / scale).astype(np.float32) for k, s in shapes.items()}
    placed: dict[str, Any] = jax.device_put(drawn, jax.devices()[0])
    return placed


def _batch(rng: Any, rows: int) -> tuple[Any, Any]:
    """One batch in NumPy: inputs (rows, 16), targets (rows, 4), float32."""
    inputs = rng.standard_normal((rows, 16)).astype(np.float32)
    return inputs, np.tanh(inputs[:, :4])


def _put(batch: Any) -> Any:
    return jax.device_put(batch, jax.devices()[0])


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Train once for each run, and keep the results and the calls of each."""
    runs = _runs(rng)
    observe.fact("runs", {name: count for name, (count, _) in runs.items()})
    sizes = [(int(width), int(rows)) for width, rows in rng.integers(9, 49, (2, 2))]
    nbytes: dict[str, tuple[int, int]] = {}
    results: dict[str, tuple[Any, ...]] = {}
    rows = beyond(rng, sizes[0][1], MOST_ROWS, each=16)
    width = beyond(rng, sizes[0][0], MOST_WIDTH, each=16)
    sizes_of = dict(zip(runs, ((sizes[0][0], rows), (width, sizes[0][1])), strict=False))
    for name, (count, last) in runs.items():
        width, rows = sizes[rng.integers(2)]
        if name in sizes_of and named(rng):
            width, rows = sizes_of[name]
        params = _parameters(rng, width)
        batches = [_batch(rng, rows) for _ in range(count)]
        before = alive.nbytes()
        odd = odd_losses(rng, min(count, last))
        ahead = Ahead(with_losses(submission.sgd_step, odd), _put, count)
        book = Book(observe, batches, ahead.step, ahead.place, partial(alive.nbytes, scalars=True))
        nbytes[name] = _nbytes(batches[0]), _nbytes(params)
        deep: list[int] = []
        stop = _counted(book.stopping(last), deep)
        step, given = _remembered(book.step) if observe.reference else (book.step, [])
        with observe.phase(name):
            trained = submission.train(step, params, count, _late(book.ask), book.put, stop)
        results[name] = *unpack(trained, 2, PROMISE), book.last
        if given:
            observe.value(f"params after {name}, {GIVEN_LAST}", given.pop())
        book.keep(name)
        observe.fact(depths(name), deep)
        observe.fact(f"waited in {name}", ahead.waited())
        ahead.end()
        del ahead, book, stop, step  # what they hold is not what the loop keeps
        observe.fact(f"left after {name}", alive.left_beside(results[name], before))
    observe.fact("bytes of a batch and of params", nbytes)
    for name, (params, losses, last) in results.items():  # now: a list may have been filled again
        observe.value(f"params after {name}", params)
        observe.value(f"losses of {name}", losses)
        observe.value(f"last in {name}", last[0] if last else None)
    with observe.unwatched():
        observe.fact(HIDES, _hides(submission, beside(rng)))


class _Late(Future):
    """A read that is not done yet where that is asked for the first time."""

    def __init__(self, read: Future) -> None:
        self._read, self._asked = read, False

    def done(self) -> bool:
        before, self._asked = self._asked, True
        return before

    def result(self, timeout: float | None = None) -> Any:
        return self._read.result(timeout)


def _late(ask: Callable[[int], Future]) -> Callable[[int], Future]:
    """`ask`, whose reads are late."""

    def asked(i: int) -> Future:
        return _Late(ask(i))

    return asked


def _remembered(step: Callable[..., Any]) -> tuple[Callable[..., Any], list[Any]]:
    """`step`, and a list in which the params are that it was given last."""
    given: list[Any] = []

    def remembering(params: Any, batch: Any) -> Any:
        given[:] = [params]
        return step(params, batch)

    return remembering, given


def _hides(submission: ModuleType, rng: Any) -> bool:
    """Whether `train` returns though a batch cannot be read: the first one, or a later one."""
    later, more = map(int, rng.integers((1, 0), (2 * AHEAD, AHEAD)))
    return any(_hides_one(submission, rng, bad, more) for bad in (0, later))


def _hides_one(submission: ModuleType, rng: Any, bad: int, more: int) -> bool:
    """Whether it returns though this batch cannot be read, which `more` are to follow."""
    batch, start = _batch(rng, 1), jax.device_put(np.float32(0))

    def waited(index: int) -> None:
        if index == bad:
            raise Failed

    def ask(i: int) -> Future:
        return Future(batch, 0.0, partial(waited, i))

    def step(params: Any, batch: Any) -> Any:
        return params, start

    given = step, start, bad + 1 + more, ask, _put, lambda _: False
    return returns(submission.train, *given)


def _counted(stop: Callable[[Any], Any], deep: list[int]) -> Callable[[Any], Any]:
    """`stop`, which adds to `deep` how many calls are under way when it is called."""

    def counted(loss: Any) -> Any:
        deep.append(sum(1 for _ in traceback.walk_stack(sys._getframe())))
        return stop(loss)

    return counted


def _nbytes(tree: Any) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


def _runs(rng: Any) -> dict[str, tuple[int, int]]:
    """The name of each run, its number of batches, and the step after which `stop` ends it."""
    few, some, many = map(int, rng.integers((1, 5, 100), (AHEAD, 16, 131)))
    some, many = one_of(rng, some, range(5, 16)), beyond(rng, many, MOST_BATCHES)
    runs = {plural(count, "batch"): (count, count) for count in (some, few, AHEAD, many)}
    for last in range(STOPPED):
        more = last + int(rng.integers(2, AHEAD + 2))
        runs[f"{more} batches, stopped early after {plural(last + 1, 'step')}"] = more, last
    some, late = map(int, rng.integers((16, 100), (100, 131)))
    some, late = one_of(rng, some, range(16, 100)), one_of(rng, late, range(100, MOST_STOPPED))
    runs[f"{some} batches, stopped later"] = some, int(some ** rng.uniform(0.5, 0.95))
    runs[f"{late} batches, stopped later"] = late, int(rng.integers(16, late - 1))
    return runs


def _paced(submission: ModuleType, rng: Any) -> tuple[Callable[..., Any], Any, list[Any]]:
    """A step that takes some milliseconds, its parameters and NumPy batches."""
    on_cpu = jax.default_backend() == "cpu"
    width, rows = (24, 32) if on_cpu else (32768, 8192)
    step = submission.sgd_step if is_next_door() or not on_cpu else staged(submission.sgd_step)
    return step, _parameters(rng, width), [_batch(rng, rows) for _ in range(2)]


def seconds_of_a_step(submission: ModuleType, rng: Any) -> float:
    """Seconds one step takes now, with its batch on the device and its loss read."""
    step, params, batches = _paced(submission, rng)
    placed = _put(batches)
    jax.block_until_ready(step(params, placed[0]))
    start = time.perf_counter()
    for batch in placed:
        params, loss = step(params, batch)
        float(loss)
    return (time.perf_counter() - start) / len(placed)


def pace(submission: ModuleType, stretch: Stretch) -> Callable[[], list[float]]:
    """A run of some steps whose reads each take as long as three steps.

    A sleep stands for the disk: the host has nothing to do, and the device could work. A loop
    that reads ahead takes as long as its steps. A loop that reads, copies and computes one
    after the other takes four times as long. The first read is not counted, because every loop
    waits for it.
    """
    step, params, batches = _paced(submission, stretch.rng)

    def ask(i: int) -> Future:
        now = time.perf_counter()
        return Future(batches[i % 2], now + READ_IN_STEPS * stretch.unit, lambda: None)

    def run() -> list[float]:
        _, losses = submission.train(step, params, stretch.steps, ask, _put, _never)
        return [float(loss) for loss in losses]

    return run


def _never(loss: float) -> bool:
    """A `stop` that ends nothing."""
    del loss
    return False


def naive(step: Any, params: Any, count: int, ask: Any, put: Any, stop: Any) -> Any:
    """The loop this exercise is about: it reads, copies and computes one after the other."""
    losses: list[float] = []
    for index in range(count):
        params, loss = step(params, put(ask(index).result()))
        losses.append(float(loss))
        if stop(losses[-1]):
            break
    return params, losses
