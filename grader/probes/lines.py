"""Knows which line of the learner's file runs, and what of it ran, through `sys.monitoring`.

Only the learner's own code objects are instrumented, so JAX runs at full speed.
"""

import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Self

from grader.judging.words import line_on_stack

_MONITORING = sys.monitoring
_EVENTS = _MONITORING.events
_TOOL = 3


class Lines:
    """While entered, calls `passed(line)` when the learner's code leaves `line`."""

    def __init__(self, passed: Callable[[int], None]) -> None:
        self._passed = passed
        self._followed: list[CodeType] = []
        self._offsets: dict[CodeType, set[int]] = {}
        """The instructions that ran."""
        self.path = ""
        """The name of the learner's file, as its code objects have it."""
        self._here = threading.local()

    @property
    def current(self) -> int:
        """The line that this thread runs now, 0 outside the learner's code."""
        line: int = getattr(self._here, "line", 0)
        return line

    def __enter__(self) -> Self:
        _MONITORING.use_tool_id(_TOOL, "grader")
        callbacks: dict[int, Callable[..., Any]] = {
            _EVENTS.LINE: self._line,
            _EVENTS.PY_RESUME: self._resumed,
            _EVENTS.PY_RETURN: self._left,
            _EVENTS.PY_YIELD: self._left,
            _EVENTS.INSTRUCTION: self._first_time,
        }
        for event, callback in callbacks.items():
            _MONITORING.register_callback(_TOOL, event, callback)
        return self

    def __exit__(self, *_: object) -> None:
        for code in self._followed:
            _MONITORING.set_local_events(_TOOL, code, _EVENTS.NO_EVENTS)
        _MONITORING.free_tool_id(_TOOL)
        self._here.line = 0

    def follow(self, code: CodeType) -> None:
        """Instrument a code object, and all those nested in it."""
        wanted = _EVENTS.LINE | _EVENTS.PY_RESUME | _EVENTS.PY_RETURN | _EVENTS.PY_YIELD
        wanted |= _EVENTS.INSTRUCTION
        _MONITORING.set_local_events(_TOOL, code, wanted)
        self._followed.append(code)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self.follow(constant)

    def line_on_stack(self, frame: FrameType | None) -> int:
        """The innermost learner's line at `frame` or in a frame that called it, or 0."""
        return line_on_stack(frame, self.path) or 0

    def ran(self) -> list[tuple[int, int]]:
        """Where the pieces of the code begin that ran: lines from 1, columns in bytes from 0."""
        found = set()
        for code, offsets in list(self._offsets.items()):  # a thread may be left that adds to it
            for number, (line, _, column, _) in enumerate(code.co_positions()):
                if 2 * number in offsets and line is not None and column is not None:
                    found.add((line, column))
        return sorted(found)

    def _first_time(self, code: CodeType, offset: int) -> object:
        """An instruction runs; nothing is said of it again."""
        self._offsets.setdefault(code, set()).add(offset)
        return _MONITORING.DISABLE

    def _move(self, line: int) -> None:
        self._passed(self.current)
        self._here.line = line

    def _line(self, code: CodeType, line: int) -> None:
        self._move(line)

    def _resumed(self, code: CodeType, offset: int) -> None:
        """A generator resumes in the middle of a line, and no LINE event says so."""
        self._move(self.line_on_stack(sys._getframe(1)))

    def _left(self, code: CodeType, offset: int, value: object) -> None:
        """A call ends in the middle of the caller's line, if the caller is the learner's."""
        self._move(self.line_on_stack(sys._getframe(1).f_back))
