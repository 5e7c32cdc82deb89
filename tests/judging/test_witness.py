"""Counts by the book: what the probes saw adds lines, and takes nothing away."""

from collections.abc import Sequence
from typing import Any

from grader.judging import witness
from grader.judging.witness import PROOF, UNSEEN, UNTOLD, counted, traced, witnessed
from grader.records.book import Book, Closing, Entry, Mark, Opening, count
from grader.records.record import (
    PREFETCHED,
    STARTED,
    Collective,
    Event,
    Observed,
    Outcome,
    Witnessed,
)

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


def test_a_callback_reads_what_it_is_given_and_puts_what_it_returns() -> None:
    calls = entry("callback", 10.5, 4), entry("callback", 10.6, 8, returned=16)
    silent = entry("callback", 10.7, 0)
    found = witnessed(book(*calls, silent, mark(11.0, "step")))
    counted = [(event.kind, event.nbytes, event.count) for event in found.events]
    assert counted == [("d2h", 4, 1), ("d2h", 8, 1), ("h2d", 16, 1)]


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


KINDS: tuple[Any, ...] = ("h2d", "d2d", "compile", "wait")
NOTED = [*(Entry(kind, 0.1, client=1) for kind in KINDS), mark(0.2, PROOF)]


def noted(event: Any, start: float, client: int = 1) -> Entry:
    """An entry of the runtime's trace; client 2 is another thread than the one that began."""
    return Entry(event, start, start + 0.1, client=client)


def of_trace(trace: Sequence[Event], probes: Sequence[Event], *shared: str) -> list[Event]:
    """What is judged of the probes and a trace."""
    second = Witnessed(list(trace), by="trace", shared=list(shared))
    observed = Observed(Outcome("finished"), events=list(probes), witnessed=second)
    return counted(observed).events


def copies(step: int, count: int = 1, line: int | None = 7, **more: Any) -> Event:
    return Event("d2d", "run", step, line, count, **more)


def test_a_trace_is_read_like_a_book() -> None:
    found = traced(
        [*NOTED, noted("d2d", 1.0), mark(1.5, "run", 1, 12), noted("d2d", 2.0), mark(3.0, "")],
        KINDS,
    )
    assert (found.by, found.problem, found.shared) == ("trace", "", [])
    assert found.events == [copies(1, line=12, nbytes=0), Event("d2d", "", nbytes=0)]


def test_a_kind_that_was_not_proved_at_first_does_not_count() -> None:
    entries = [*NOTED, noted("d2d", 1.0), noted("compile", 1.1), mark(1.5, "run")]
    assert [event.kind for event in traced(entries, ("d2d",)).events] == ["d2d"]


def test_a_trace_that_fell_silent_is_no_evidence() -> None:
    without = [each for each in NOTED if each.event != "d2d"]
    found = traced([noted("d2d", 0.01), mark(0.02, "run"), *without], KINDS)
    assert "a known event, d2d, is not in the runtime's trace" in found.problem
    judged = counted(Observed(Outcome("finished"), witnessed=found))
    assert set(judged.missing_probes) == {"transfers", "reads", "compiles"}
    assert traced(NOTED, KINDS, "marks are missing").problem == "marks are missing"


def test_a_copy_that_either_witness_saw_is_a_copy() -> None:
    assert of_trace([], [copies(1)]) == [copies(1)]
    assert of_trace([copies(1)], [copies(1, nbytes=8)]) == [copies(1, nbytes=8)]
    assert of_trace([copies(1)], []) == [copies(1, detail=UNTOLD)]
    more = [copies(1, 2), copies(1, 3, detail=UNTOLD)]
    assert of_trace([copies(1, 5)], [copies(1, 2)]) == more


def test_no_more_copies_are_counted_than_one_witness_saw_in_a_step() -> None:
    assert of_trace([copies(1, 4, line=8)], [copies(1, 4)]) == [copies(1, 4)]
    elsewhere = copies(2, 4)
    assert of_trace([elsewhere], [copies(1, 4)]) == [copies(1, 4), copies(2, 4, detail=UNTOLD)]


def test_what_both_saw_on_a_line_does_not_hide_another_line() -> None:
    both = [copies(1, line=8), copies(1, line=9)]
    assert of_trace(both, [copies(1, line=9)])[1:] == [copies(1, line=8, detail=UNTOLD)]


def test_steps_are_not_compared_where_several_threads_worked() -> None:
    assert of_trace([copies(1)], [copies(2)], "run") == [copies(2)]
    assert of_trace([copies(1)], [copies(2)], "other")[1:] == [copies(1, detail=UNTOLD)]
    entries = [*NOTED, noted("d2d", 1.0, client=2), mark(1.5, "run"), mark(2.0, "next")]
    assert traced(entries, KINDS).shared == ["run"]


def test_a_line_of_another_thread_is_not_the_one_that_copied() -> None:
    other = Entry("mark", 1.2, 1.2, client=2, mark=Mark("run", 1, 30))
    found = traced([*NOTED, noted("wait", 1.0), other, mark(1.5, "run", 1, 12)], KINDS)
    assert [event.line for event in found.events] == [12]


def test_a_wait_that_no_probe_saw_is_counted() -> None:
    wait, seen = Event("wait", "run", 1, 7, nbytes=0), Event("wait", "run", 1, 9)
    unseen = Event("wait", "run", 1, 7, detail=UNTOLD)
    assert of_trace([wait], [seen]) == [seen, unseen]


def test_a_collective_counts_as_often_as_it_ran() -> None:
    ran = [Collective("all-gather", 64, 2), Collective("all-reduce", 4, 1, runs=3)]
    run = [entry("launch", at, program="step") for at in (1.0, 1.1)]
    compiled = entry("compile", 0.5, program="step", collectives=ran)
    found = witnessed(book(compiled, mark(0.6, ""), *run, mark(1.5, "run", 1, 12)))
    exchanges = [event for event in found.events if event.kind == "exchange"]
    assert exchanges == [
        Event("exchange", "run", 1, 12, 4, 64, "all-gather"),
        Event("exchange", "run", 1, 12, 6, 4, "all-reduce"),
    ]
    assert [event for event in of(found.events, []) if event.kind == "exchange"] == exchanges


def test_of_a_trace_launches_are_known_by_what_devices_exchanged() -> None:
    exchanged = [Collective("all-to-all", 0)]
    alone = Entry("launch", 1.0, 1.0, client=1, collectives=exchanged)
    proved = [*NOTED, noted("launch", 0.15)]
    found = traced([*proved, alone, mark(1.5, "run", 1, 12)], (*KINDS, "launch"))
    exchange = Event("exchange", "run", 1, 12, 1, 0, "all-to-all")
    assert [event for event in found.events if event.kind == "exchange"] == [exchange]
    assert of_trace(found.events, []) == [exchange]
    silent = traced([*NOTED, alone, mark(1.5, "run", 1, 12)], (*KINDS, "launch"))
    assert "a known event, launch, is not in the runtime's trace" in silent.problem


def test_a_trace_explains_no_event_away() -> None:
    probes = [read(1), copies(1, 9), Event("compile", "run", 1, 5)]
    assert of_trace([], probes) == probes


def test_nothing_that_is_not_witnessed_is_changed() -> None:
    observed = Observed(Outcome("finished"), events=[read(1)])
    assert counted(observed) is observed
    assert witness.judged.__doc__
