"""Traces and compiles by function name, from `jax.monitoring`."""

from typing import TYPE_CHECKING, Self

import jax
import numpy as np

from grader.record import EventKind

if TYPE_CHECKING:
    from grader.probes.observer import Observer

_KINDS: dict[str, EventKind] = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/backend_compile_duration": "compile",
}


class Compiles:
    """While entered, traces and compiles are reported to the observer."""

    name = "compiles"

    def __init__(self, observer: "Observer") -> None:
        self._observer = observer

    def __enter__(self) -> Self:
        jax.monitoring.register_event_duration_secs_listener(self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        jax.monitoring.unregister_event_duration_listener(self._heard)

    def _heard(self, event: str, duration_secs: float, **facts: str | int) -> None:
        kind = _KINDS.get(event)
        if kind is not None:
            self._observer.saw(kind, detail=str(facts.get("fun_name", "")))

    def prove(self, observer: "Observer") -> str:
        """See one compile; say so if it was not seen."""
        jax.jit(lambda value: value + value)(np.ones(3, np.float32))
        seen = observer.total("compile"), observer.total("trace")
        return "" if all(seen) else f"a known compile was seen as {seen}"
