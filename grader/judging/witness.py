"""Counts by a second witness, and lays the probes' lines beside what it says.

Two witnesses saw a submission: the probes in its own process, and one below Python. Next door,
that is the book that the device kept in another process (`grader.records.book`). Elsewhere it is
the trace of JAX's own C++ runtime, read into entries like a book's (`grader.probes.runtime`). Both
know to what phase, step and line their entries belong by the marks between them.

The book has every copy, so the counts are the book's. The trace has what the runtime notes, so a
copy, a compile or a wait that either of the two saw is counted. The probes say which line did it,
and what no probe saw is counted all the same, with the line that the marks give or with none. That
devices exchanged something, a program's collective, no probe sees: book and trace alone have it.
Nothing that the submission's process says makes a count smaller. Pure functions of data.
"""

import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

from msgspec.structs import replace

from grader.records.book import Book, Entry, EntryKind, Mark
from grader.records.record import (
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
UNTOLD = "in the runtime's trace, and no probe saw it"
"""The detail of what only the trace has."""
MOST_EVENTS = 10_000
"""Events beyond which lines are no longer told apart."""
_COUNTED = {
    "h2d": "h2d",
    "d2h": "d2h",
    "d2d": "d2d",
    "copy": "d2d",  # JAX's transfer guard calls it so too: an array is copied
    "compile": "compile",
    "launch": "launch",
    "callback": "d2h",  # what it is given; what it returns is an h2d
    "wait": "wait",
}
"""What of a book or a trace is counted, and as what. A book's waits are no more than questions."""
_PROVED: tuple[EntryKind, ...] = ("h2d", "d2h", "compile", "launch")
_COPIES: tuple[EventKind, ...] = ("h2d", "d2d")
"""What the book alone says: no probe sees these on a device next door."""
Place = tuple[str, int]
"""Phase and step."""


def witnessed(book: Book) -> Witnessed:
    """What a book says of the one program that it was kept for, by phase, step and line."""
    kinds: Sequence[EntryKind] = (*_PROVED, "d2d") if book.opening.devices > 1 else _PROVED
    entries = [entry for entry in book.entries if entry.event != "wait"]
    if problem := book.problem or _unproved(entries, kinds, "the device's book"):
        return Witnessed(problem=problem)
    return Witnessed(_events(entries))


def traced(entries: Sequence[Entry], kinds: Sequence[EntryKind], problem: str = "") -> Witnessed:
    """What the runtime's trace says of one run, if each of `kinds` was proved after it, too.

    `kinds` were proved before; others do not count. What another thread did than the one that
    began is of client 2. `problem` says why the trace is no evidence.
    """
    counted = [entry for entry in entries if entry.event in ("mark", *kinds)]
    if problem := problem or _unproved(counted, kinds, "the runtime's trace"):
        return Witnessed(problem=problem, by="trace")
    others = {mark.phase for mark, entry in _marked(counted) if entry.client > 1}
    others |= {entry.mark.phase for entry in counted if entry.mark and entry.client > 1}
    return Witnessed(_events(counted), by="trace", shared=sorted(others))


def _events(entries: Sequence[Entry]) -> list[Event]:
    found: Counter[tuple[str, str, int, int, int, str]] = Counter()
    compiled = {entry.program: entry.collectives for entry in entries if entry.event == "compile"}
    for mark, entry in _marked(entries):
        if mark.watched and mark.phase != PROOF:
            line = mark.line if len(found) < MOST_EVENTS else 0
            for kind, nbytes in _counts(entry):
                found[kind, mark.phase, mark.step, line, nbytes, ""] += 1
            if entry.event == "launch":
                for each in entry.collectives or compiled.get(entry.program, []):
                    times = each.count * max(each.runs, 1)
                    found["exchange", mark.phase, mark.step, line, each.nbytes, each.op] += times
    return [
        Event(cast(EventKind, kind), phase, step, line or None, count, nbytes, detail)
        for (kind, phase, step, line, nbytes, detail), count in found.items()
    ]


def _counts(entry: Entry) -> Iterator[tuple[str, int]]:
    """As what an entry counts, with the bytes.

    A copy to another kind of memory is no read: no host sees it. A callback without arrays copies
    nothing.
    """
    if entry.event != "callback":
        yield "d2d" if entry.to_memory else _COUNTED[entry.event], entry.bytes
        return
    if entry.bytes:
        yield "d2h", entry.bytes
    if entry.returned:
        yield "h2d", entry.returned


def _unproved(entries: Sequence[Entry], kinds: Sequence[EntryKind], where: str) -> str:
    """Which known event is not there, or ""."""
    proved = {entry.event for mark, entry in _marked(entries) if mark.phase == PROOF}
    missing = (kind for kind in kinds if kind not in proved)
    return next((f"a known event, {kind}, is not in {where}" for kind in missing), "")


def _marked(entries: Sequence[Entry]) -> Iterator[tuple[Mark, Entry]]:
    """Each counted entry with the first mark that its client made after it was asked for.

    That is the first mark of all where its client makes none. What came after the last mark
    belongs to nothing.
    """
    every = sorted((e for e in entries if e.mark is not None), key=_start)
    of: dict[int, list[Entry]] = {}
    for entry in every:
        of.setdefault(entry.client, []).append(entry)
    counted = (e for e in entries if e.event in _COUNTED and e.client)
    for entry in sorted(counted, key=_asked):
        marks = of.get(entry.client, every)
        at = bisect.bisect_left(marks, _asked(entry), key=_start)
        if at < len(marks) and (mark := marks[at].mark):
            yield mark, entry


def _start(entry: Entry) -> float:
    return entry.start


def _asked(entry: Entry) -> float:
    return entry.start if entry.asked is None else entry.asked


def judged(record: Record) -> Record:
    """The record as it is judged: with a second witness, the events are those of `counted`."""
    submission, reference = record.submission, record.reference
    return replace(
        record,
        submission=None if submission is None else counted(submission),
        reference=None if reference is None else counted(reference),
    )


def counted(observed: Observed) -> Observed:
    """Observations whose events are counted by both witnesses, if there is a second one."""
    second = observed.witnessed
    if second is None:
        return observed
    missing = dict(observed.missing_probes)
    if second.problem:
        missing["transfers"] = missing["reads"] = missing["compiles"] = second.problem
        return replace(observed, missing_probes=missing)
    events = _by_the_book if second.by == "book" else _by_either
    return replace(observed, events=events(second, observed.events), witnessed=None)


def _by_the_book(book: Witnessed, probes: Sequence[Event]) -> list[Event]:
    copies = [event for event in book.events if event.kind in _COPIES]
    seen = [event for event in probes if event.kind not in _COPIES]
    compiles = _unseen("compile", book, seen, UNSEEN)
    return [*seen, *copies, *_exchanges(book), *_unseen_reads(book.events, seen), *compiles]


def _exchanges(second: Witnessed) -> list[Event]:
    """The collectives that ran: no probe sees them, unless a drive exports the program."""
    return [event for event in second.events if event.kind == "exchange"]


def _by_either(trace: Witnessed, probes: Sequence[Event]) -> list[Event]:
    """What the probes saw, and what the trace has beyond that.

    Its waits are those that no probe saw: the worker leaves out the others, by time and thread.
    """
    waits = [replace(e, nbytes=None, detail=UNTOLD) for e in trace.events if e.kind == "wait"]
    kinds: tuple[EventKind, ...] = (*_COPIES, "compile")
    more = [event for kind in kinds for event in _unseen(kind, trace, probes, UNTOLD)]
    return [*probes, *more, *waits, *_exchanges(trace)]


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


def _unseen(
    kind: EventKind, second: Witnessed, seen: Sequence[Event], detail: str
) -> Iterator[Event]:
    """Events of a kind beyond those that the probes saw in the same step.

    Not all that the probes see is the device's. Where several threads worked, what one witness
    has in a step the other may have in the next one, so the whole phase is compared.
    """

    def place(event: Event) -> Place:
        return event.phase, -1 if event.phase in second.shared else event.step

    def line(event: Event) -> tuple[Place, int | None]:
        return place(event), event.line

    probes = [event for event in seen if event.kind == kind]
    left, unused = _beyond([e for e in second.events if e.kind == kind], probes, line)
    for event in _beyond(left, unused, place)[0]:
        yield replace(event, nbytes=None, detail=detail)


def _beyond[K](
    events: Sequence[Event], seen: Sequence[Event], key: Callable[[Event], K]
) -> tuple[list[Event], list[Event]]:
    """Both without what both have under the same key."""
    mine, theirs = _numbers(events, key), _numbers(seen, key)
    return _without(events, theirs, key), _without(seen, mine, key)


def _numbers[K](events: Iterable[Event], key: Callable[[Event], K]) -> Counter[K]:
    found = Counter[K]()
    for event in events:
        found[key(event)] += event.count
    return found


def _without[K](
    events: Iterable[Event], known: Counter[K], key: Callable[[Event], K]
) -> list[Event]:
    """Events, less so many of each key; `known` is used up."""
    left = []
    for event in events:
        both = min(event.count, known[key(event)])
        known[key(event)] -= both
        if event.count > both:
            left.append(replace(event, count=event.count - both))
    return left


def _by_place(events: Iterable[Event]) -> dict[Place, list[Event]]:
    found: dict[Place, list[Event]] = {}
    for event in events:
        found.setdefault((event.phase, event.step), []).append(event)
    return found
