"""Finds the learner's lines in a stack that `faulthandler` printed.

The stack is printed to a file of its own, so the learner's output cannot cut it. That file is
read by whatever watches the process: `grader.running.sides`, or `grader.stages.hosts`.
"""

import re

from grader.records.lines import lines_of
from grader.records.record import Frame

_FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<function>.*)$')
_THREAD = re.compile(r"^(Thread|Current thread) 0x")
_CRASHED = "Current thread 0x"
MAX_FRAMES = 12


def frames_in(stack: str, path: str, source: str) -> list[Frame]:
    """Frames of `path`, outermost first.

    Of several threads, the one that crashed counts; else the main one, which is printed last.
    """
    lines = lines_of(source)
    threads: list[list[Frame]] = [[]]
    for text in stack.splitlines():
        if _THREAD.match(text):
            threads.append([])
        elif (found := _FRAME.match(text)) and found["file"] == path:
            number = int(found["line"])
            shown = lines[number - 1].strip() if 0 < number <= len(lines) else ""
            threads[-1].append(Frame(number, found["function"], shown))
    seen = [frames for frames in threads if frames] or [[]]
    frames = seen[0] if _CRASHED in stack else seen[-1]
    return frames[:MAX_FRAMES][::-1]
