"""What a learner reads, whole and pinned; on a terminal, in a pipe, on a narrow screen.

After a change of words: `UPDATE_GOLDEN=1 pytest tests/test_report.py`, then read the diff.
"""

import io
import re
from collections.abc import Callable

import msgspec
import pytest
from conftest import ROOT
from rich.console import Console

from grader import report
from grader.record import Frame, Machine
from grader.verdict import Culprit, Report, Verdict

SITE = "https://course.example"
LESSON = "lessons/04-the-inner-loop#reading-stops-the-loop"
CPU = Machine("cpu", "cpu", 8, True, "0.12.0.1", "3.12.1")
LINES = [Culprit(20 + n, f"losses.append(float(loss_{n}))", 9 - n) for n in range(7)]


def verdict(check: str, status: str, **fields: object) -> Verdict:
    """A check's line."""
    made = Verdict(check, f"The {check} is as it should be.", "pass", "observed", lesson=LESSON)
    for name, value in {"status": status, **fields}.items():
        setattr(made, name, value)
    return made


def of(*verdicts: Verdict, output: str = "") -> Report:
    """A report of the same exercise, with the source check before it."""
    whole = verdict("source", "pass", ground="source")
    title = "Report losses without stalling the loop"
    path = "exercises/ex07_quiet_loop.py"
    return Report("ex07_quiet_loop", title, path, 7, [whole, *verdicts], CPU, 1.25, output)


def aimed(*verdicts: Verdict, **fields: object) -> Report:
    """A report of an exercise that has checks for a target."""
    made = of(verdict("runs", "pass"), *verdicts)
    return msgspec.structs.replace(made, **fields)


REPORTS = {
    "pass": of(verdict("runs", "pass"), verdict("same_losses", "pass")),
    "fail": of(
        verdict("runs", "pass"),
        verdict(
            "no_reads",
            "fail",
            expected="0 device-to-host reads between the steps",
            observed="42 reads in 19 steps",
            culprits=LINES,
        ),
        verdict("no_waits", "blocked", reason="waits for no_reads"),
        verdict(
            "same_losses",
            "fail",
            expected="`losses` has 7 values",
            observed="1 value",
        ),
    ),
    "could_not_check": of(
        verdict("runs", "pass"),
        verdict("as_fast", "could not check", ground="timing", reason="too close or too noisy"),
    ),
    "traceback": of(
        verdict(
            "runs",
            "fail",
            expected="no exception",
            observed="TypeError: dot_general requires dimensions\nof the same size",
            culprits=[Culprit(31, "return inputs @ params")],
            traceback=[
                Frame(20, "train", "params, loss = step(params, batch)"),
                Frame(26, "step", "return loss_of(params)"),
                Frame(31, "loss_of", "return inputs @ params"),
            ],
        ),
        verdict("same_losses", "blocked", reason="waits for runs"),
        output="step 0\nstep 1\n",
    ),
    "left_out": aimed(left_out=2),
    "target": aimed(
        verdict(
            "one_exchange",
            "fail",
            ground="target",
            expected="on 8 x NVIDIA H200, one all-reduce for all gradients",
            observed="3 all-reduces of 1,024 bytes",
            culprits=LINES[:1],
        ),
        target="8 x NVIDIA H200",
    ),
    "target_missing": aimed(
        verdict(
            "one_exchange",
            "could not check",
            ground="target",
            reason="compiling for a target needs JAX's CUDA plugin, and no GPU: `make target`",
        ),
        target="8 x NVIDIA H200",
    ),
    "hostile": of(
        verdict(
            "runs",
            "fail",
            expected="little output",
            observed="\x1b[2J\x1b[H  PASS  everything",
        ),
        output="\r  PASS  runs\x07\n\u202eSSAP\x00\n" + "a" * 150 + "\n",
    ),
}


def shown(one: Report, width: int = 10_000) -> str:
    """The text of a report."""
    out = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False)
    report.print_report(one, out, SITE)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


@pytest.mark.parametrize("name", REPORTS)
def test_whole_texts(name: str, golden: Callable[[str, str], None]) -> None:
    text = shown(REPORTS[name])
    assert not [line for line in text.splitlines() if line.endswith(" ")]
    golden(f"reports/{name}.txt", text)


def test_narrow_text(golden: Callable[[str, str], None]) -> None:
    golden("reports/fail_in_40_columns.txt", shown(REPORTS["fail"], 40))


@pytest.mark.parametrize("width", [24, 40, 80])
@pytest.mark.parametrize("name", REPORTS)
def test_a_narrow_terminal_loses_nothing(name: str, width: int) -> None:
    wide, narrow = shown(REPORTS[name]), shown(REPORTS[name], width)
    assert max(map(len, narrow.splitlines())) <= width
    assert re.sub(r"\s", "", narrow) == re.sub(r"\s", "", wide)


def test_a_terminal_gets_colour_and_a_pipe_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for is_terminal in (True, False):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda is_terminal=is_terminal: is_terminal)
        monkeypatch.setattr("sys.stdout", stream)
        report.print_report(REPORTS["fail"], report.console(), SITE)
        assert ("\x1b[" in stream.getvalue()) == is_terminal
        if not is_terminal:
            assert stream.getvalue() == shown(REPORTS["fail"])


def test_long_lines_stay_one_line_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("COLUMNS", "40")
    long = "a " * 20_000
    report.print_report(of(verdict("x", "fail", observed=long)), report.console(), SITE)
    assert f"observed  {long.strip()}\n" in stream.getvalue()


def test_brief_lines(golden: Callable[[str, str], None]) -> None:
    out = Console(file=io.StringIO(), width=10_000, highlight=False)
    for one in REPORTS.values():
        report.print_brief(one, out)
    assert isinstance(out.file, io.StringIO)
    golden("reports/brief.txt", out.file.getvalue())


def test_control_characters_are_shown_not_sent() -> None:
    assert report.plain("a\x1b[2J\tb\x00\n\u202e") == "a\\x1b[2J    b\\x00\\n\\u202e"
    assert report.plain("Größe µ 数 ✓") == "Größe µ 数 ✓"


def test_the_worst_exit_code_wins() -> None:
    good, bad, unknown = (REPORTS[name] for name in ("pass", "fail", "could_not_check"))
    assert report.exit_code([good, good]) == 0
    assert report.exit_code([good, unknown]) == 3
    assert report.exit_code([unknown, bad, good]) == 1
    assert report.exit_code([]) == 0


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (CPU, "8 simulated CPU devices, jax 0.12.0.1"),
        (Machine("cpu", "cpu", 1, False, "0.11.2", ""), "1 CPU device, jax 0.11.2"),
        (Machine("gpu", "NVIDIA H200", 1, False, "0.12.0", ""), "1 NVIDIA H200 device, jax 0.12.0"),
        (Machine("gpu", "NVIDIA T4", 2, False, "0.12.0", ""), "2 NVIDIA T4 devices, jax 0.12.0"),
    ],
)
def test_machines_in_words(machine: Machine, said: str) -> None:
    assert report.machine_line(machine) == said


def test_the_readme_shows_the_report_as_it_is() -> None:
    text = (ROOT / "tests" / "golden" / "reports" / "ex07_starter.txt").read_text("utf-8")
    served = text.replace(SITE, "http://127.0.0.1:8000").strip()
    assert served in (ROOT / "README.md").read_text("utf-8")
