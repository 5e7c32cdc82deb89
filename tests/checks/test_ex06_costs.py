"""What the staged programs of ex06 cost is the reference's word, not the learner's process's."""

import msgspec
import pytest

from grader.checks.ex06_honest_timer import checks
from grader.checks.ex06_honest_timer.facts import TIMINGS, TimedProgram
from grader.judging.checking import Failure
from grader.records.record import Observed, Outcome, Record

COST = {"work": 0.05, "dispatch": 0.0001, "compiling": 0.0, "copy": 0.0}


def observed(cost: dict[str, float], figure: float, asked: int) -> Observed:
    """A process that timed one program."""
    used = 2, 5, 0, False, 1, False
    timing = TimedProgram("work", cost, [1.0], asked, figure, 1, ["a"], *used, 4, 5, [], True)
    return Observed(Outcome("finished"), facts={TIMINGS: msgspec.to_builtins([timing])})


@pytest.mark.parametrize(
    ("forged", "figure", "asked"),
    [(COST, 0.05, 5), (COST | {"work": 0.01}, 0.05, 5), (COST | {"work": 9.0}, 0.05, 1)],
    ids=["honest", "cheaper", "fewer calls"],
)
def test_a_right_figure_is_right_whatever_the_process_says(
    forged: dict[str, float], figure: float, asked: int
) -> None:
    record = Record("ex06_honest_timer", "", "", 0)
    record.submission = observed(forged, figure, asked)
    record.reference = observed(COST, 0.05, 5)
    assert checks.tells_of_one_call(record) is None
    assert checks.times_all_calls(record) is None


def test_a_forged_cost_makes_no_figure_right() -> None:
    record = Record("ex06_honest_timer", "", "", 0)
    record.submission = observed(COST | {"work": 1.0}, 1.0, 1)
    record.reference = observed(COST, 0.05, 7)
    assert isinstance(checks.tells_of_one_call(record), Failure)
    failure = checks.times_all_calls(record)
    assert isinstance(failure, Failure)
    assert failure.expected.startswith("7 calls")
