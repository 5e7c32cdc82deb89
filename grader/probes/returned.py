"""Knows at which line of the learner's file a value was returned that a call gave.

It looks on through `sys.setprofile`, at calls and returns only, while one function is called. What
it finds places a failure, and makes none.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any


def returned(
    function: Callable[[], Any], path: str, texts: list[str] | None = None
) -> tuple[Any, int]:
    """What a function returns, and the line of the file `path` at which it was returned; or 0.

    That is the last `return` of this very object; with a list of `texts`, it is the first, perhaps
    of a function that this one calls, and the list gets the texts that its variables hold there.
    A function that ends without a value ends at the last line that it ran.
    """
    found: list[tuple[object, int, FrameType]] = []

    def look(frame: FrameType, event: str, value: object) -> None:
        if event == "return" and frame.f_code.co_filename == path:
            found.append((value, frame.f_lineno, frame))

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        value = function()
    finally:
        sys.setprofile(before)
    here = [(line, frame) for made, line, frame in found if made is value]
    if not here:
        return value, 0
    line, frame = here[0] if texts is not None and value is not None else here[-1]
    if texts is not None:
        texts += dict.fromkeys(_texts(frame.f_locals.values()))
    return value, line


def _texts(values: Iterable[object]) -> Iterator[str]:
    """The short texts among values, and those that their tuples hold."""
    for value in values:
        parts = value if type(value) is tuple else (value,)
        yield from (part for part in parts if type(part) is str and len(part) <= LONGEST)


LONGEST = 200
"""Characters of a text that is noted."""
