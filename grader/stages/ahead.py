"""Holds each step of a loop on its device until the next batch is put, if there is one.

A loop that puts the next batch before it waits never notices, by whatever means it waits: see
`grader.stages.held`, which holds the steps. What the loop calls is given out by
`grader.stages.loop`. Steps are held on CPU devices only, and in a run of very many batches the
first and the last ones alone: while it is held, a step takes a while of the device.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax

from grader.probes.devices import is_next_door
from grader.stages.held import Held

ENDS = 150
"""So many steps are held from the first one on, and so many up to the last one."""


class Ahead:
    """Holds the steps of one run of `count` batches.

    `step` is called as the function that is given, under the same names of its parameters.
    """

    def __init__(self, step: Callable[..., Any], place: Callable[[Any], Any], count: int) -> None:
        self._held = Held() if jax.default_backend() == "cpu" and not is_next_door() else None
        self._step, self._place, self._left = step, place, count
        self.step = functools.wraps(step)(lambda *given: self._held_step(*given))
        self._steps = self._puts = 0
        self._between = range(ENDS, count - ENDS)
        self._numbers: list[int] = []

    def place(self, batch: Any) -> Any:
        """A batch on the device."""
        self._puts += 1
        self._left -= 1
        if self._held:
            (self._held.let_go if self._left else self._held.release)()
        return self._place(batch)

    def _held_step(self, *given: Any) -> Any:
        """A step, held unless the next batch is on its way already; its loss comes last."""
        *results, loss = self._step(*given)
        self._steps += 1
        is_held = self._puts <= self._steps and self._steps - 1 not in self._between
        if self._held and is_held:
            self._numbers.append(self._steps - 1)
            results, loss = self._held.hold((results, loss))
        return *results, loss

    def end(self) -> None:
        """Leave no array behind: the run is over."""
        if self._held:
            self._held.end()

    def waited(self) -> list[int]:
        """The steps that the host waited for before it put the next batch."""
        return [self._numbers[index] for index in self._held.waited] if self._held else []
