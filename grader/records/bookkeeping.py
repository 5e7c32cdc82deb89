"""What a book of a device next door adds up to: copies, reads, waits, launches, memory, a timeline.

Pure functions of a `Book`. How the figures are shown is in `grader.app.next_door.page`; how every
entry is drawn for itself is in `grader.records.perfetto`.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

import msgspec

from grader.records.book import Book, Entry, EntryKind
from grader.records.record import PINNED, Collective

Interval = tuple[float, float]
"""When something began and ended, in seconds since the device's birth."""

LANES = {
    "compile": "compile",
    "h2d": "copy in",
    "launch": "compute",
    "d2d": "copy across",
    "copy": "copy within",
    "d2h": "copy out",
    "callback": "callback",
    "wait": "wait",
}
"""Event -> its row of the timeline, in the order of the rows."""
COPIES = ("h2d", "d2h", "d2d", "copy")
"""The events of one device that a timeline draws; launches are of several."""


class Tally(msgspec.Struct):
    """How many events of one kind there were, their bytes, and how long they took."""

    number: int = 0
    bytes: int = 0
    seconds: float = 0.0
    """The sum over the events; some may have run at the same time."""


class Program(msgspec.Struct):
    """A compiled program, by its name: several of one name are one here."""

    name: str
    compiles: int = 0
    compile_seconds: float = 0.0
    launches: int = 0
    seconds: float = 0.0
    """From the start of each launch to its end, summed."""
    collectives: list[Collective] = []
    """Of one launch, estimated from the program's text."""


class Peak(msgspec.Struct):
    """The most bytes that were in use on one device."""

    device: int
    bytes: int


class Summary(msgspec.Struct, tag_field="version", tag=1):
    """What `--format json` prints: the figures of one page."""

    devices: int
    kind: str
    memory: int
    """Bytes of one device."""
    like: str
    modelled: list[str]
    """What was modelled and not measured: `host_link`, `device_link`, `compute`."""
    seconds: float
    """From the first event to the end of the last."""
    copies_in: Tally
    copies_out: Tally
    """Copies to the host: a read of an array with shards on 8 devices is up to 8 of them."""
    copies_across: Tally
    """Copies from one device to another."""
    copies_within: Tally
    """Copies within the memory of one device."""
    copies_pinned: Tally
    """Copies in which pinned host memory takes part: to and from the program, or a device's
    own memory. They are in no other figure."""
    waits: Tally
    read_seconds: float
    """From the question for a copy to the host to its last byte, summed."""
    callbacks: Tally
    launches: Tally
    compiles: Tally
    programs: list[Program]
    """By their time on the device, longest first."""
    peaks: list[Peak]
    refused: int
    """Allocations that did not fit."""
    lost: int
    """How often the device's executor died."""
    problem: str
    """Why the book does not say all, or ""."""


class Lane(msgspec.Struct, frozen=True):
    """One row of the timeline."""

    event: str
    device: int | None
    """None for what belongs to no device: compiles, waits and callbacks."""
    shares: tuple[float, ...]
    """For each column, the share of its time in which something went on: 0 to 1.

    What took no time at all is in no column.
    """


def summary(book: Book) -> Summary:
    """Add up a book."""
    tallies = _tallies(book.entries, _latest(book))
    opening = book.opening
    links = ("host_link", "device_link", "compute")
    defaults = (type(getattr(opening, name))() for name in links)
    begin, end = span(book)
    return Summary(
        devices=opening.devices,
        kind=opening.kind,
        memory=opening.memory,
        like=opening.like,
        modelled=[n for n, d in zip(links, defaults, strict=True) if getattr(opening, n) != d],
        seconds=end - begin,
        copies_in=tallies["h2d"],
        copies_out=tallies["d2h"],
        copies_across=tallies["d2d"],
        copies_within=tallies["copy"],
        copies_pinned=tallies["pinned"],
        waits=tallies["wait"],
        read_seconds=sum(_answered(e, end) for e in book.entries if kind_of(e) == "d2h"),
        callbacks=tallies["callback"],
        launches=tallies["launch"],
        compiles=tallies["compile"],
        programs=_programs(book.entries, end),
        peaks=_peaks(book),
        refused=tallies["oom"].number,
        lost=tallies["lost"].number,
        problem=book.problem,
    )


def kind_of(entry: Entry) -> str:
    """The entry's event; `pinned` for a copy in which pinned host memory takes part."""
    copied = entry.event in COPIES
    return "pinned" if copied and PINNED in (entry.memory, entry.to_memory) else entry.event


def _tallies(entries: Iterable[Entry], end: float) -> dict[str, Tally]:
    found = {kind: Tally() for kind in (*get_args(EntryKind), "pinned")}
    for entry in entries:
        tally = found[kind_of(entry)]
        tally.number += 1
        tally.bytes += entry.bytes
        tally.seconds += _ended(entry, end) - entry.start
    return found


def _ended(entry: Entry, end: float) -> float:
    """When it ended; what never did lasts until the book's end."""
    return max(entry.start, end if entry.end is None else entry.end)


def _answered(entry: Entry, end: float) -> float:
    asked = entry.start if entry.asked is None else min(entry.asked, entry.start)
    return _ended(entry, end) - asked


def _latest(book: Book) -> float:
    """The book's last time."""
    times = [entry.start if entry.end is None else entry.end for entry in book.entries]
    return max([*times, book.closing.at if book.closing else 0.0])


def span(book: Book) -> Interval:
    """When the first event of the timeline began, and when the last one ended."""
    shown = [entry for entry in book.entries if entry.event in LANES]
    if not shown:
        return 0.0, 0.0
    last = _latest(book)
    return min(entry.start for entry in shown), max(_ended(entry, last) for entry in shown)


def _programs(entries: Iterable[Entry], end: float) -> list[Program]:
    found: dict[str, Program] = {}
    for entry in entries:
        if entry.event not in ("compile", "launch"):
            continue
        program = found.setdefault(entry.program, Program(entry.program))
        seconds = _ended(entry, end) - entry.start
        if entry.event == "compile":
            program.compiles += 1
            program.compile_seconds += seconds
            program.collectives = entry.collectives or program.collectives
        else:
            program.launches += 1
            program.seconds += seconds
    return sorted(found.values(), key=lambda program: -program.seconds)


def _peaks(book: Book) -> list[Peak]:
    """Each device's peak. Where the book was cut off, the highest figure of an entry stands."""
    if book.closing is not None:
        return [Peak(device, usage.peak) for device, usage in enumerate(book.closing.memory)]
    highest = dict.fromkeys(range(book.opening.devices), 0)
    for entry in book.entries:
        device = entry.devices[0] if entry.event == "launch" and entry.devices else entry.device
        if device in highest:
            highest[device] = max(highest[device], entry.in_use)
    return [Peak(device, peak) for device, peak in highest.items()]


def timeline(book: Book, columns: int) -> list[Lane]:
    """The rows of a timeline with so many columns, those in which nothing happened left out.

    A row stands for one event and one device. Its columns part the time of `span` evenly.
    """
    begin, end = span(book)
    if end <= begin or columns < 1:
        return []
    busy: dict[tuple[str, int | None], list[Interval]] = {}
    for entry in book.entries:
        if entry.event in LANES:
            for device in _devices(entry):
                busy.setdefault((entry.event, device), []).append((entry.start, _ended(entry, end)))
    order = list(LANES)
    keys = sorted(busy, key=lambda key: (order.index(key[0]), -1 if key[1] is None else key[1]))
    edges = [begin + (end - begin) * column / columns for column in range(columns + 1)]
    return [Lane(*key, tuple(_shares(merged(busy[key]), edges))) for key in keys]


def _devices(entry: Entry) -> Sequence[int | None]:
    """The devices in whose rows an entry is drawn."""
    if entry.event == "launch":
        return entry.devices
    return [entry.device] if entry.event in COPIES else [None]


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time as disjoint intervals, in order."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _shares(busy: Sequence[Interval], edges: Sequence[float]) -> Iterator[float]:
    """The share of each column in which something went on; `busy` is disjoint and in order."""
    first = 0
    for left, right in itertools.pairwise(edges):
        while first < len(busy) and busy[first][1] <= left:
            first += 1
        covered, at = 0.0, first
        while at < len(busy) and busy[at][0] < right:
            covered += min(right, busy[at][1]) - max(left, busy[at][0])
            at += 1
        yield covered / (right - left)
