"""Exercises on a device next door: solutions pass there, and starters fail."""

from collections.abc import Iterator

import pytest
from conftest import ROOT
from variant_grading import SEED, Grading, problem

from grader.course import catalog
from grader.course.catalog import Entry
from grader.judging.judge import judge
from grader.records.record import Record
from grader.running.session import Options, Session, modules_of

ENTRIES = [entry for entry in catalog.entries() if entry.exercise.next_door]


@pytest.fixture(scope="module")
def grading() -> Iterator[Grading]:
    """Gradings on a device next door."""
    with Session(Options(device="next-door"), modules_of(ENTRIES)) as session:
        yield Grading(session, SEED)


def on_the_device(record: Record) -> bool:
    """Whether both sides ran next door, and each has a book that proves itself."""
    sides = [record.submission, record.reference]
    books = [side.witnessed for side in sides if side is not None]
    return len(books) == 2 and all(book is not None and not book.problem for book in books)


def test_the_exercises_that_gain_run_there() -> None:
    wanted = "02 03 04 05 06 07 08 09 11 12 14 17 19 20 21 26 27"
    assert [entry.id for entry in ENTRIES] == [f"ex{number}" for number in wanted.split()]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_a_starter_fails_and_a_solution_passes(entry: Entry, grading: Grading) -> None:
    """In one test, so that the reference runs once. No solution is timed: that is not for here."""
    record = grading.record(entry, ROOT / "exercises" / f"{entry.stem}.py", "")
    assert on_the_device(record)
    assert judge(record, entry.exercise).exit_code == 1
    if not entry.exercise.loop_timing:
        record = grading.record(entry, entry.solution, "")
        assert on_the_device(record)
        assert problem(judge(record, entry.exercise), "") == ""
