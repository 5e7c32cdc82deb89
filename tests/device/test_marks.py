"""Marks among requests: what they hold comes back whole, and no shape is taken for one."""

import random

import pytest

from grader.device.messages import marks
from grader.records.book import Mark

NAMES = ("", "a", "110 steps", "lauf über 7", "x" * 280, "seven b", "eight by")


@pytest.mark.parametrize("name", NAMES)
def test_a_mark_comes_back(name: str) -> None:
    for step, line, watched in ((0, 0, True), (17, 4321, False)):
        mark = Mark(name, step, line, watched)
        extents = marks.encode(mark, 5)
        assert marks.decode(extents) == mark
        assert all(0 <= extent < 1 << 63 for extent in extents)


def test_no_two_marks_ask_for_the_same_layout() -> None:
    mark = Mark("steps", 3)
    assert len({marks.encode(mark, serial) for serial in range(100)}) == 100


@pytest.mark.parametrize("shape", [(), (3,), (3, 4), (1 << 40,), (0, 0, 0, 0, 0, 0)])
def test_a_shape_is_no_mark_and_no_question(shape: tuple[int, ...]) -> None:
    assert marks.decode(shape) is None
    assert marks.asked(shape) is None


def test_extents_that_are_not_quite_a_mark_are_none() -> None:
    rng = random.Random(0)
    whole = list(marks.encode(Mark("a phase of some steps", 9, 8), 7))
    decoded = 0
    for _ in range(2000):
        extents = list(whole)
        extents[rng.randrange(1, len(extents))] = rng.choice([-1, 0, 1 << 62, -(1 << 63), 300])
        del extents[rng.randrange(1, len(extents)) :][:]
        found = marks.decode(extents)
        assert found is None or isinstance(found, Mark)
        decoded += found is not None
    assert decoded < 2000


def test_a_buffers_number_comes_back() -> None:
    assert marks.asked(marks.asking("buffer", 12, 1)) == ("buffer", 12)
    assert marks.asked(marks.asking("filled", 12, 1)) == ("filled", 12)
    assert marks.answered(marks.answering(34)) == 34
    assert marks.answered(marks.answering(0)) is None
    assert marks.answered("{1,0}") is None
