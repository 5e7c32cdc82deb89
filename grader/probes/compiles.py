"""Counts traces and compiles by function name, from the events of `jax.monitoring`.

It counts into a `Tally`, and judges nothing.
"""

from contextlib import suppress
from typing import Self

import jax
import numpy as np

from grader.probes.tally import Tally
from grader.records.record import EventKind

_KINDS: dict[str, EventKind] = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/backend_compile_duration": "compile",
}


class Compiles:
    """While entered, traces and compiles are counted."""

    name = "compiles"

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def __enter__(self) -> Self:
        jax.monitoring.register_event_duration_secs_listener(self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(AssertionError, ValueError):  # the submission unregistered it
            jax.monitoring.unregister_event_duration_listener(self._heard)

    def _heard(self, event: str, duration_secs: float, **facts: str | int) -> None:
        kind = _KINDS.get(event)
        if kind is not None:
            self._tally.saw(kind, detail=str(facts.get("fun_name", "")))

    def prove(self) -> str:
        """Compile one function; returns what was not seen of it, or ""."""
        jax.jit(lambda value: value + value)(np.ones(3, np.float32))
        seen = self._tally.total("compile"), self._tally.total("trace")
        return "" if all(seen) else f"a known compile was seen as {seen}"
