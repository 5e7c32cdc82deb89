"""Knows which line of the learner's file runs, through `sys.monitoring`.

Only the learner's own code objects are instrumented, so JAX runs at full speed.
"""

import sys
from collections.abc import Callable
from types import CodeType
from typing import Self

_MONITORING = sys.monitoring
_TOOL = 3


class Lines:
    """While entered, calls `passed(line)` when the learner's code leaves `line`."""

    def __init__(self, passed: Callable[[int], None]) -> None:
        self._passed = passed
        self.current = 0
        """The line that runs now, 0 before the first."""

    def __enter__(self) -> Self:
        _MONITORING.use_tool_id(_TOOL, "grader")
        _MONITORING.register_callback(_TOOL, _MONITORING.events.LINE, self._line)
        return self

    def __exit__(self, *_: object) -> None:
        _MONITORING.free_tool_id(_TOOL)

    def follow(self, code: CodeType) -> None:
        """Instrument a code object and all that are nested in it."""
        _MONITORING.set_local_events(_TOOL, code, _MONITORING.events.LINE)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self.follow(constant)

    def _line(self, code: CodeType, line: int) -> None:
        self._passed(self.current)
        self.current = line
