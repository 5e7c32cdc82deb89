"""Finds the learner's lines in a stack that `faulthandler` printed."""

import re

from grader.record import Frame

_FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<function>.*)$')
_HEAD = re.compile(r"^(Timeout \(|Fatal Python error|Thread 0x|Current thread|Stack \()")


def frames_in(output: str, path: str, source: str) -> tuple[list[Frame], str]:
    """Frames of `path`, outermost first, and the output without the printed stack."""
    lines = source.splitlines()
    frames, rest, inside = [], [], False
    for text in output.splitlines():
        found = _FRAME.match(text)
        inside = bool(_HEAD.match(text)) or (inside and text.startswith("  "))
        if found and found["file"] == path:
            number = int(found["line"])
            shown = lines[number - 1].strip() if 0 < number <= len(lines) else ""
            frames.append(Frame(number, found["function"], shown))
        elif not inside and not found:
            rest.append(text)
    return frames[::-1], "\n".join(rest)
