"""Finds transfers to and between devices in the log of JAX's own transfer guard.

At level `log_explicit` the guard writes one line per transfer and device to stderr, from
C++, also for arguments of a jitted call that no Python code sees. Stderr becomes a file
without a name, so that writing never blocks. Lines that are not the guard's are passed on. Calls
that the guard would not see are made in another way (`private.no_shortcut`). Reads by the host are
counted in `grader.probes.reads`.
"""

import math
import os
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, Self

import jax
import numpy as np

from grader.fences.unnamed import unnamed
from grader.judging.words import EVERYWHERE, PARTS
from grader.probes import private

MAX_LINE = 1 << 16
"""Longer than any line the guard writes."""
_LINE = re.compile(rb"\] (host-to-device|device-to-device|device-to-host) transfer:")
_HEAD = re.compile(rb"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ")
"""How a line of the guard begins. What stands before it was printed by something else."""
_AVAL = re.compile(r"aval=ShapedArray\(([a-z]+)(\d*)\w*\[([^\]]*)\]")
_DEVICE = re.compile(r"dst_sharding=SingleDeviceSharding\(device=(\w+)Device\(id=(\d+)\)")
_SEVERAL = re.compile(
    r"mesh=\w*Mesh\([^)]*: (?:[2-9]|1\d)|\{devices=\[(?:\d+,)*(?:[2-9]|1\d)|\{replicated\}"
)
"""A copy to several devices: of a mesh of one, the log does not say which that is."""
_WHOLE = re.compile(
    r"dst_sharding=(?:NamedSharding\(.*, spec=P\((?:None,? ?)*\)(?!, memory_kind=\w*host)|"
    r".*\{replicated\})"
)
"""A copy of the whole to each device, and not to the host memory that a device can address."""
_PLATFORM = {"Cuda": "gpu", "Rocm": "gpu"}
_KIND: dict[bytes, Literal["h2d", "d2d"]] = {b"host-to-device": "h2d", b"device-to-device": "d2d"}


class Transfer(NamedTuple):
    """One logged transfer; bytes of the whole array, None where the log does not say."""

    kind: Literal["h2d", "d2d"]
    nbytes: int | None
    to: str = ""
    """The device that it goes to, `cpu:1`, if one is named; or `EVERYWHERE` or `PARTS`."""


def parse(line: bytes) -> list[Transfer]:
    """The transfers in a line; reads (device-to-host) are left out.

    A line of the guard holds one. Whatever else was printed into that line hides none.
    """
    found = [kind for kind in _LINE.findall(line) if kind in _KIND]
    text = line.decode("utf-8", "replace")
    device = _DEVICE.search(text)
    to = "" if not _SEVERAL.search(text) else EVERYWHERE if _WHOLE.search(text) else PARTS
    to = f"{_PLATFORM.get(device[1], device[1].lower())}:{device[2]}" if device else to
    return [Transfer(_KIND[kind], _nbytes(text), to) for kind in found]


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
        self._unfinished = b""

    def __enter__(self) -> Self:
        self._calls = private.no_shortcut()
        self._real = os.dup(2)
        self._file = unnamed("grader-stderr")
        writer = os.open(f"/proc/self/fd/{self._file}", os.O_WRONLY | os.O_APPEND)
        os.dup2(writer, 2)
        os.close(writer)
        self._before = jax.config.jax_transfer_guard
        jax.config.update("jax_transfer_guard", "log_explicit")
        return self

    def __exit__(self, *_: object) -> None:
        jax.config.update("jax_transfer_guard", self._before)
        self._calls.close()
        self.drain()
        os.dup2(self._real, 2)
        os.write(2, self._unfinished)
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
        """The lines that have ended; of one that grows too long, all but its last part."""
        while chunk := self._chunk():
            self._position += len(chunk)
            lines = (self._unfinished + chunk).splitlines(keepends=True)
            self._unfinished = b"" if lines[-1].endswith(b"\n") else lines.pop()
            if len(self._unfinished) > MAX_LINE:
                lines.append(self._unfinished[:-MAX_LINE])
                self._unfinished = self._unfinished[-MAX_LINE:]
            yield from lines

    def _chunk(self) -> bytes:
        return os.pread(self._file, 1 << 16, self._position) if self._file >= 0 else b""

    def prove(self) -> str:
        """Make one transfer of each kind that is possible here; returns what was not seen."""
        placed = jax.device_put(np.zeros(3, np.float32))
        if "h2d" not in self._kinds():
            return "a known host-to-device transfer left no line in the log"
        if len(jax.devices()) > 1:
            jax.device_put(placed, jax.devices()[1])
            if "d2d" not in self._kinds():
                return "a known device-to-device transfer left no line in the log"
            return self._prove_calls(placed)
        return ""

    def _prove_calls(self, free: jax.Array) -> str:
        """Let a jitted function move the same free array twice; returns what was not seen."""
        add = jax.jit(lambda a, b: a + b)
        there = jax.device_put(np.zeros(3, np.float32), jax.devices()[1])
        for call in ("first", "second"):
            self.drain()
            add(there, free)
            if "d2d" not in self._kinds():
                return f"the copy of a free array left no line in the log at the {call} call"
        return ""

    def _kinds(self) -> set[str]:
        return {transfer.kind for transfer in self.drain()}
