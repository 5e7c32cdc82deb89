"""Writes the book, line by line, and counts what is in it. What a line means is in `judging.book`.

A book that cannot be written any more (a full disk) never ends the device: it then lacks its
last line, by which a reader sees it.
"""

import os
import threading
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from grader.records.book import Closing, Count, Entry, Opening, Usage, add


class Writer:
    """The one pen of a book. Any thread may write."""

    def __init__(self, file: int, opening: Opening) -> None:
        self._file = file
        self._encoder = msgspec.json.Encoder()
        self._lock = threading.Lock()
        self._whole = True
        self.counts: dict[str, Count] = {}
        self._line(opening)

    def write(self, entry: Entry) -> None:
        """Write one entry, and count it."""
        with self._lock:
            if self._file >= 0:
                add(self.counts, entry)
                self._line(entry)

    def close(self, at: float, memory: Sequence[Usage]) -> None:
        """Write the last line; what comes later is not written."""
        with self._lock:
            if self._file >= 0:
                if self._whole:
                    self._line(Closing(at, self.counts, list(memory)))
                with suppress(OSError):
                    os.close(self._file)
                self._file = -1

    def _line(self, line: Opening | Entry | Closing) -> None:
        data = memoryview(self._encoder.encode(line) + b"\n")
        try:
            while self._whole and data:
                data = data[os.write(self._file, data) :]
        except OSError:
            self._whole = False  # nothing after a torn line
