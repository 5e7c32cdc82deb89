"""Host buffers on their way between a client and the device, by the handles that clients give.

A client sends the bytes of a buffer apart from the request that uses them, and fetches the
bytes of a read apart from its answer. What lies here is limited, for a client may send
without end and fetch nothing.
"""

import os
import stat
import threading
from contextlib import suppress
from pathlib import Path

from grader.device.messages.errors import EXHAUSTED, INVALID, NOT_FOUND, Failed

WAIT_SECONDS = 60.0
"""How long a request waits for a buffer that its client has announced."""


class Sent:
    """A host buffer: bytes in memory, or an open file."""

    def __init__(self, data: bytearray | memoryview | None, file: int | None, size: int) -> None:
        self.data = data
        self.file = file
        self.size = size

    def close(self) -> None:
        """Forget the file."""
        if self.file is not None:
            os.close(self.file)
            self.file = None


class Arriving:
    """The host buffers of one client. Its methods take the front's lock themselves."""

    def __init__(self, lock: threading.RLock, limit: int) -> None:
        self._changed = threading.Condition(lock)
        self._found: dict[int, Sent] = {}
        self._limit = limit
        self._size = 0
        self._closed = False

    def add(self, handle: int, sent: Sent) -> None:
        """Keep a buffer until it is used.

        Raises:
          Failed: too much lies here already, or the client has gone.
        """
        with self._changed:
            if self._closed or self._size + sent.size > self._limit:
                sent.close()
                raise Failed(EXHAUSTED, f"host buffers of more than {self._limit} bytes wait")
            self.remove(handle)
            self._found[handle] = sent
            self._size += sent.size
            self._changed.notify_all()

    def check(self, size: int) -> None:
        """See that a buffer of this size may come.

        Raises:
          Failed: it may not.
        """
        with self._changed:
            if not 0 <= size <= self._limit - self._size:
                raise Failed(EXHAUSTED, f"host buffers of more than {self._limit} bytes wait")

    def pass_by(self, size: int) -> None:
        """So many bytes are on a way of their own, or no longer if negative. They count too."""
        with self._changed:
            self._size += size

    def look(self, handle: int) -> Sent:
        """A buffer; waits for it.

        Raises:
          Failed: it does not come.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or handle in self._found, WAIT_SECONDS)
            if handle not in self._found:
                raise Failed(NOT_FOUND, f"host buffer {handle} did not arrive")
            return self._found[handle]

    def remove(self, handle: int) -> None:
        """Forget a buffer, if it is there."""
        with self._changed:
            if sent := self._found.pop(handle, None):
                self._size -= sent.size
                sent.close()

    def close(self) -> None:
        """Forget everything; nobody waits any longer."""
        with self._changed:
            self._closed = True
            for handle in list(self._found):
                self.remove(handle)
            self._changed.notify_all()


def open_sent(folder: Path, handle: int, size: int) -> Sent:
    """A large buffer that a client has written into its folder; the file's name goes at once.

    Raises:
      Failed: there is no such file of this size.
    """
    path = folder / f"lt_{handle}"
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Failed(NOT_FOUND, f"host buffer {handle}: {error.strerror}") from error
    with suppress(OSError):
        path.unlink()
    about = os.fstat(file)
    if not stat.S_ISREG(about.st_mode) or about.st_size != size:
        os.close(file)
        raise Failed(INVALID, f"host buffer {handle} does not have {size} bytes")
    return Sent(None, file, size)
