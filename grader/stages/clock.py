"""Programs whose costs are known, and a clock that counts nothing else.

The clock moves only by what a program is said to cost. A call costs its dispatch, and the
first one also costs compiling. An argument that is not on the device costs a copy, and so does
one of which nobody knew, when the clock was read last, that it had got there. The work is added
when the clock is read, if the result is there by then. The programs are real: a timer that does
not wait for one reads the clock before it is done. Drives give these to a learner's timer; what
the timer should have found is judged by the exercise's checks.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from grader.probes import private

SIDE = 128
BUSY_SECONDS = 0.02
"""The real program takes at least this long: many times what a call and a reading take."""


class Staged:
    """A program and its clock.

    Hand out the two methods, never the object: it knows the answers.
    `cost` gives seconds on the clock: "work", "dispatch" and "compiling" of one call,
    "copy" of one argument. `rounds` is how long the real program runs (see `rounds()`).
    The work of each call is multiplied by the next of `shares`, which start again after the
    last. Of the results, which are called `names`, the last one takes long; with `swapped`, the
    first one. They are of `dtypes`, in turn. The clock tells `begins` when it is first read.
    """

    def __init__(
        self,
        cost: Mapping[str, float],
        rounds: int,
        shares: Sequence[float] = (1.0,),
        swapped: bool = False,
        names: Sequence[str] = ("left", "middle", "right"),
        dtypes: Sequence[Any] = (np.float32,),
        begins: float | None = None,
    ) -> None:
        self.cost, self.shares, self.names = dict(cost), shares, names
        self._dtypes = [dtypes[n % len(dtypes)] for n in range(len(names))]
        self._rounds, self._swapped = rounds, swapped
        self._now = 1000.0
        self._begins, self._apart = begins, 0.0
        self._calls = self._traces = 0
        self._polls = self._polled = 0
        """Polls since the last call, now and at the last reading of the clock."""
        self._traced = self._in_numpy = False
        self._pending: list[tuple[dict[str, Any], float, tuple[Any, ...]]] = []
        """Results that were not yet there when the clock was read; work and arguments of each."""
        self._running = 0
        """How many results were not there at the last reading."""
        self._awaited: list[Any] = []
        """Arrays for which somebody has waited."""
        self._placed: list[Any] = []
        """Arrays that were known to be on the device at the last reading, or were copied since."""
        self._readings: list[int] = []
        """The number of calls before each reading of the clock."""
        self._quick, self._slow = (
            jax.jit(function, static_argnames="dtype") for function in (self._short, self._long)
        )

    @property
    def history(self) -> tuple[int, int, int, bool, int, bool]:
        """How the clock and the program were used, as six values.

        They are the readings of the clock, the calls between the first reading and the last,
        the calls still running at the last, whether a call was traced, the polls between the
        last reading and the call before it, and whether a call got a NumPy array after the first.
        """
        calls = self._readings[-1] - self._readings[0] if self._readings else 0
        return len(self._readings), calls, self._running, self._traced, self._polled, self._in_numpy

    def timed_again(self, shares: Sequence[float]) -> None:
        """Forget what was timed before: the next timing of the same program begins."""
        self.shares = shares
        self._calls = self._polls = self._polled = self._running = 0
        self._traced = self._in_numpy = False
        for kept in (self._pending, self._awaited, self._placed, self._readings):
            kept.clear()

    @contextmanager
    def counting_polls(self) -> Iterator[None]:
        """Count calls of an array's `is_ready` inside the block: polling is a way to wait."""

        def before(_: Any) -> private.After:
            self._polls += 1
            return lambda done: None

        restore = private.wrap(private.array_type(), ("is_ready",), before)
        try:
            yield
        finally:
            restore()

    def arrived(self, arrays: Sequence[Any]) -> None:
        """Note that these arrays are known to be on the device."""
        self._awaited += arrays

    def is_there(self, array: Any) -> bool:
        """Whether an array is done, without a poll that counts."""
        polls = self._polls
        try:
            return bool(array.is_ready())
        except RuntimeError:  # it was deleted
            return False
        finally:
            self._polls = polls

    def arguments(
        self, rng: Any, count: int = 3, dtypes: Sequence[Any] = (np.float32,), rows: int = SIDE
    ) -> Any:
        """NumPy arrays (SIDE, SIDE) of `dtypes`, in turn, whose products stay small.

        The first one has `rows`, SIDE or more. The program takes SIDE of them.
        """
        sizes = [rows, *[SIDE] * (count - 1)]
        drawn = np.split(rng.standard_normal((sum(sizes), SIDE)), np.cumsum(sizes)[:-1])
        kinds = [np.dtype(dtypes[n % len(dtypes)]) for n in range(count)]
        pairs = zip(drawn, kinds, strict=True)
        return tuple((x / SIDE if kind.kind == "f" else x > 1).astype(kind) for x, kind in pairs)

    def program(self, *arguments: Any) -> dict[str, Any]:
        """Results, one of which takes long. Call it like a jitted function."""
        traces = self._traces
        result = self._run(*arguments)
        if any(isinstance(array, jax.core.Tracer) for array in result.values()):
            self._traced = True  # what is traced may close over its arguments
            return result
        work = self.cost["work"] * self.shares[self._calls % len(self.shares)]
        self._pending.append((result, work, arguments))
        self._calls += 1
        self._polls = 0
        self._now += self.cost["dispatch"]
        if self._traces > traces:
            self._now += self.cost["compiling"]
        for argument in arguments:
            if self._is_copied(argument):
                self._now += self.cost["copy"]
        return dict(result)

    def _run(self, *arguments: Any) -> dict[str, Any]:
        left, right = arguments[0], arguments[-1]
        *dtypes, last = self._dtypes[::-1] if self._swapped else self._dtypes
        # The short ones go first: they must not wait for the other.
        short = [
            self._quick(arguments[n % len(arguments)], right, dtype=dtype)
            for n, dtype in enumerate(dtypes)
        ]
        found = [*short, self._slow(left, right, self._rounds, dtype=last)]
        return dict(zip(self.names, found[::-1] if self._swapped else found, strict=True))

    def _short(self, left: Any, right: Any, *, dtype: Any) -> Any:
        self._traces += 1  # this line runs only while JAX traces
        return (_small(left)[0] @ _small(right)).astype(dtype)

    def _long(self, left: Any, right: Any, rounds: int, *, dtype: Any) -> Any:
        left, right = _small(left), _small(right)
        return jax.lax.fori_loop(0, rounds, lambda _, x: x @ right, left).astype(dtype)

    def _is_copied(self, argument: Any) -> bool:
        """Whether an argument is copied now, or was copied since the clock was last read."""
        if not isinstance(argument, jax.Array):
            self._in_numpy |= bool(self._readings)
            return True
        new = bool(self._readings) and not any(argument is array for array in self._placed)
        self._placed.append(argument)
        return new

    def clock(self) -> float:
        """The staged time, in seconds."""
        polls = self._polls
        ready = [all(a.is_ready() for a in result.values()) for result, *_ in self._pending]
        self._polls = polls  # the polls in the line above were not the timer's
        # A device works in order: if a result is there, all the calls before it are done.
        done = max((number for number, there in enumerate(ready, 1) if there), default=0)
        self._now += sum(work for _, work, _ in self._pending[:done])
        self._placed += [x for *_, args in self._pending[:done] for x in args] + self._awaited
        self._awaited = []
        del self._pending[:done]
        self._running = len(self._pending)
        self._polled = polls
        self._readings.append(self._calls)
        if self._begins is not None:
            self._apart, self._begins = self._begins - self._now, None
        return self._now + self._apart


def _small(array: Any) -> Any:
    """SIDE rows of an argument as float32, small enough to be multiplied often."""
    array = array[:SIDE].real
    whole = not jax.numpy.issubdtype(array.dtype, np.floating)
    return array.astype(np.float32) / (SIDE if whole else 1)


def rounds() -> int:
    """How many rounds keep the real program busy for BUSY_SECONDS, here and now."""
    program = Staged({}, 32)
    inputs = jax.device_put(program.arguments(np.random.default_rng(0)))

    def seconds() -> float:
        start = time.perf_counter()
        jax.block_until_ready(program._run(*inputs))
        return time.perf_counter() - start

    seconds()  # compiles
    # Noise only adds time: the shortest of three is nearest to what the program takes.
    while min(seconds() for _ in range(3)) < BUSY_SECONDS:
        program._rounds *= 2
    return program._rounds
