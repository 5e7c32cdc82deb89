"""Exercises on a device next door: solutions pass there, and starters fail.

Where a run of the tests grades a part of the variants, it grades a part of these exercises, too.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT
from variant_grading import SEED, Grading, of_this_run

from grader.course import catalog
from grader.course.catalog import Entry
from grader.judging.checking import Exercise
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


class Untimed(Entry):
    """An exercise whose loop is not timed: what a device next door is for is counted."""

    @property
    def exercise(self) -> Exercise:
        return replace(super().exercise, loop_timing=None)


SOLUTIONS = of_this_run([entry.solution for entry in ENTRIES])


@pytest.mark.parametrize("solution", SOLUTIONS, ids=lambda path: path.stem[:4])
def test_a_starter_fails_and_a_solution_passes(solution: Path, grading: Grading) -> None:
    """In one test, so that the reference runs once."""
    untimed = Untimed(solution.stem)
    starter = ROOT / "exercises" / solution.name
    for path, expected in ((starter, "fail"), (solution, "pass")):
        record = grading.record(untimed, path, "")
        assert on_the_device(record)
        assert record.submission is not None
        assert record.submission.outcome.kind in ("finished", "raised"), record.submission.outcome
        report = judge(record, Entry(solution.stem).exercise)
        statuses = {v.check: v.status for v in report.verdicts if v.ground != "timing"}
        found = set(statuses.values()) - ({"pass", "blocked"} if expected == "fail" else set())
        assert found == {expected}, statuses
