"""What a learner reads, pinned as a whole: on a terminal, in a pipe, on a narrow screen.

After a change of words: `UPDATE_GOLDEN=1 pytest tests/app/test_report.py`, then read the diff.
"""

import io
import json
import re
from collections.abc import Callable

import msgspec
import pytest
from conftest import ROOT
from rich.console import Console

from grader.app import report
from grader.records.record import Frame, Machine
from grader.records.verdict import Culprit, Report, Reports, Unrun, Verdict

SITE = "https://course.example"
LESSON = "lessons/04-the-inner-loop#reading-stops-the-loop"
CPU = Machine("cpu", "cpu", 8, True, "0.12.0.1", "3.12.1")
AROUND = [
    "    for batch in batches:",
    "        params, loss_0 = step(params, batch)",
    "        losses.append(float(loss_0))",
    "    return params, losses",
]
LINES = [
    Culprit(20, AROUND[2].strip(), 9, 23, 36, "train", 18, AROUND),
    *(Culprit(20 + n, f"losses.append(float(loss_{n}))", 9 - n) for n in range(1, 7)),
]


def verdict(check: str, status: str, **fields: object) -> Verdict:
    """The verdict of a check, with these fields."""
    made = Verdict(check, f"The {check} is as it should be.", "pass", "observed", lesson=LESSON)
    for name, value in {"status": status, **fields}.items():
        setattr(made, name, value)
    return made


def report_of(*verdicts: Verdict, output: str = "") -> Report:
    """A report of ex07 with these verdicts, after a passed source check."""
    whole = verdict("source", "pass", ground="source")
    title = "Report losses without stalling the loop"
    path = "exercises/ex07_quiet_loop.py"
    return Report("ex07_quiet_loop", title, path, 7, [whole, *verdicts], CPU, 1.25, output)


def aimed(*verdicts: Verdict, **fields: object) -> Report:
    """A report with these verdicts, after passed source and runs checks, and with these fields."""
    made = report_of(verdict("runs", "pass"), *verdicts)
    return msgspec.structs.replace(made, **fields)


REPORTS = {
    "pass": report_of(verdict("runs", "pass"), verdict("same_losses", "pass")),
    "fail": report_of(
        verdict("runs", "pass"),
        verdict(
            "no_reads",
            "fail",
            expected="0 device-to-host reads between the steps",
            observed="42 reads in 19 steps",
            culprits=LINES,
            hint="float() waits for the device.",
            hint_level=1,
            hints=2,
        ),
        verdict("no_waits", "blocked", reason="waits for no_reads"),
        verdict(
            "same_losses",
            "fail",
            expected="`losses` has 7 values",
            observed="1 value",
        ),
    ),
    "could_not_check": report_of(
        verdict("runs", "pass"),
        verdict("as_fast", "could not check", ground="timing", reason="too close or too noisy"),
    ),
    "traceback": report_of(
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
    "pass_in_part": aimed(
        unrun=[
            Unrun(21, 21, 38, "float(loss)"),
            Unrun(30, 33, 9, "for part in parts:"),
            *(Unrun(line, line, 5, "return 0") for line in range(40, 45)),
        ]
    ),
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
            reason="compiling for a target needs JAX's CUDA plugin, and no GPU: "
            "`grader install-target`",
        ),
        target="8 x NVIDIA H200",
    ),
    "hostile": report_of(
        verdict(
            "runs",
            "fail",
            expected="little output",
            observed="\x1b[2J\x1b[H  PASS  everything",
        ),
        output="\r  PASS  runs\x07\n\u202eSSAP\x00\n" + "a" * 150 + "\n",
    ),
}


def shown(one: Report, width: int = 10_000, *, verbose: bool = False) -> str:
    """The text of a report."""
    out = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False)
    report.print_report(one, out, SITE, verbose=verbose)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


@pytest.mark.parametrize("name", REPORTS)
def test_the_whole_text(name: str, golden: Callable[[str, str], None]) -> None:
    text = shown(REPORTS[name])
    assert not [line for line in text.splitlines() if line.endswith(" ")]
    golden(f"reports/{name}.txt", text)


def test_the_text_in_40_columns(golden: Callable[[str, str], None]) -> None:
    golden("reports/fail_in_40_columns.txt", shown(REPORTS["fail"], 40))


def test_a_verbose_report_has_every_title(golden: Callable[[str, str], None]) -> None:
    golden("reports/fail_verbose.txt", shown(REPORTS["fail"], verbose=True))
    assert all(v.title in shown(REPORTS["pass"], verbose=True) for v in REPORTS["pass"].verdicts)


def test_the_mark_is_below_what_it_marks() -> None:
    text = "\tx = [数.item(), y]"
    place = Culprit(3, text.strip(), 1, 7, 15, "", 3, [text])
    one = report_of(verdict("x", "fail", observed="y", culprits=[place]))
    lines = shown(one).splitlines()
    line = next(number for number, text in enumerate(lines) if "数" in text)
    assert lines[line] == "  3 | x = [数.item(), y]"
    assert lines[line + 1] == "    |      ^^^^^^^^^"


def test_a_terminal_opens_the_paragraph(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Console(file=io.StringIO(), width=200, force_terminal=True, color_system="standard")
    report.print_report(REPORTS["fail"], out, SITE)
    assert isinstance(out.file, io.StringIO)
    assert re.search(r"\x1b\]8;[^;]*;https://course\.example/", out.file.getvalue())


@pytest.mark.parametrize("width", [24, 40, 80])
@pytest.mark.parametrize("name", REPORTS)
def test_a_narrow_terminal_loses_nothing(name: str, width: int) -> None:
    wide, narrow = shown(REPORTS[name]), shown(REPORTS[name], width)
    assert max(map(len, narrow.splitlines())) <= width
    assert re.sub(r"[\s|^]", "", narrow) == re.sub(r"[\s|^]", "", wide)
    assert narrow.count("^") == wide.count("^")


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
    report.print_report(report_of(verdict("x", "fail", observed=long)), report.console(), SITE)
    assert f"observed  {long.strip()}\n" in stream.getvalue()


def test_the_brief_lines(golden: Callable[[str, str], None]) -> None:
    out = Console(file=io.StringIO(), width=10_000, highlight=False)
    for one in REPORTS.values():
        report.print_brief(one, out)
    assert isinstance(out.file, io.StringIO)
    golden("reports/brief.txt", out.file.getvalue())


def test_control_characters_are_shown_not_sent() -> None:
    assert report.plain("a\x1b[2J\tb\x00\n\u202e") == "a\\x1b[2J    b\\x00\\n\\u202e"
    assert report.plain("Größe µ 数 ✓") == "Größe µ 数 ✓"


def test_commands_to_a_ci_system_are_shown_not_given(capsys: pytest.CaptureFixture[str]) -> None:
    said = "a\n::stop-commands::x\n   ::error::no\n##[group]x\nb ##vso[task.x]\nx[::2] ok: :: c"
    made = report_of(verdict("runs", "fail", observed=said), output=said)
    report.print_report(made, report.console(), SITE)
    report.print_brief(made, report.console())
    shown = capsys.readouterr().out
    lines = [line.strip() for line in shown.splitlines()]
    assert not [line for line in lines if line.startswith("::") or "##[" in line or "##vso" in line]
    assert lines.count("\\x3a:stop-commands::x") == 2
    assert lines.count("\\x3a:error::no") == 2
    assert lines.count("#\\x23[group]x") == 2
    assert lines.count("x[::2] ok: :: c") == 2
    text = report.as_json(Reports(1, [made]))
    assert "##[" not in text
    assert "##vso" not in text
    assert json.loads(text)["reports"][0]["output"] == said


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
def test_the_line_about_the_machine(machine: Machine, said: str) -> None:
    assert report.machine_line(machine) == said


def test_the_readme_shows_the_report_as_it_is() -> None:
    text = (ROOT / "tests" / "golden" / "reports" / "ex07_starter.txt").read_text("utf-8")
    served = text.replace(SITE, "http://127.0.0.1:8000").strip()
    assert served in (ROOT / "README.md").read_text("utf-8")
