"""The book of a device next door: what reached the device and what left it, as versioned data.

A book is a file of JSON lines. The first line is an `Opening`, each further line is one
`Entry`, and the last line is a `Closing` with the counts, so that a book that was cut off is
known as such. The device's front writes it (`grader.device.front.process`); a submission's process
neither reads nor writes it. Here it is read and counted. It is no evidence of a learner's own
process, which is in `grader.records.record`.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from grader.records.record import Collective

BOOK_VERSION = 1

EntryKind = Literal[
    "h2d",
    "d2h",
    "d2d",
    "copy",
    "alloc",
    "free",
    "compile",
    "launch",
    "callback",
    "wait",
    "oom",
    "lost",
    "client",
    "mark",
]


class Link(msgspec.Struct, frozen=True, omit_defaults=True):
    """A modelled link, one way. The defaults model nothing: a copy takes what it takes."""

    bandwidth: float = 0.0
    """Bytes a second; 0 for as fast as it goes."""
    latency: float = 0.0
    """Seconds before the first byte arrives."""

    def seconds(self, count: int) -> float:
        """How long a copy of `count` bytes takes at least."""
        return self.latency + (count / self.bandwidth if self.bandwidth else 0.0)


class Compute(msgspec.Struct, frozen=True, omit_defaults=True):
    """A modelled processor. The defaults model nothing: a program takes what it takes."""

    flops: float = 0.0
    """Floating-point operations a second; 0 for no ceiling."""
    bandwidth: float = 0.0
    """Bytes of device memory a second; 0 for no ceiling."""

    def seconds(self, flops: float, count: float) -> float:
        """How long a program of so many operations and bytes takes at least (roofline)."""
        by_flops = flops / self.flops if self.flops else 0.0
        return max(by_flops, count / self.bandwidth if self.bandwidth else 0.0)


class Opening(msgspec.Struct, frozen=True, tag="opened", tag_field="event"):
    """The first line: the device, as it was started."""

    version: int
    grader: str
    """The version of the grader."""
    jaxlib: str
    """The version of jaxlib on the device's side."""
    began: float
    """The device's birth, in seconds since 1970. All other times count from here."""
    devices: int
    kind: str
    """What `jax.devices()[0].device_kind` says."""
    memory: int
    """Bytes that programs may use on one device."""
    like: str = ""
    """The machine whose figures were scaled down, or ""."""
    host_link: Link = Link()
    """Between host and device, each way."""
    device_link: Link = Link()
    """Between two devices, each way."""
    compute: Compute = Compute()


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """To what belongs all that a client asked for since its mark before this one."""

    phase: str
    step: int = 0
    line: int = 0
    """A line of the learner's file, 0 if it is not known."""
    watched: bool = True
    """False for the drive's own work, which does not count."""


class Entry(msgspec.Struct, omit_defaults=True):
    """One event.

    Entries stand in the order in which the front heard of them; what happened when is in their
    times, which are seconds since the device's birth. `end` is None for what had not ended when the
    device was lost, or closed.

        h2d, d2h   one copy of one shard; `device`, `memory`, `bytes`, `shape`, `dtype`
        d2d        one copy of one shard from `device` to `to`, or from one kind of memory to
                   another, from `memory` to `to_memory`
        copy       one copy of one shard within the memory of `device`
        alloc      an array's shard took `bytes` of `device`; `in_use` is the sum afterwards
        free       it gave them back
        compile    `program` for `devices`; `bytes` of the program as sent, `collectives`
        launch     one run of `program` on `devices`; `bytes` of its outputs and `temporaries`,
                   both on the first device; `in_use` there while it held both
        callback   a program called the host: `bytes` went there, `returned` came back
        wait       a client asked when `count` arrays are ready; `end` is when they were
        oom        `bytes` for `program` (or an array of `shape`) did not fit on `device`
        lost       the device's executor died
        client     a client came, or left (`detail`)
        mark       a worker of the grader's says what it did since its last mark (`mark`)
    """

    event: EntryKind
    start: float
    end: float | None = None
    bytes: int = 0
    device: int | None = None
    to: int | None = None
    devices: list[int] = []
    program: str = ""
    shape: list[int] | None = None
    dtype: str = ""
    memory: str = ""
    """The kind of memory: `device` or `pinned_host`."""
    to_memory: str = ""
    client: int = 0
    """The number of the client that asked for it, from 1; 0 where none did."""
    asked: float | None = None
    """When the client asked. `start` is when the device began, after all that lay before it."""
    array: int = 0
    """The number of the buffer, from 1."""
    in_use: int = 0
    temporaries: int = 0
    returned: int = 0
    count: int = 1
    collectives: list[Collective] = []
    """Of a compiled program, read from its text: what one device gets, by size. Estimates."""
    flops: float = 0.0
    """Of one launch, on one device; XLA's estimate."""
    accessed: float = 0.0
    """Bytes of memory that one launch reads and writes on one device; XLA's estimate."""
    mark: Mark | None = None
    detail: str = ""


class Count(msgspec.Struct):
    """How many entries of one kind, and their bytes."""

    number: int = 0
    bytes: int = 0


class Usage(msgspec.Struct, frozen=True):
    """Memory of one device, in bytes."""

    in_use: int
    peak: int


class Closing(msgspec.Struct, frozen=True, tag="closed", tag_field="event"):
    """The last line: what the book must add up to."""

    at: float
    counts: dict[str, Count]
    """Event -> count, of all entries."""
    memory: list[Usage]
    """One for each device."""


class Book(msgspec.Struct):
    """A book that was read."""

    opening: Opening
    entries: list[Entry]
    closing: Closing | None
    problem: str = ""
    """Why the book does not say all, or "": it was cut off, or does not add up."""


class NotABook(Exception):
    """The file is no book of this version; the message says why."""


def read(path: Path) -> Book:
    """Read a book. One that was cut off is read as far as it goes, and `problem` says so.

    Raises:
      NotABook: the file's first line, or one before its last, is not of this version.
      OSError: the file cannot be read.
    """
    return parse(path.read_bytes(), str(path))


def parse(text: bytes, name: str) -> Book:
    """A book from its bytes; `name` is what an error calls it. See `read`."""
    lines = text.split(b"\n")
    whole, rest = lines[:-1], lines[-1]
    if not whole:
        raise NotABook(f"{name} has no whole line")
    opening = _decode(whole[0], Opening, name, 1)
    if opening.version != BOOK_VERSION:
        raise NotABook(f"{name} is a book of version {opening.version}, not {BOOK_VERSION}")
    closed = len(whole) > 1 and whole[-1].startswith(b'{"event":"closed"')
    body = whole[1:-1] if closed else whole[1:]
    entries = [_decode(line, Entry, name, at) for at, line in enumerate(body, 2)]
    closing = _decode(whole[-1], Closing, name, len(whole)) if closed else None
    book = Book(opening, entries, closing)
    book.problem = _problem(book, bool(rest))
    return book


def _decode[T](line: bytes, kind: type[T], name: str, at: int) -> T:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError as error:
        raise NotABook(f"{name}, line {at}: {error}") from error


def _problem(book: Book, torn: bool) -> str:
    if book.closing is None:
        torn_line = ", in the middle of a line" if torn else ""
        return f"the book was cut off after {len(book.entries)} entries{torn_line}"
    if torn:
        return "the book goes on after its last line"
    if count(book.entries) != book.closing.counts:
        return "the book's entries do not add up to the counts of its last line"
    return ""


def count(entries: Iterable[Entry]) -> dict[str, Count]:
    """Event -> how many entries there are of it, and their bytes."""
    found: dict[str, Count] = {}
    for entry in entries:
        add(found, entry)
    return found


def add(counts: dict[str, Count], entry: Entry) -> None:
    """Count one more entry."""
    sum_of_kind = counts.setdefault(entry.event, Count())
    sum_of_kind.number += 1
    sum_of_kind.bytes += entry.bytes
