"""Counts what devices send each other inside of programs, each time that one runs.

A copy from device to device is in the log of JAX's transfer guard (`grader.probes.transfers`). What
the collectives of a compiled program move is in its text alone, and no log has it. It counts into a
`Tally`, and judges nothing.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Self
from weakref import WeakKeyDictionary

import jax
import numpy as np

from grader.probes import private
from grader.probes.private import Launched
from grader.probes.tally import Tally
from grader.records import hlo
from grader.records.record import Collective

EVERYTHING = 1 << 30
"""As so many rounds a loop of unknown length counts: it may send everything."""


class Programs:
    """The collectives of each program that was launched. A text is read once."""

    def __init__(self) -> None:
        self._known = WeakKeyDictionary[Any, list[Collective]]()

    def collectives(self, launched: Launched) -> list[Collective]:
        """Those of one program."""
        found = self._known.get(launched.program)
        if found is None:
            found = self._known[launched.program] = hlo.read(launched.text()).collectives
        return found


def nbytes(found: Sequence[Collective]) -> int:
    """The bytes that arrive on a device when a program with these collectives runs once."""
    return sum(one.nbytes * one.count * (one.runs or EVERYTHING) for one in found)


class Exchanges:
    """While entered, launches of programs with collectives are counted.

    Calls must not take JAX's shortcut, as where `GuardLog` is entered.
    """

    name = "exchanges"

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._programs = Programs()
        self._stack = ExitStack()
        self._sum = jax.jit(lambda values: values.sum())

    def __enter__(self) -> Self:
        self._stack.enter_context(private.executions(self._launched))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _launched(self, program: Launched, _: Sequence[Any]) -> None:
        if self._tally.paused or len(program.places()) == 1:
            return
        if found := self._programs.collectives(program):
            ops = ", ".join(sorted({one.op for one in found}))
            self._tally.saw("exchange", nbytes=nbytes(found), detail=ops)

    def prove(self) -> str:
        """Let two devices add up their numbers; returns what was not seen of it, or ""."""
        if len(devices := jax.devices()[:2]) < 2:
            return ""
        split = jax.NamedSharding(jax.sharding.Mesh(np.array(devices), ("x",)), jax.P("x"))
        before = self._tally.total("exchange")
        self._sum(jax.device_put(np.ones(2, np.float32), split))
        return "" if self._tally.total("exchange") > before else "a known sum was not seen"
