"""What a learner's code raises becomes an outcome with the learner's own lines."""

import linecache
import sys
from pathlib import Path

import pytest

from grader.probes.observe import Misused
from grader.records.raised import LONGEST
from grader.records.record import Outcome
from grader.worker.learner import LearnersCode, Stopped, load


def ended(source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Outcome:
    """How the run of a file ends that raises while it is imported."""
    monkeypatch.setitem(sys.modules, "submission", sys)
    path = str(tmp_path / "mine.py")
    try:
        with pytest.raises(Stopped) as stopped:
            load(path, source)
    finally:
        linecache.cache.pop(path, None)
    return stopped.value.outcome


@pytest.mark.parametrize("separator", ["\x0c", "\u2028", "\x85"])
def test_a_frame_shows_the_line_that_raised(
    separator: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = f"# one{separator}two\nx = 'é', unknown\ny = 2\n"
    outcome = ended(source, monkeypatch, tmp_path)
    assert (outcome.kind, outcome.message) == ("raised", "NameError: name 'unknown' is not defined")
    (frame,) = outcome.frames
    assert (frame.line, frame.text) == (2, "x = 'é', unknown")
    assert frame.text[frame.column - 1 : frame.end - 1] == "unknown"


def test_what_cannot_be_printed_keeps_its_frames(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outcome = ended("raise SyntaxError('no', ('f', 1, 1, 5))\n", monkeypatch, tmp_path)
    assert (outcome.kind, len(outcome.frames)) == ("raised", 1)
    assert outcome.message.startswith("SyntaxError: ")


def test_what_an_exit_or_a_misuse_says_is_cut(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outcome = ended("raise SystemExit('A' * 10_000_000)\n", monkeypatch, tmp_path)
    assert (outcome.kind, len(outcome.message) < LONGEST + 100) == ("exited", True)
    with pytest.raises(Stopped) as stopped, LearnersCode("mine.py"):
        raise Misused("a" * 10_000_000, "\ud83d")
    outcome = stopped.value.outcome
    assert (outcome.kind, outcome.message, len(outcome.promise)) == ("unusable", r"\ud83d", LONGEST)
