"""Transfers to and between devices, from the log of JAX's own transfer guard.

At level `log_explicit` the guard writes one line per transfer and device to stderr, from
C++, also for arguments of a jitted call that no Python code sees. Stderr is put into a
file in memory that never blocks; lines that are not the guard's are passed on.
"""

import math
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import jax
import numpy as np

if TYPE_CHECKING:
    from grader.probes.observer import Observer

MAX_LINE = 1 << 16
"""Longer than any line the guard writes."""
_LINE = re.compile(rb"\] (host-to-device|device-to-device|device-to-host) transfer:")
_HEAD = re.compile(rb"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ")
"""How a line of the guard begins; what stands before it is somebody else's."""
_AVAL = re.compile(r"aval=ShapedArray\(([a-z]+)(\d*)\w*\[([^\]]*)\]")
_KIND: dict[bytes, Literal["h2d", "d2d"]] = {b"host-to-device": "h2d", b"device-to-device": "d2d"}


class Transfer(NamedTuple):
    """One logged transfer; bytes of the whole array, None where the log does not say."""

    kind: Literal["h2d", "d2d"]
    nbytes: int | None


def parse(line: bytes) -> list[Transfer]:
    """The transfers in a line. Reads (device-to-host) are `reads`' job.

    One, if the guard alone wrote the line; what else prints there hides none.
    """
    found = [kind for kind in _LINE.findall(line) if kind in _KIND]
    return [Transfer(_KIND[kind], _nbytes(line.decode("utf-8", "replace"))) for kind in found]


def _nbytes(line: str) -> int | None:
    aval = _AVAL.search(line)
    if aval is None or not (aval[2] or aval[1] == "bool"):
        return None
    bits = int(aval[2] or 8)
    sizes = [int(re.sub(r"@.*", "", size)) for size in aval[3].split(",") if size]
    return math.prod(sizes) * bits // 8


class GuardLog:
    """While entered, every transfer is logged, and `drain()` returns the new ones."""

    name = "transfers"

    def __init__(self) -> None:
        self._file = -1
        self._position = 0
        self._rest = b""

    def __enter__(self) -> Self:
        self._real = os.dup(2)
        self._file = os.memfd_create("grader-stderr")
        writer = os.open(f"/proc/self/fd/{self._file}", os.O_WRONLY | os.O_APPEND)
        os.dup2(writer, 2)
        os.close(writer)
        self._before = jax.config.jax_transfer_guard
        jax.config.update("jax_transfer_guard", "log_explicit")
        return self

    def __exit__(self, *_: object) -> None:
        jax.config.update("jax_transfer_guard", self._before)
        self.drain()
        os.dup2(self._real, 2)
        os.write(2, self._rest)
        os.close(self._real)
        os.close(self._file)
        self._file = -1

    def drain(self) -> list[Transfer]:
        """The transfers logged since the last call; none unless entered."""
        found = []
        for line in self._new_lines():
            found += parse(line)
            os.write(self._real, _HEAD.split(line)[0] if _LINE.search(line) else line)
        return found

    def _new_lines(self) -> Iterator[bytes]:
        """Whole lines, and of one that does not end, all but its last part."""
        while chunk := self._chunk():
            self._position += len(chunk)
            lines = (self._rest + chunk).splitlines(keepends=True)
            self._rest = b"" if lines[-1].endswith(b"\n") else lines.pop()
            if len(self._rest) > MAX_LINE:
                lines.append(self._rest[:-MAX_LINE])
                self._rest = self._rest[-MAX_LINE:]
            yield from lines

    def _chunk(self) -> bytes:
        return os.pread(self._file, 1 << 20, self._position) if self._file >= 0 else b""

    def prove(self, observer: "Observer") -> str:
        """See one transfer each way that this machine can make; say what was not seen."""
        placed = jax.device_put(np.zeros(3, np.float32))
        if observer.drain()["h2d"] < 1:
            return "a known host-to-device transfer left no line in the log"
        if len(jax.devices()) > 1:
            jax.device_put(placed, jax.devices()[1])
            if observer.drain()["d2d"] < 1:
                return "a known device-to-device transfer left no line in the log"
        return ""
