"""Counts what the probes see: by kind, phase, step and the learner's line.

Probes write here, and the worker's observer reads. Neither knows the other.
"""

import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import FrameType

from grader.records.record import Event, EventKind

MAX_EVENTS = 10_000
Key = tuple[EventKind, str, int, int | None, int | None, str]
"""Kind, phase, step, line, bytes and detail of an event."""


class Tally:
    """Counts unless it is `paused`, which it is at first.

    `line_on_stack` finds the innermost line of the learner's file at a frame or in one that
    called it, 0 if there is none.
    """

    def __init__(self, line_on_stack: Callable[[FrameType | None], int]) -> None:
        self._line_on_stack = line_on_stack
        self._counts: Counter[Key] = Counter()
        self._lock = threading.RLock()  # JAX runs callbacks in threads of its own
        self.phase, self.step, self.paused = "", 0, True
        self.is_full = False
        """Whether an event was left out: MAX_EVENTS different ones had been seen."""

    def saw(self, kind: EventKind, *, nbytes: int | None = None, detail: str = "") -> None:
        """Count an event that happens now, at the learner's line on this thread's stack."""
        if not self.paused:
            self.count(kind, self._line_on_stack(sys._getframe(1)), nbytes, detail)

    def count(self, kind: EventKind, line: int, nbytes: int | None, detail: str = "") -> None:
        """Count an event at a line, 0 if it is not known."""
        key: Key = (kind, self.phase, self.step, line or None, nbytes, detail)
        with self._lock:
            if self.paused:
                return
            if len(self._counts) < MAX_EVENTS or key in self._counts:
                self._counts[key] += 1
            else:
                self.is_full = True

    def total(self, kind: EventKind) -> int:
        """Events of one kind so far."""
        return sum(n for key, n in self._counts.items() if key[0] == kind)

    def take(self, phase: str) -> set[EventKind]:
        """The kinds of events in a phase, which are forgotten."""
        with self._lock:
            keys = [key for key in self._counts if key[1] == phase]
            for key in keys:
                del self._counts[key]
        return {key[0] for key in keys}

    def clear(self) -> None:
        """Forget all events."""
        self._counts.clear()
        self.is_full = False

    def events(self) -> list[Event]:
        """All events, each with its count."""
        return [
            Event(kind, phase, step, line, count, nbytes, detail)
            for (kind, phase, step, line, nbytes, detail), count in self._counts.items()
        ]
