"""Counts by the book of a device next door, and lays the probes' lines beside them.

Two witnesses saw a submission: the probes in its own process, and the book that the device
kept in another (`grader.judging.book`). The counts are the book's. The probes say which line did
it, and what no probe saw is counted all the same, with the line that the marks give or with none.
Nothing that the submission's process says makes a count smaller. Pure functions of data.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from msgspec.structs import replace

from grader.judging.book import Book, Entry, Mark
from grader.judging.record import (
    PREFETCHED,
    STARTED,
    Event,
    EventKind,
    Observed,
    Record,
    Witnessed,
)

PROOF = "(proof)"
"""The phase of the known events by which a worker proves the book."""
UNSEEN = "in the device's book, and no probe saw it"
"""The detail of a read or a compile that only the book has."""
_COUNTED = {
    "h2d": "h2d",
    "d2h": "d2h",
    "d2d": "d2d",
    "copy": "d2d",  # JAX's transfer guard calls it so too: an array is copied
    "compile": "compile",
    "launch": "launch",
}
"""What of a book is counted, and as what."""
_PROVED = ("h2d", "d2h", "compile", "launch")
_COPIES: tuple[EventKind, ...] = ("h2d", "d2d")
"""What the book alone says: no probe sees these on a device next door."""
Place = tuple[str, int]
"""Phase and step."""


def witnessed(book: Book) -> Witnessed:
    """What a book says of the one program that it was kept for, by phase, step and line."""
    if problem := book.problem or _unproved(book):
        return Witnessed(problem=problem)
    found: Counter[tuple[str, str, int, int, int]] = Counter()
    for mark, entry in _marked(book):
        if mark.watched and mark.phase != PROOF:
            found[_kind(entry), mark.phase, mark.step, mark.line, entry.bytes] += 1
    events = [
        Event(cast(EventKind, kind), phase, step, line or None, count, nbytes)
        for (kind, phase, step, line, nbytes), count in found.items()
    ]
    return Witnessed(events)


def _kind(entry: Entry) -> str:
    """As what an entry counts. A copy to another kind of memory is no read: no host sees it."""
    return "d2d" if entry.to_memory else _COUNTED[entry.event]


def _unproved(book: Book) -> str:
    """Which known event the book does not have, or ""."""
    proved = {entry.event for mark, entry in _marked(book) if mark.phase == PROOF}
    for kind in _PROVED + (("d2d",) if book.opening.devices > 1 else ()):
        if kind not in proved:
            return f"a known event, {kind}, is not in the device's book"
    return ""


def _marked(book: Book) -> Iterator[tuple[Mark, Entry]]:
    """Each counted entry with the first mark that was made after it was asked for.

    What came after the last mark belongs to nothing.
    """
    marks = sorted((e for e in book.entries if e.mark is not None), key=lambda e: e.start)
    counted = (e for e in book.entries if e.event in _COUNTED and e.client)
    at = 0
    for entry in sorted(counted, key=_asked):
        while at < len(marks) and marks[at].start < _asked(entry):
            at += 1
        if at == len(marks):
            return
        mark = marks[at].mark
        assert mark is not None
        yield mark, entry


def _asked(entry: Entry) -> float:
    return entry.start if entry.asked is None else entry.asked


def judged(record: Record) -> Record:
    """The record as it is judged: where there is a book, the events are those of `counted`."""
    submission, reference = record.submission, record.reference
    return replace(
        record,
        submission=None if submission is None else counted(submission),
        reference=None if reference is None else counted(reference),
    )


def counted(observed: Observed) -> Observed:
    """Observations whose copies, reads and compiles are counted by the book, if there is one."""
    book = observed.witnessed
    if book is None:
        return observed
    missing = dict(observed.missing_probes)
    if book.problem:
        missing["transfers"] = missing["reads"] = missing["compiles"] = book.problem
        return replace(observed, missing_probes=missing)
    copies = [event for event in book.events if event.kind in _COPIES]
    seen = [event for event in observed.events if event.kind not in _COPIES]
    more = [*_unseen_reads(book.events, seen), *_unseen_compiles(book.events, seen)]
    return replace(observed, events=[*seen, *copies, *more], witnessed=None)


def _unseen_reads(book: Sequence[Event], seen: Sequence[Event]) -> Iterator[Event]:
    """Copies to the host that no read and no started copy explains, which a probe saw."""
    for place, reads in _by_place(e for e in book if e.kind == "d2h").items():
        explained = Counter[int]()
        for event in _explaining(seen, place):
            explained[event.nbytes or 0] += event.count
        odd = []
        for event in reads:
            known = min(event.count, explained[event.nbytes or 0])
            explained[event.nbytes or 0] -= known
            if event.count > known:
                odd.append(replace(event, count=event.count - known))
        # One read of an array on several devices is a copy from each of them.
        budget = sum(nbytes * count for nbytes, count in explained.items())
        for event in odd:
            nbytes = event.nbytes or 0
            known = event.count if not nbytes else min(event.count, budget // nbytes)
            budget -= known * nbytes
            if event.count > known:
                yield replace(event, count=event.count - known, detail=UNSEEN)


def _explaining(seen: Sequence[Event], place: Place) -> Iterator[Event]:
    """What the probes saw that is a copy to the host in this step."""
    for event in seen:
        if (event.phase, event.step) == place:
            was_copied = event.kind == "d2h" and event.detail not in (PREFETCHED, STARTED)
            if was_copied or event.kind == "async_copy":
                yield event


def _unseen_compiles(book: Sequence[Event], seen: Sequence[Event]) -> Iterator[Event]:
    """Compiles that JAX reported to nobody. Not all that it reports are this device's."""
    for place, found in _by_place(e for e in book if e.kind == "compile").items():
        known = sum(
            e.count for e in seen if e.kind == "compile" and (e.phase, e.step) == place
        )  # fmt: skip
        for event in found:
            left = max(0, event.count - known)
            known = max(0, known - event.count)
            if left:
                yield replace(event, count=left, nbytes=None, detail=UNSEEN)


def _by_place(events: Iterable[Event]) -> dict[Place, list[Event]]:
    found: dict[Place, list[Event]] = {}
    for event in events:
        found.setdefault((event.phase, event.step), []).append(event)
    return found
