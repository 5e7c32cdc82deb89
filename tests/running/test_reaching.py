"""A file that names numbers meets longer runs, and so does the reference beside it."""

from pathlib import Path

from fenced import SEED

from grader.checks.ex02_mixed_devices.facts import STEPS
from grader.course.catalog import Entry
from grader.judging.judge import judge
from grader.running.grade import grade, look_ahead
from grader.running.session import REACHING, TIMES_REACHING, Session

LOOP = Entry("ex02_mixed_devices")


def test_both_sides_go_beyond_a_number_of_the_file(session: Session, tmp_path: Path) -> None:
    path = tmp_path / LOOP.file_name
    path.write_text(f"{LOOP.solution.read_text('utf-8')}\n\nLATE = 500\n", "utf-8")
    ahead = look_ahead(LOOP, session, seed=SEED)  # it knows of no number
    record = grade(LOOP, path, session, ahead=ahead)
    plain = ahead.side.driven.result()[0]
    assert record.seed == SEED
    assert record.submission is not None
    assert record.reference is not None
    mine, theirs, before = (one.facts for one in (record.submission, record.reference, plain))
    assert mine[STEPS] == theirs[STEPS]
    assert max(before[STEPS]) < 500 < max(mine[STEPS])
    assert {verdict.status for verdict in judge(record, LOOP.exercise).verdicts} == {"pass"}


def test_such_a_run_may_take_longer(session: Session) -> None:
    usual = session.limit("cpu")
    assert session.limit("cpu", (0.5, REACHING)) == TIMES_REACHING * usual
    assert session.limit("cpu", (0.5, REACHING - 1)) == usual
