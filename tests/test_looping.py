"""What `grader.looping` makes of a loop's calls, and of reads that a probe saw between them."""

from typing import Any

import pytest

from grader.looping import Book, Call, calls_of, early_step, indices, stalls
from grader.record import Event, Observed, Outcome, Record

EAGER: list[Call] = [("put", 0), ("step", 0), ("put", 1), ("stop", 0), ("step", 1), ("stop", 1)]
LATE: list[Call] = [("put", 0), ("step", 0), ("stop", 0), ("put", 1), ("step", 1), ("stop", 1)]


def record(calls: list[Call], *reads: int) -> Record:
    """A record of one run, with a read after so many calls."""
    events = [Event("d2h", "run", step=place, line=7) for place in reads]
    seen = Observed(Outcome("finished"), facts={"calls of run": calls}, events=events)
    return Record("ex", "", "", 0, submission=seen)


def test_a_next_batch_that_is_put_first_is_no_stall() -> None:
    assert list(stalls(record(EAGER, 3, 5), "run", 2)) == []


def test_a_wait_before_the_next_batch_is_put_is_a_stall() -> None:
    assert list(stalls(record(LATE), "run", 2)) == [(0, None)]


def test_a_read_that_only_the_probe_saw_is_a_stall_with_its_line() -> None:
    found = list(stalls(record(EAGER, 2), "run", 2))
    assert [(step, event and event.line) for step, event in found] == [(0, 7)]


def test_after_the_last_batch_there_is_nothing_to_put() -> None:
    assert list(stalls(record(LATE[:3]), "run", 1)) == []


def test_reads_of_another_run_do_not_count() -> None:
    assert list(stalls(record([("put", 0), ("step", 0)]), "run", 2)) == []
    assert calls_of(record(EAGER), "run") == EAGER


@pytest.mark.parametrize(
    ("calls", "step"),
    [
        (EAGER, None),
        ([("step", 0), ("step", 1)], 1),
        ([("step", 0), ("stop", 0), ("step", 1)], None),
    ],
)
def test_a_step_before_the_verdict_on_the_last_is_early(
    calls: list[Call], step: int | None
) -> None:
    assert early_step(calls) == step


class Marks:
    """Counts marks, as an observer does."""

    def __init__(self) -> None:
        self.count = 0

    def mark(self) -> None:
        self.count += 1


def test_a_book_knows_which_batch_is_which() -> None:
    marks: Any = Marks()
    batches = [[0.0], [1.0]]
    book = Book(marks, batches, lambda params, batch: (params, batch[0]), list)
    first = book.put(book.ask(0).result())
    assert book.step("params", first) == ("params", 0.0)
    book.step("params", batches[1])  # never put
    book.put([1.0])  # equal, and another
    assert book.stopping(0)(0.5)
    assert book.calls == [
        ("ask", 0),
        ("wait", 0),
        ("put", 0),
        ("step", 0),
        ("step", -1),
        ("put", -1),
        ("stop", 0),
    ]
    assert marks.count == len(book.calls)
    assert indices(book.calls, "step") == [0, -1]
    assert list(book.reads()) == batches
