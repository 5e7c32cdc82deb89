"""Windows of a loop whose results are no numbers, and windows that end early."""

import math
import random
from typing import Any

import msgspec
import pytest

from grader.records.record import Frame, Observed, Outcome
from grader.running.messages import Done
from grader.running.pacing import Runner, Stumbled, _ended_early, _same
from grader.running.process import Failed

RAISED = Outcome("raised", "RuntimeError: no", [Frame(22, "train", "raise RuntimeError")])


class Ending:
    """A worker that prepares a window, and then ends so; it may have no time left to answer."""

    def __init__(self, outcome: Outcome, *, answers: bool) -> None:
        self.outcome, self.answers = outcome, answers
        self.seconds: list[float] = []
        """How long was waited for each answer."""

    def ask(self, _: msgspec.Struct, seconds: float) -> bytes:
        self.seconds.append(seconds)
        if len(self.seconds) == 1:
            return msgspec.json.encode(Done())
        if not self.answers:
            raise Failed(self.outcome)
        return msgspec.json.encode(Done(problem=Observed(self.outcome)))


def test_what_is_no_number_crosses_the_wire_and_differs_from_every_number() -> None:
    sent = msgspec.json.encode(Done([1.0, math.nan, math.inf]))
    got = msgspec.json.decode(sent, type=Done).values
    assert list(got) == [1.0, None, None]
    assert _same(got, got)
    assert not _same(got, [1.0, 2.0, None])
    assert not _same([1.0, 2.0, 3.0], got)
    assert not _same(got, got[:2])


@pytest.mark.parametrize(
    ("outcome", "answers", "is_mine", "wanted"),
    [
        (RAISED, True, True, "fail"),
        (RAISED, True, False, "undecided"),
        (Outcome("timeout", "still running after 15 s"), False, True, "fail"),
        (Outcome("timeout", "still running after 15 s"), False, False, "undecided"),
        (Outcome("killed", "killed by signal 9"), False, True, "undecided"),
    ],
)
def test_a_submission_that_ends_a_timed_run_fails(
    outcome: Outcome, answers: bool, is_mine: bool, wanted: str
) -> None:
    worker: Any = Ending(outcome, answers=answers)
    with pytest.raises(Stumbled) as stumbled:
        Runner(worker, 60.0, random.Random(0), is_mine=is_mine).window(1, 2, 0.0)
    assert worker.seconds == [60.0, 15.0]
    timing = _ended_early(stumbled.value, 1.3)
    assert (timing.verdict, timing.pairs) == (wanted, 0)
    line = " (line 22)" if outcome is RAISED else ""
    assert timing.reason == f"a timed run ended early: {outcome.message}{line}"
