"""Times two compiled programs side by side, and checks the outputs of the timed runs.

A window is a number of calls on secret inputs. The inputs are ready before the clock
starts, and every output is there before it stops. The outputs of one call of each window,
chosen at random, are compared with the reference program's on the same inputs: a program
that is fast because it is wrong is caught in the run in which it was fast.
The verdict comes from `grader.judging.timing`.
"""

import math
import random
import time
from collections import deque
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from grader.judging import timing
from grader.program.loading import Refused
from grader.program.measuring import Built, run
from grader.program.placing import host, wait
from grader.records.record import Leaf, Timing

Arrays = tuple[jax.Array, ...]

IN_FLIGHT = 16
"""Calls that may run ahead of the oldest unfinished one; bounds memory for outputs."""
_BATCH = 32
_RELATIVE = {"bfloat16": 2e-2, "float16": 5e-3}


class Answers:
    """What the reference program returns for each set of inputs."""

    def __init__(self, reference: Built, sets: Sequence[Sequence[Leaf]]) -> None:
        self._outputs = [run(reference, reference.place(inputs)) for inputs in sets]

    def difference(self, index: int, outputs: Sequence[jax.Array]) -> str:
        """How outputs for one set of inputs differ, in words; empty if they agree."""
        expected = self._outputs[index]
        if len(outputs) != len(expected):
            return f"it returns {len(outputs)} arrays, the reference {len(expected)}"
        for number, (mine, theirs) in enumerate(zip(outputs, expected, strict=True)):
            if text := _difference(mine, theirs):
                return f"in a timed run on secret inputs, result {number} {text}"
        return ""


def _difference(mine: jax.Array, theirs: jax.Array) -> str:
    if mine.shape != theirs.shape:
        return f"has shape {mine.shape}, the reference's {theirs.shape}"
    rtol = max(_RELATIVE.get(str(array.dtype), 1e-3) for array in (mine, theirs))
    close = _close(host(mine), host(theirs), rtol)
    if close.all():
        return ""
    return f"differs from the reference's in {np.sum(~close)} of {close.size} values"


def _close(mine: "NDArray[Any]", theirs: "NDArray[Any]", rtol: float) -> "NDArray[np.bool_]":
    # Sums in another order leave errors in proportion to the largest terms.
    finite = np.abs(theirs[np.isfinite(theirs)])
    atol = rtol * float(finite.max(initial=0.0))
    close: NDArray[np.bool_] = np.isclose(mine, theirs, rtol=rtol, atol=atol, equal_nan=True)
    return np.atleast_1d(close)


class Windows:
    """Timed windows of one program; `difference` describes the first wrong output."""

    def __init__(
        self, built: Built, sets: Sequence[Sequence[Leaf]], answers: Answers, rng: random.Random
    ) -> None:
        self._built = built
        self._inputs = [built.place(inputs) for inputs in sets]
        self._answers = answers
        self._rng = rng
        self.difference = ""

    def window(self, calls: int, /) -> float:
        """Run `calls` calls; returns the wall time of all of them, in seconds."""
        first = self._rng.randrange(len(self._inputs))
        order = [(first + call) % len(self._inputs) for call in range(calls)]
        arguments = self._prepare(order)
        kept = self._rng.randrange(calls)
        seconds, outputs = _timed(self._built.compiled, arguments, kept)
        self.difference = self.difference or self._answers.difference(order[kept], outputs)
        return seconds

    def _prepare(self, order: Sequence[int]) -> list[Arrays]:
        """Arguments of every call; what a call donates is a copy of its own."""
        if not self._built.loaded.donated:
            return [self._inputs[index] for index in order]
        stocks = [self._copies(index, order.count(index)) for index in range(len(self._inputs))]
        return [self._with_copies(index, stocks[index].pop()) for index in order]

    def _copies(self, index: int, count: int) -> list[Arrays]:
        originals = tuple(self._inputs[index][i] for i in self._built.loaded.donated)
        batches = [self._copy(originals) for _ in range(math.ceil(count / _BATCH))]
        return wait([copies for batch in batches for copies in batch])

    @cached_property
    def _copy(self) -> Any:
        shardings = tuple(self._built.in_shardings[i] for i in self._built.loaded.donated)
        return jax.jit(
            lambda arrays: [tuple(map(jnp.copy, arrays)) for _ in range(_BATCH)],
            out_shardings=[shardings] * _BATCH,
        )

    def _with_copies(self, index: int, copies: Arrays) -> Arrays:
        arguments = list(self._inputs[index])
        for position, copy in zip(self._built.loaded.donated, copies, strict=True):
            arguments[position] = copy
        return tuple(arguments)


def _timed(program: Any, arguments: Sequence[Arrays], kept: int) -> tuple[float, Arrays]:
    pending: deque[Arrays] = deque()
    wanted: Arrays = ()
    start = time.perf_counter_ns()
    for call, values in enumerate(arguments):
        outputs = program(*values)
        pending.append(outputs)
        if call == kept:
            wanted = outputs
        if len(pending) > IN_FLIGHT:
            wait(pending.popleft())
    wait(list(pending))
    return (time.perf_counter_ns() - start) / 1e9, wanted


def compare(
    submission: Built,
    reference: Built,
    sets: Sequence[Sequence[Leaf]],
    *,
    k: float,
    rng: random.Random,
    max_seconds: float = 20.0,
) -> Timing:
    """Test whether the submission takes at most `k` times the reference.

    `sets` are sets of flat inputs with their values. The control that must fail is the
    reference, run often enough to be clearly slower.

    Raises:
      Refused: a program failed, or outputs of a timed run were wrong.
      ValueError: `k` is too near to 1 (see `timing.with_controls`).
    """
    answers = Answers(reference, sets)
    mine = Windows(submission, sets, answers, rng)
    theirs = Windows(reference, sets, answers, rng)
    try:
        result = timing.with_controls(
            mine.window,
            theirs.window,
            timing.repeated(theirs.window, math.ceil(k * k)),
            k=k,
            rng=rng,
            max_seconds=max_seconds,
        )
    except jax.errors.JaxRuntimeError as error:
        raise Refused(f"it fails in a timed run: {error}") from error
    if mine.difference:
        raise Refused(mine.difference)
    return result
