"""What a device's front and whoever started it say to each other."""

from pathlib import Path

import msgspec

from grader.device.options import Options
from grader.records.book import Count, Usage

SHARED = Path("/dev/shm")
"""Where large buffers are handed over, as files in memory: in a folder with the name of the
device's own."""


class Setup(msgspec.Struct, tag=True):
    """What the device is to be. The descriptions of its protocol are the payload."""

    options: Options
    """With `memory` set."""
    folder: str
    """Where its sockets lie. It belongs to the front's user from now on."""
    user: int
    """A number that no other process has as its own; 0 for no change of user."""
    birth: float
    """`time.monotonic()`."""


class Ready(msgspec.Struct, tag=True):
    """The device is ready, or could not start."""

    problem: str = ""
    fences: list[str] = []


class Close(msgspec.Struct, tag=True):
    """End the device."""


class Closed(msgspec.Struct, tag=True):
    """The book is whole."""


class AskCounts(msgspec.Struct, tag=True):
    """Ask for what the book holds so far."""


class Counts(msgspec.Struct, tag=True):
    """What the book holds so far, when nothing that was asked is under way."""

    counts: dict[str, Count]
    memory: list[Usage]


Word = Ready | Closed | Counts
