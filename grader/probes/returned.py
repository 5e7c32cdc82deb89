"""Knows at which line of the learner's file a value was returned that a call gave.

It looks on through `sys.setprofile`, at calls and returns only, while one function is called. What
it finds places a failure, and makes none.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def returned(function: Callable[[], Any], path: str, *, inner: bool = False) -> tuple[Any, int]:
    """What a function returns, and the line of the file `path` at which it was returned; or 0.

    That is the last `return` of this very object; the `inner` one is the first, perhaps of a
    function that this one calls. A function that ends without a value ends at the last line that
    it ran.
    """
    found: list[tuple[object, int]] = []

    def look(frame: FrameType, event: str, value: object) -> None:
        if event == "return" and frame.f_code.co_filename == path:
            found.append((value, frame.f_lineno))

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        value = function()
    finally:
        sys.setprofile(before)
    lines = [line for made, line in found if made is value]
    return value, (lines[0] if inner and value is not None else lines[-1]) if lines else 0
