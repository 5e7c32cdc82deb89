"""What a book adds up to, from books written by hand."""

from typing import get_args

import pytest
from books import MIB, book, copy, training

from grader.records import bookkeeping
from grader.records.book import Entry, EntryKind, Link
from grader.records.bookkeeping import LANES, Lane, Peak, Tally, merged, summary, timeline


def test_copies_waits_launches_and_compiles_are_counted() -> None:
    found = summary(training())
    assert found.copies_in == Tally(2, 1024, 0.5)
    assert found.copies_out == Tally(1, 4, 0.5)
    assert found.copies_across == Tally()
    assert found.waits == Tally(1, 0, 1.75)
    assert found.launches == Tally(2, 8, 2.25)
    assert found.compiles == Tally(1, 0, 1.0)
    assert found.seconds == 4.0
    assert (found.refused, found.lost, found.problem) == (0, 0, "")


def test_a_read_takes_from_its_question_to_its_last_byte() -> None:
    assert summary(training()).read_seconds == 1.75
    unasked = book(copy("d2h", 1.0, 1.5, 0, 4), copy("d2h", 2.0, 2.5, 0, 4, asked=9.0))
    assert summary(unasked).read_seconds == 1.0


def test_programs_stand_by_their_time_and_carry_their_collectives() -> None:
    read = training()
    read.entries.append(Entry("launch", 5.0, 9.0, devices=[0], program="jit_long"))
    long, step = summary(read).programs
    assert (long.name, long.launches, long.compiles, long.seconds) == ("jit_long", 1, 0, 4.0)
    assert (step.name, step.launches, step.compiles) == ("jit_step", 2, 1)
    assert [(c.op, c.nbytes, c.count) for c in step.collectives] == [("all-reduce", 4096, 2)]


def test_copies_of_pinned_host_memory_are_counted_apart() -> None:
    def pinned(event: str, size: int) -> Entry:
        return copy(event, 0, 1, 0, size, memory="pinned_host")

    found = summary(
        book(
            copy("d2d", 0, 1, 0, 10, to=1),
            copy("d2d", 0, 1, 0, 30, to_memory="pinned_host"),
            copy("h2d", 0, 1, 0, 100),
            pinned("d2d", 50),
            pinned("h2d", 300),
            pinned("d2h", 500),
        )
    )
    assert found.copies_across == Tally(1, 10, 1.0)
    assert found.copies_in == Tally(1, 100, 1.0)
    assert found.copies_out == Tally()
    assert found.copies_pinned == Tally(4, 880, 4.0)
    assert found.read_seconds == 0.0


def test_copies_within_a_device_are_counted_apart() -> None:
    pinned = copy("copy", 0, 1, 0, 50, memory="pinned_host")
    found = summary(book(copy("copy", 0, 1, 0, 10), copy("d2d", 0, 1, 0, 7, to=1), pinned))
    assert found.copies_within == Tally(1, 10, 1.0)
    assert found.copies_across == Tally(1, 7, 1.0)
    assert found.copies_pinned == Tally(1, 50, 1.0)
    assert timeline(book(copy("copy", 0, 1, 1, 10)), 1) == [Lane("copy", 1, (1.0,))]


@pytest.mark.parametrize("event", get_args(EntryKind))
def test_an_event_of_any_kind_adds_up(event: EntryKind) -> None:
    read = book(Entry(event, 1.0, 2.0, device=0, devices=[0]))
    assert summary(read).devices == 2
    assert len(timeline(read, 4)) == (event in LANES)


def test_peaks_come_from_the_closing_and_else_from_the_entries() -> None:
    read = training()
    assert summary(read).peaks == [Peak(0, 2 * MIB), Peak(1, MIB)]
    read.closing, read.problem = None, "cut off"
    read.entries.append(
        Entry("launch", 5.0, 5.5, devices=[1], in_use=7, temporaries=3, program="p")
    )
    found = summary(read)
    assert found.peaks == [Peak(0, MIB), Peak(1, 7)]
    assert found.problem == "cut off"


def test_what_is_modelled_is_named() -> None:
    assert summary(training()).modelled == ["host_link"]
    assert summary(book(device_link=Link(1.0))).modelled == ["device_link"]
    assert summary(book()).modelled == []


def test_what_never_ended_lasts_until_the_end() -> None:
    read = book(Entry("launch", 1.0, None, devices=[0], program="p"), copy("h2d", 2.0, 4.0, 0, 8))
    assert summary(read).launches.seconds == 3.0


def test_an_empty_book_adds_up_to_nothing() -> None:
    found = summary(book())
    assert (found.seconds, found.launches, found.programs) == (0.0, Tally(), [])
    assert timeline(book(), 10) == []


def test_out_of_memory_and_a_lost_device_are_counted() -> None:
    found = summary(book(Entry("oom", 1.0, bytes=9), Entry("oom", 2.0), Entry("lost", 3.0)))
    assert (found.refused, found.lost) == (2, 1)


def test_a_timeline_has_a_lane_for_each_event_and_device() -> None:
    lanes = timeline(training(), 4)  # from 1 s to 5 s: a second a column
    assert lanes == [
        Lane("compile", None, (1.0, 0.0, 0.0, 0.0)),
        Lane("h2d", 0, (0.0, 0.25, 0.0, 0.0)),
        Lane("h2d", 1, (0.0, 0.25, 0.0, 0.0)),
        Lane("launch", 0, (0.0, 0.75, 1.0, 0.5)),
        Lane("launch", 1, (0.0, 0.75, 1.0, 0.5)),
        Lane("d2h", 0, (0.0, 0.0, 0.0, 0.5)),
        Lane("wait", None, (0.0, 0.0, 0.75, 1.0)),
    ]


def test_time_is_neither_lost_nor_counted_twice_in_a_lane() -> None:
    overlapping = [copy("h2d", 0.1 * n, 0.1 * n + 0.25, 0, 1) for n in range(40)]
    read = book(*overlapping, copy("h2d", 7.0, 8.0, 0, 1))
    begin, end = bookkeeping.span(read)
    for columns in (1, 3, 7, 100):
        (lane,) = timeline(read, columns)
        busy = sum(lane.shares) * (end - begin) / columns
        assert busy == pytest.approx(4.15 + 1.0)
        assert all(0 <= share <= 1 + 1e-9 for share in lane.shares)


def test_intervals_are_merged() -> None:
    assert merged([(3, 4), (0, 1), (1, 2), (3.5, 3.6), (3.9, 5)]) == [(0, 2), (3, 5)]
    assert merged([]) == []
