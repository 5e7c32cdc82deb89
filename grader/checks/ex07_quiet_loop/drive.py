"""Drives ex07_quiet_loop: trains four times under observation, and in timed windows.

Drawn: the steps of the watched runs (2 to 39, and 110 to 159, in any order, then 40 to 109, and at
last 1), the width of the network and the rows of a batch of the first two (the others have those of
the first), for each of them a batch that comes twice in turn, and a factor by which `step`
multiplies the loss, so that no other function gives its numbers; and all numbers, also those of the
timed runs. In every second run the factor is negative. In the third run some losses are no number,
infinite with either sign, large or small, two in turn are 0 and -0.0, and the params have one more
array, of a drawn name. Where the file names numbers, the long run has more steps than each of them
that is below MOST_STEPS, the short one a wider network, and the third one more rows and losses
further from 0. A run counts its steps, because a read after the last step is no stall. What `step`
returned is kept, too: no rounding is in it. After each run, the caller's params are looked at. In
two of the runs, the batches come from a generator, and in two from an iterator that is none. What
all runs return is looked at when they have ended, so a list that is filled again later shows. The
long run holds its first and its last steps until the next one is called (`grader.stages.held`), so
a wait is found that no probe sees. In the timed runs, preparing a batch takes the host three
quarters of a step: this is what a loop that does not wait can hide. In two more runs, the second
step raises, or the batches do.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from string import ascii_lowercase
from types import ModuleType
from typing import Any

import jax
import numpy as np

from grader.checks.ex07_quiet_loop import facts
from grader.checks.ex07_quiet_loop.facts import PREPARING
from grader.probes.describe import same_numbers
from grader.probes.devices import is_next_door
from grader.probes.observe import Misused, Observe, Stretch, own_list, unpack
from grader.stages.busy_step import staged
from grader.stages.drawn import among, beside, beyond, far
from grader.stages.failing import hidden
from grader.stages.held import Held

PROMISE = "`train` returns (params, losses)"
GIVEN = "`train` leaves the params that it is given as they are"
OWN_LIST = "each call of `train` returns a list of its own"
LENGTHS, BETWEEN = ((2, 40), (110, 160)), (40, 110)
"""From how many steps on, and below how many, the first watched runs have, and the third one.

The last one has a single step.
"""
ODD = (np.nan, np.inf, -np.inf, 1e6, -1e6, 1e-6, -1e-30)
"""What single losses of the third run are multiplied by; and 0 and -0.0, in turn."""
WIDTHS, ROWS = (96, 256), (2, 120)
"""Each array of the params holds more bytes than the losses of twenty steps may be read as."""
MOST_STEPS, MOST_ROWS, MOST_WIDTH = 2000, 8192, 8192
"""Up to where the runs reach the numbers that the file names."""
HELD = (LENGTHS[-1][1], 60)
"""How many steps at the beginning of the long run are held, and how many at its end."""


def _parameters(rng: Any, width: int) -> dict[str, Any]:
    """float32 parameters of the two-layer network; (16, width), (width,), (width, 4).

    They are small in a wide one, where steps of 0.05 would be too long for others.
    """

    def draw(*shape: int) -> Any:
        return (rng.standard_normal(shape) / max(8, width / 256)).astype(np.float32)

    placed: dict[str, Any] = jax.device_put(
        {"w1": draw(16, width), "b1": draw(width), "w2": draw(width, 4)}
    )
    return placed


def _batch(rng: Any, rows: int) -> tuple[Any, Any]:
    """One batch on the device: inputs (rows, 16), targets (rows, 4), float32."""
    inputs = rng.standard_normal((rows, 16)).astype(np.float32)
    placed: tuple[Any, Any] = jax.device_put((inputs, np.tanh(inputs[:, :4])))
    return placed


class _Run:
    """Hands out the batches and the step of one watched run, and counts what is taken."""

    def __init__(
        self,
        submission: ModuleType,
        observe: Observe,
        rng: Any,
        factors: Any,
        width: int,
        rows: int,
        *,
        more: bool,
    ) -> None:
        steps = len(factors)
        self._own = _parameters(rng, width)
        names = ["".join(rng.choice([*ascii_lowercase], 6))] if more else []
        self._more = {name: jax.device_put(rng.random(3, np.float32)) for name in names}
        self.params = self._own | self._more
        self._before: list[tuple[str, Any]] = [*self.params.items()]
        self._batches = [_batch(rng, rows) for _ in range(steps)]
        twice = rng.integers(1, max(steps, 2))
        if twice < steps:
            self._batches[twice] = self._batches[twice - 1]
        self._observe, self._sgd_step = observe, submission.sgd_step
        self._factors = factors
        self._gave: list[Any] = []
        self.last = self.params
        """The params that the last step returned."""
        self._stepped: list[Any] = []
        self._fed: list[tuple[Any, Any]] = []
        """The params that each step got, and those that the step before returned."""
        self._taken = self.calls = self.ahead = 0
        self.held = None
        if steps >= LENGTHS[-1][0] and jax.default_backend() == "cpu":
            with observe.unwatched():
                self.held = Held()

    def batches(self) -> Iterator[Any]:
        """The batches, counted as they are taken."""
        for batch in self._batches:
            self._taken += 1
            yield batch
        if self.held is not None:
            self.held.release()

    def never_fed_back(self) -> list[float]:
        """The losses of steps that all begin with the first params."""
        found = [self._sgd_step(self._own, batch)[1] for batch in self._batches]
        return [float(_times(*both)) for both in zip(found, self._factors, strict=True)]

    def missed(self) -> list[int]:
        """The numbers of the batches with which `step` was not called."""
        taken = {id(batch) for batch in self._stepped}
        return [number for number, one in enumerate(self._batches) if id(one) not in taken]

    def altered(self) -> list[int]:
        """The steps, from 0, that got other numbers than the step before returned."""
        return [n for n, both in enumerate(self._fed) if not same_numbers(*both)]

    def look_at_given(self) -> None:
        """Look whether the caller still has its params as they were.

        Raises:
          Misused: some were deleted, replaced or put in.
        """
        now = self.params
        same = {name for name, one in self._before if now.get(name) is one}
        gone = [name for name, one in self._before if name not in same or one.is_deleted()]
        changed = [*gone, *(now.keys() - dict(self._before).keys())]
        if changed:
            named = ", ".join(f"`params[{name!r}]`" for name in changed)
            raise Misused(GIVEN, f"it deletes, replaces or puts in {named}")

    def gave(self) -> list[float]:
        """The losses that `step` returned."""
        return [float(loss) for loss in self._gave]

    def step(self, params: Any, batch: Any) -> Any:
        """One step, marked; the loss is multiplied by the factor.

        Raises:
          Misused: it was called while something that holds the loop is compiled.
        """
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((params, batch))):
            raise Misused("`train` calls `step` with arrays, once for each batch", TRACED)
        self.ahead = max(self.ahead, self._taken - self.calls)
        self._observe.mark()
        self.calls += 1
        self._stepped.append(batch)
        self._fed.append((params, self.last))
        if self._more:  # the file's own step does not know them
            params = {name: array for name, array in params.items() if name not in self._more}
        params, loss = self._sgd_step(params, batch)
        params = params | self._more
        with self._observe.unwatched():
            loss = _times(loss, self._factors[(self.calls - 1) % len(self._factors)])
            result = self._held((params, loss))
            self._gave.append(result[1])
            self.last = result[0]
            return result

    def _held(self, result: tuple[Any, Any]) -> tuple[Any, Any]:
        """(params, loss) of a step, held if it is one of those that are."""
        if self.held is None:
            return result
        if HELD[0] < self.calls <= len(self._factors) - HELD[1]:
            self.held.let_go()
            return result
        return self.held.hold(result)


TRACED = "it calls it with tracers: the loop is compiled, by scan or jit, as part of something else"


@jax.jit
def _times(loss: Any, factor: Any) -> Any:
    return loss * factor


def _factors(rng: Any, steps: int, usual: float, odd: Sequence[float]) -> Any:
    """By what each loss is multiplied: `usual`, or once each of `odd`, and 0 and -0.0 in turn."""
    factors = np.full(steps, usual, np.float32)
    if odd:
        zero = int(rng.integers(steps - 1))
        factors[zero : zero + 2] = 0, -0.0
        others = [number for number in range(steps) if number not in (zero, zero + 1)]
        factors[rng.permutation(others)[: len(odd)]] = odd
    return factors


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Train over several sizes, and mark each step: a late read is told from an early one."""
    runs, waited, results = list[_Run](), list[int](), list[tuple[str, Any]]()
    spans = [*rng.permutation(LENGTHS), BETWEEN]
    lengths, sign = [*(among(rng, span) for span in spans), 1], rng.choice([-1, 1])
    sizes = [(among(rng, WIDTHS), among(rng, ROWS)) for _ in LENGTHS]
    long = lengths.index(max(lengths))
    lengths[long] = beyond(rng, lengths[long], MOST_STEPS)
    sizes.append((sizes[0][0], beyond(rng, sizes[0][1], MOST_ROWS, each=16)))
    sizes[1 - long] = beyond(rng, sizes[1 - long][0], MOST_WIDTH, each=16), sizes[1 - long][1]
    generators = beside(rng).permutation([True, True, False, False]).tolist()
    for steps, (width, rows) in zip(lengths, [*sizes, sizes[0]], strict=True):
        sign, third = -sign, len(runs) == len(LENGTHS)
        usual, large = sign * rng.uniform(0.5, 2), far(rng, 1e30)
        odd = [*ODD, *([large, -large] if large else [])] if third else []
        factors = _factors(rng, steps, usual, odd)
        run = _Run(submission, observe, rng, factors, width, rows, more=third)
        try:
            with observe.phase(facts.phase(steps)):
                batches = run.batches() if generators.pop() else chain(run.batches())
                returned = submission.train(run.step, run.params, batches)
        finally:
            if run.held is not None:
                run.held.release()
        params, losses = unpack(returned, 2, PROMISE)
        run.look_at_given()
        own_list(losses, [tree for _, tree in results], OWN_LIST)
        results += [(f"losses of {steps}", losses), (f"params after {steps}", params)]
        if observe.reference:
            with observe.unwatched():
                observe.value(f"losses of {steps}, {facts.NOT_FED_BACK}", run.never_fed_back())
        runs.append(run)
        waited += run.held.waited if run.held is not None else []
    for name, tree in results:
        observe.value(name, tree)
    with observe.unwatched():
        for steps, run in zip(lengths, runs, strict=True):
            observe.value(facts.gave(steps), run.gave())
            observe.value(facts.last(steps), run.last)
        observe.fact(facts.ALTERED, [run.altered()[:1] for run in runs])
    observe.fact(facts.RUNS, lengths)
    observe.fact(facts.CALLS, [run.calls for run in runs])
    observe.fact(facts.MISSED, [run.missed() for run in runs])
    observe.fact(facts.AHEAD, [run.ahead for run in runs])
    observe.fact(facts.WAITED, waited)
    with observe.unwatched():
        observe.fact(facts.HIDES, _hides_errors(submission, rng))


def _hides_errors(submission: ModuleType, rng: Any) -> list[str]:
    """Of what `train` hides an error: of `step`, of `batches`."""
    params, batches = _parameters(rng, WIDTHS[0]), [_batch(rng, ROWS[0]) for _ in range(3)]
    train = submission.train
    return hidden(lambda step, some: train(step, params, some), submission.sgd_step, batches)


def _timed(submission: ModuleType, rng: Any) -> tuple[Callable[..., Any], Any, list[Any]]:
    """A step that keeps the device busy for some milliseconds, its parameters and batches."""
    on_cpu = jax.default_backend() == "cpu"
    # Always the same sizes: a window must not compile, and holds as much work as another.
    width, rows = (24, 32) if on_cpu else (32768, 8192)
    params, batches = _parameters(rng, width), [_batch(rng, rows) for _ in range(2)]
    step = submission.sgd_step if is_next_door() or not on_cpu else staged(submission.sgd_step)
    return step, params, batches


def seconds_of_a_step(submission: ModuleType, rng: Any) -> float:
    """Seconds one step takes now, on this machine under this load."""
    step, params, batches = _timed(submission, rng)
    jax.block_until_ready(step(params, batches[0]))
    start = time.perf_counter()
    for batch in batches:
        params, loss = step(params, batch)
    jax.block_until_ready((params, loss))
    return (time.perf_counter() - start) / len(batches)


def pace(submission: ModuleType, stretch: Stretch) -> Callable[[], list[float]]:
    """A run of some steps, before each of which the host prepares a batch.

    Any loop spends that time, so it is not counted. What is left is the wait for the device:
    a quarter of a step where the two overlap, a whole step where they do not.
    """
    step, params, ready = _timed(submission, stretch.rng)
    taken = []

    def batches() -> Iterator[Any]:
        # As if a file or a socket were read: the host waits, and the device could work.
        for index in range(stretch.steps):
            time.sleep(PREPARING * stretch.unit)
            taken.append(index)
            yield ready[index % 2]
        time.sleep(PREPARING * stretch.unit)  # finding out that there is no more takes as long

    def run() -> list[float]:
        _, losses = submission.train(step, params, batches())
        return [float(loss) for loss in losses] + [float(len(taken))]

    return run


def naive(step: Any, params: Any, batches: Any) -> Any:
    """The loop this exercise is about: it waits once for each step."""
    losses = []
    for batch in batches:
        params, loss = step(params, batch)
        losses.append(float(loss))
    return params, losses
