"""Calls functions of the C library that Python does not offer, and words a refusal.

Linux only. What is called, and why, is in the other modules of this room.
"""

import ctypes
import os
from collections.abc import Callable

REFUSED = "refused: "
"""The start of a line that says what a fence did not achieve, and why."""


def libc() -> ctypes.CDLL:
    """The C library of this process."""
    return ctypes.CDLL(None, use_errno=True)


def call(function: Callable[..., int], *args: object) -> None:
    """Call a function that returns 0 if all went well.

    Raises:
      OSError: it returned anything else.
    """
    if function(*args) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def refused_line(what: str, error: OSError) -> str:
    """`refused: a user of its own (Operation not permitted)`."""
    return f"{REFUSED}{what} ({error.strerror})"
