"""Which references run beside the grading before theirs."""

import pytest
from fenced import SEED

from grader.course.catalog import Entry
from grader.running import grade
from grader.running.grade import begin_next
from grader.running.session import NoDevice, Session
from grader.running.sides import Place

PLACED, CREATED = Entry("ex02_mixed_devices"), Entry("ex03_create_in_place")
TIMED = Entry("ex07_quiet_loop")


def test_it_runs_on_the_seed_that_was_asked_for(session: Session) -> None:
    begun = begin_next(PLACED, CREATED, session, None, SEED)
    assert begun is not None
    assert begun.seed == SEED
    assert begun.side.finished


def test_without_a_seed_it_gets_one_that_nobody_knows(session: Session) -> None:
    found = [begin_next(PLACED, CREATED, session, None, None) for _ in range(2)]
    for each in found:
        assert each is not None
        each.side.wait()
    assert len({each.seed for each in found if each}) == 2


def test_nothing_runs_beside_a_comparison_of_times(session: Session) -> None:
    assert begin_next(TIMED, CREATED, session, None, SEED) is None


def test_two_share_no_gpu(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grade, "place_for", lambda *_: Place("gpu", 1))
    assert begin_next(PLACED, CREATED, session, None, SEED) is None


def test_what_has_no_device_is_left_to_the_grading(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> Place:
        raise NoDevice("none")

    monkeypatch.setattr(grade, "place_for", none)
    assert begin_next(PLACED, CREATED, session, None, SEED) is None
