"""Marks a worker's requests to a device next door: to what phase, step and line they belong.

The book of the device has every copy and every compile, but knows nothing of the learner's
file. A `Marker` says, after each line of it, what the requests before belong to. It counts
nothing: that is for `grader.judging.witness`, which never believes this process.
"""

import itertools
import re
from typing import Any

import jax
import numpy as np

from grader.device.messages import marks
from grader.judging.witness import PROOF
from grader.records.book import Mark

MOST_LINES = 4_000
"""Marks of lines. Beyond them, only phases, steps and pauses are marked."""


class Marker:
    """Sends marks to the device next door, each behind all requests that were made before it."""

    name = "transfers"
    """It takes the place of the probe that reads the log of JAX's transfer guard, which says
    nothing here."""

    def __init__(self) -> None:
        self._device = jax.devices()[0]
        self._client = self._device.client
        self._serials = itertools.count(1)
        self._lines = MOST_LINES

    def send(self, phase: str, step: int, line: int, *, watched: bool) -> None:
        """What was asked for since the last mark belongs to this."""
        self._mark(Mark(phase, step, line, watched))

    def send_line(self, phase: str, step: int, line: int, *, watched: bool) -> None:
        """As `send`, at the end of a line; left out where a program runs too many lines."""
        if self._lines > 0:
            self._lines -= 1
            self.send(phase, step, line, watched=watched)

    def _mark(self, mark: Mark) -> None:
        extents = marks.encode(mark, next(self._serials))
        self._client.get_default_layout(np.dtype(np.int8), extents, self._device)

    def prove(self) -> None:
        """Cause one event of each kind that is possible here; the book must have them."""
        self._mark(Mark("", watched=False))
        placed = jax.device_put(np.ones(3, np.float32))
        if len(jax.devices()) > 1:
            jax.device_put(placed, jax.devices()[1]).block_until_ready()
        np.asarray(jax.jit(lambda value: value + value)(placed))
        self._mark(Mark(PROOF))


def ask(what: marks.Question, array: Any) -> int | None:
    """Ask the device next door about an array on one of its devices; see `marks.Question`.

    None for none, for an array that is deleted, and where this jaxlib does not say its handle.
    """
    try:
        memoryview(array)
    except (BufferError, RuntimeError) as error:  # it says of which array it has no memory here
        handle = re.search(r"\bhandle=(\d+)", str(error))
    else:
        return None
    if handle is None:
        return None
    device = next(iter(array.devices()))
    extents = marks.asking(what, int(handle[1]), next(_QUESTIONS))
    layout = device.client.get_default_layout(np.dtype(np.int8), extents, device)
    return marks.answered(str(layout))


_QUESTIONS = itertools.count(1)
