"""Counts by the book: what the probes saw adds lines, and takes nothing away."""

from collections.abc import Sequence
from typing import Any

from grader.judging import witness
from grader.judging.book import Book, Closing, Entry, Mark, Opening, count
from grader.judging.record import PREFETCHED, STARTED, Event, Observed, Outcome, Witnessed
from grader.judging.witness import PROOF, UNSEEN, counted, witnessed

OPENING = Opening(1, "0", "0", 0.0, 1, "next door", 1 << 30)


def entry(event: Any, asked: float, nbytes: int = 4, **more: Any) -> Entry:
    """An entry of a client's, that took long: only when it was asked for counts."""
    return Entry(event, asked + 5, asked=asked, bytes=nbytes, client=1, **more)


def mark(at: float, phase: str, step: int = 0, line: int = 0, *, watched: bool = True) -> Entry:
    return Entry("mark", at, end=at, client=1, mark=Mark(phase, step, line, watched))


PROVED = [*(entry(kind, 0.1) for kind in ("h2d", "d2h", "compile", "launch")), mark(0.2, PROOF)]


def book(*entries: Entry, proved: Sequence[Entry] = PROVED) -> Book:
    every = [*entries, *proved]
    return Book(OPENING, every, Closing(9.0, count(every), []))


def read(step: int, nbytes: int = 4, detail: str = "", kind: Any = "d2h", line: int = 7) -> Event:
    return Event(kind, "run", step, line, nbytes=nbytes, detail=detail)


def of(book_events: Sequence[Event], probes: Sequence[Event]) -> list[Event]:
    """What is judged of both witnesses."""
    observed = Observed(
        Outcome("finished"), events=list(probes), witnessed=Witnessed(list(book_events))
    )
    return counted(observed).events


def test_entries_fall_where_the_next_mark_says() -> None:
    found = witnessed(
        book(
            entry("d2h", 1.0),
            mark(1.5, "run", 1, 12),
            entry("h2d", 2.0, 8),
            entry("h2d", 2.1, 8),
            mark(2.5, "run", 2, 13),
            entry("d2h", 3.0),
            mark(3.5, "run", 2, watched=False),
            entry("d2h", 4.0),
        )
    )
    assert found.problem == ""
    assert found.events == [
        Event("d2h", "run", 1, 12, 1, 4),
        Event("h2d", "run", 2, 13, 2, 8),
    ]


def test_a_book_that_does_not_have_the_known_events_is_no_evidence() -> None:
    without = [each for each in PROVED if each.event != "d2h"]
    found = witnessed(book(proved=without))
    assert "a known event, d2h, is not in the device's book" in found.problem
    judged = counted(Observed(Outcome("finished"), witnessed=found))
    assert set(judged.missing_probes) == {"transfers", "reads", "compiles"}


def test_a_book_that_was_cut_off_is_no_evidence() -> None:
    torn = book()
    torn.problem = "the book was cut off after 3 entries"
    assert witnessed(torn).problem == torn.problem


def test_a_copy_to_pinned_memory_is_no_read() -> None:
    found = witnessed(book(entry("d2h", 1.0, to_memory="pinned_host"), mark(2.0, "run")))
    assert [event.kind for event in found.events] == ["d2d"]


def test_a_read_that_a_probe_saw_keeps_its_line() -> None:
    assert of([read(1, line=9)], [read(1)]) == [read(1)]


def test_a_read_that_no_probe_saw_is_counted() -> None:
    assert of([read(1), read(2, line=0)], [read(1)]) == [read(1), read(2, line=0, detail=UNSEEN)]


def test_one_more_read_than_the_probes_saw_is_counted() -> None:
    seen, three = Event("d2h", "run", 1, 7, 2, 4), Event("d2h", "run", 1, None, 3, 4)
    assert of([three], [seen]) == [seen, Event("d2h", "run", 1, None, 1, 4, UNSEEN)]


def test_a_read_that_was_started_early_explains_no_other() -> None:
    late = read(2, detail=PREFETCHED)
    started = read(1, kind="async_copy")
    assert of([read(1)], [started, late]) == [started, late]
    assert of([read(1), read(2)], [started, late])[2:] == [read(2, detail=UNSEEN)]
    both = [read(1, kind="async_copy"), read(1, detail=STARTED)]
    assert of([read(1)], both) == both
    assert of([read(1), read(1)], both)[2:] == [read(1, detail=UNSEEN)]


def test_one_read_of_an_array_on_eight_devices_is_eight_copies() -> None:
    whole = read(1, nbytes=64)
    shards = Event("d2h", "run", 1, 7, 8, 8)
    assert of([shards], [whole]) == [whole]
    more = Event("d2h", "run", 1, 7, 9, 8)
    assert of([more], [whole])[1:] == [Event("d2h", "run", 1, 7, 1, 8, UNSEEN)]


def test_copies_are_the_books_alone() -> None:
    claimed = Event("h2d", "run", 1, 3, 5, 8)
    copied = Event("h2d", "run", 1, 4, 2, 8)
    assert of([copied], [claimed]) == [copied]


def test_a_compile_that_jax_reported_to_nobody_is_counted() -> None:
    known = Event("compile", "run", 1, 5, 1, detail="jit(step)")
    elsewhere = Event("compile", "other", 1, 5, 1, detail="jit(step)")
    found = Event("compile", "run", 1, 6, 2, 3000)
    assert of([found], [known]) == [known, Event("compile", "run", 1, 6, 1, None, UNSEEN)]
    assert of([], [known, elsewhere]) == [known, elsewhere]


def test_nothing_that_is_not_witnessed_is_changed() -> None:
    observed = Observed(Outcome("finished"), events=[read(1)])
    assert counted(observed) is observed
    assert witness.judged.__doc__
