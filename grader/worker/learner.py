"""Runs a learner's file, and turns whatever its code raises into an `Outcome`.

An outcome carries the frames that lie in the learner's file, and none of the grader's own.
What a drive does with the module is in `grader.worker.driving`.
"""

import linecache
import sys
import traceback
from collections.abc import Callable
from types import CodeType, ModuleType

from grader.probes.observe import Misused
from grader.records.lines import cached
from grader.records.raised import in_words, written
from grader.records.record import Frame, Outcome

MAX_FRAMES = 12
"""The most frames that are kept. Of a deep recursion, they are the first and the last ones."""


class Stopped(Exception):
    """The learner's code ended in a way that leaves nothing to observe."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


class LearnersCode:
    """A block that runs code of the file at `path`. Whatever it raises becomes `Stopped`."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and not isinstance(error, Stopped):
            raise Stopped(_outcome(error, self._path)) from None


def load(path: str, source: str, follow: Callable[[CodeType], None] | None = None) -> ModuleType:
    """Execute a submission's source as a module of its own; `follow` is told of its code first.

    Raises:
      Stopped: the code raised or exited while it was imported.
    """
    module = ModuleType("submission")
    module.__file__ = path
    sys.modules["submission"] = module
    linecache.cache[path] = cached(source, path)
    with LearnersCode(path):
        code = compile(source, path, "exec", dont_inherit=True)
        if follow is not None:
            follow(code)
        exec(code, module.__dict__)
    return module


def _outcome(error: BaseException, path: str) -> Outcome:
    stack = traceback.extract_tb(error.__traceback__)
    frames = [_frame(frame) for frame in stack if frame.filename == path]
    if len(frames) > MAX_FRAMES:
        frames[MAX_FRAMES // 2 : -MAX_FRAMES // 2] = []
    if isinstance(error, Misused):
        observed, expected = written(error.observed), written(error.expected)
        return Outcome("unusable", observed, frames, promise=expected)
    message = in_words(error)
    if isinstance(error, SystemExit):
        return Outcome("exited", f"the code called exit ({message})", frames)
    if isinstance(error, MemoryError):
        message += ": the run asked for more memory than it may have"
    return Outcome("raised" if frames else "unusable", message, frames)


def _frame(frame: traceback.FrameSummary) -> Frame:
    """A frame of the learner's file, with the expression that was evaluated if it is one line."""
    found = Frame(frame.lineno or 0, frame.name, frame.line or "")
    if frame.lineno and frame.lineno == frame.end_lineno and frame.colno is not None:
        line = linecache.getline(frame.filename, frame.lineno).encode()
        found.column = len(line[: frame.colno].decode("utf-8", "ignore")) + 1
        found.end = len(line[: frame.end_colno].decode("utf-8", "ignore")) + 1
    return found
