"""Judging records: it is repeatable, needs no JAX, and blames a broken check on the grader."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT, Cli, python, stamped
from made_up import add, exercise, record, statuses

from grader.course.catalog import Entry
from grader.judging.arrays import FORM
from grader.judging.checking import Failure, Result, Unable
from grader.judging.judge import LONGEST, WHAT_A_FILE_MAY_HOLD, judge, worth_timing
from grader.records.record import Finding, Frame, Observed, Outcome, Record, decode_record
from grader.source import places

RECORDS = sorted((ROOT / "tests" / "golden" / "records").glob("*.json"))


def test_saved_records_were_found() -> None:
    assert len(RECORDS) >= 3


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_saved_record_gives_the_same_report(
    path: Path, grader: Cli, golden: Callable[[str, str], None], tmp_path: Path
) -> None:
    """`tests/golden/records/generate.py` writes the records."""
    saved = stamped(path.name, tmp_path)
    ran = grader("judge", saved, GRADER_SITE="https://course.example")
    assert ran.stderr == ""
    assert ran.returncode == (0 if path.stem.endswith("solution") else 1)
    golden(f"reports/{path.stem}.txt", ran.stdout)


def test_judging_runs_nothing_and_imports_no_jax(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys\n"
        "from pathlib import Path\n"
        "from grader.app import grading\n"
        "def refuse(event, arguments):\n"
        "    if event in ('os.fork', 'os.exec', 'subprocess.Popen', 'os.posix_spawn'):\n"
        "        raise SystemExit(f'judging started a process: {event} {arguments}')\n"
        "sys.addaudithook(refuse)\n"
        "for path in sys.argv[1:]:\n"
        "    grading.judge_saved(Path(path), 'json')\n"
        "assert 'jax' not in sys.modules, 'judging imported jax'\n"
    )
    ran = python("-c", code, *(stamped(path.name, tmp_path) for path in RECORDS))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.count('"exit_code"') == len(RECORDS)


def test_a_file_that_is_not_a_record_is_refused(grader: Cli, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    for content, said in (
        ("{", "is no record of this grader"),
        ('{"version": 1}', "is no record of this grader"),
        ("[]", "is no record of this grader"),
        (RECORDS[0].read_text("utf-8").replace('"version":1', '"version":99', 1), "version 99"),
        (RECORDS[0].read_text("utf-8").replace("ex0", "ex9", 1), "no exercise `ex9"),
    ):
        path.write_text(content, "utf-8")
        ran = grader("judge", path)
        assert ran.returncode == 2
        assert ran.stderr.count("\n") == 1
        assert said in ran.stderr
    assert grader("judge", tmp_path / "none.json").returncode == 2


def test_hostile_values_in_a_record_break_nothing(grader: Cli, tmp_path: Path) -> None:
    """A record is what an untrusted process sent: values may be any bytes."""
    saved = json.loads(stamped("ex07_starter.json", tmp_path).read_text("utf-8"))
    for leaves in saved["submission"]["values"].values():
        for leaf in leaves:
            leaf["data"] = "AAAA"
    path = tmp_path / "record.json"
    path.write_text(json.dumps(saved), "utf-8")
    ran = grader("judge", path)
    assert ran.returncode == 1
    assert "unreadable values" in ran.stdout


def test_every_check_is_reported_once_and_in_order() -> None:
    report = judge(record(), exercise(one=None, two=Failure("x", "y"), three=Unable("why")))
    assert statuses(report) == {
        "source": "pass",
        "runs": "pass",
        "one": "pass",
        "two": "fail",
        "three": "could not check",
    }
    assert report.exit_code == 1


def test_exit_codes() -> None:
    assert judge(record(), exercise(one=None)).exit_code == 0
    assert judge(record(), exercise(one=None, two=Unable("w"))).exit_code == 3
    assert judge(record(), exercise(one=Failure("x", "y"), two=Unable("w"))).exit_code == 1


def test_a_check_waits_for_those_before_it() -> None:
    made = exercise(one=Failure("x", "y"))
    add(made, "two", lambda record: None, after=("one",))
    add(made, "three", lambda record: None, after=("two",))
    add(made, "four", lambda record: None)
    add(made, "fast", lambda record: None, ground="timing")
    report = judge(record(), made)
    assert [v.reason for v in report.verdicts[3:]] == [
        "waits for one",
        "waits for two",
        "",
        "waits for one",
    ]
    assert not worth_timing(record(), made)


def test_a_check_after_one_that_could_not_be_checked_cannot_be_either() -> None:
    made = exercise(one=Unable("no probe"))
    add(made, "two", lambda record: Failure("x", "y"), after=("one",))
    assert statuses(judge(record(), made))["two"] == "could not check"


def test_timing_is_worth_its_time_when_all_else_passes() -> None:
    made = exercise(one=None)
    add(made, "fast", lambda record: Failure("x", "y"), ground="timing")
    assert worth_timing(record(), made)


def test_findings_block_everything() -> None:
    findings = [Finding("policy", 2, "no os", "os"), Finding("policy", 2, "no sys", "sys")]
    report = judge(record(None, findings=findings), exercise(one=None))
    assert statuses(report) == {"source": "fail", "one": "blocked"}
    verdict = report.verdicts[0]
    assert (verdict.expected, verdict.observed) == ("no os; no sys", "os; sys")
    assert [(place.line, place.text) for place in verdict.culprits] == [(2, "b = 2")]
    assert verdict.lesson == WHAT_A_FILE_MAY_HOLD
    assert (ROOT / "docs" / f"{verdict.lesson}.md").is_file()
    assert "page below" in verdict.hint


def test_a_file_that_raises() -> None:
    frames = [Frame(1, "f", "a = 1"), Frame(2, "g", "b = 2")]
    raised = Observed(Outcome("raised", "ValueError: no", frames, "printed"))
    report = judge(record(raised), exercise(one=None))
    assert statuses(report) == {"source": "pass", "runs": "fail", "one": "blocked"}
    verdict = report.verdicts[1]
    assert (verdict.expected, verdict.observed) == ("no exception", "ValueError: no")
    assert (verdict.culprits[0].line, report.output) == (2, "printed")


def test_a_machine_that_cannot_run_it() -> None:
    report = judge(record(None, unavailable="no GPU"), exercise(one=Failure("x", "y")))
    assert statuses(report) == {
        "source": "pass",
        "runs": "could not check",
        "one": "could not check",
    }
    assert report.exit_code == 3


def test_a_check_that_raises_is_the_graders_fault() -> None:
    made = exercise()

    def broken(record: Record) -> Result:
        raise KeyError("x")

    add(made, "broken", broken)
    add(made, "sound", lambda record: None)
    report = judge(record(), made)
    assert statuses(report) == {
        "source": "pass",
        "runs": "pass",
        "broken": "could not check",
        "sound": "pass",
    }
    verdict = report.verdicts[2]
    assert verdict.fault == "check broken: KeyError: 'x'"
    assert verdict.reason == (
        "the grader itself is at fault, not your file; please report: check broken: KeyError: 'x'"
    )
    assert report.exit_code == 4
    add(made, "wrong", lambda record: Failure("x", "y"))
    assert judge(record(), made).exit_code == 4
    assert not worth_timing(record(), made)


def a_number_of_the_facts(record: Record) -> Result:
    """A check that trusts the form of what it reads."""
    assert record.submission is not None
    facts = record.submission.facts
    return None if facts["losses"][0] + facts["more"]["a"] > 0 else Failure("x", "y")


@pytest.mark.parametrize(
    ("facts", "observed"),
    [
        ({}, "nothing is known of `losses`"),
        (
            {"losses": [None], "more": {"a": 1}},
            "`losses`: nothing (as for NaN and infinity) where a number is expected",
        ),
        ({"losses": ["1"], "more": {"a": 1}}, "`losses`: a text where a number is expected"),
        ({"losses": 1, "more": {"a": 1}}, "`losses`: a number where a list is expected"),
        ({"losses": [1], "more": {"A": 1}}, "`more`: no `a`"),
        ({"losses": [1], "more": {"a": [1]}}, "`more`: a list where a number is expected"),
        ({"losses": [], "more": {"a": 1}}, "something else (IndexError: list index out of range)"),
    ],
)
def test_facts_that_a_sound_check_cannot_read_are_a_failure(
    facts: dict[str, object], observed: str
) -> None:
    made = exercise()
    add(made, "sum", a_number_of_the_facts)
    good = Observed(Outcome("finished"), facts={"losses": [1.5, 2], "more": {"a": 1}})
    mine = record(Observed(Outcome("finished"), facts=facts), reference=good)
    verdict = judge(mine, made).verdicts[2]
    assert (verdict.status, verdict.fault) == ("fail", "")
    assert verdict.observed == observed
    assert verdict.expected == "what the code returns and does has the form that this check reads"


def test_a_fault_of_the_grader_in_the_run_is_reported_and_nothing_is_judged() -> None:
    report = judge(record(broken="the reference solution ended"), exercise(one=None))
    assert statuses(report) == {
        "source": "pass",
        "runs": "could not check",
        "one": "could not check",
    }
    assert report.exit_code == 4
    assert "please report: the reference solution ended" in report.verdicts[1].reason


def test_checks_do_not_change_the_record() -> None:
    for path in RECORDS:
        saved = decode_record(path.read_bytes())
        judge(saved, Entry(saved.exercise).exercise)
        assert saved == decode_record(path.read_bytes())


def test_an_unusable_answer_is_reported_with_what_was_asked() -> None:
    promise = "`f` returns two things"
    kept = Observed(Outcome("unusable", "it returned a list", promise=promise))
    runs = judge(record(kept), exercise()).verdicts[1]
    assert (runs.expected, runs.observed) == (promise, "it returned a list")


@pytest.mark.parametrize(
    ("line", "lines"),
    [("worst = max(errors)", [2, 3]), ("worst = errors.max(1)", [2]), ("worst = max(1, 2)", [2])],
)
def test_a_run_without_end_may_take_an_array_apart(line: str, lines: list[int]) -> None:
    late = Outcome("timeout", "still running after 60 s", frames=[Frame(2, "f", "errors = g()")])
    source = f"def f():\n    errors = g()\n    {line}\n"
    runs = judge(record(Observed(late), source=source), exercise()).verdicts[1]
    assert [place.line for place in runs.culprits] == lines
    assert ("one by one" in runs.hint) == (len(lines) > 1)


def test_an_exception_outside_the_file_is_shown_whole_and_placed_at_the_edit() -> None:
    message = "ValueError: out_specs is too long:\n\nout_specs[1] is P('data')"
    raised = record(Observed(Outcome("unusable", message)), source="x = 1\ndef f(x):\n    pass\n")
    runs = judge(raised, exercise()).verdicts[1]
    assert runs.expected == "`f` returns what its docstring says"
    assert runs.observed == f"with what was returned, this was raised: {message}"
    assert [place.line for place in runs.culprits] == [2]


def narrowed(source: str, *, model: str = "", **failure: str) -> tuple[list[int], str]:
    """Where a failure without a line of its own is placed, and what was observed."""
    place = places.of_definitions(places.File(source), ["f"])
    failed = Failure(failure.get("expected", "x"), failure.get("observed", "y"), place)
    made = exercise(one=replace(failed, hint=failure.get("hint", "")))
    made.model = model or source
    verdict = judge(record(source=source), made).verdicts[2]
    assert verdict.status == "fail"
    return [one.line for one in verdict.culprits], verdict.observed


def test_a_failure_at_a_definition_is_placed_at_a_slip_inside() -> None:
    right = "def f(step, x, device):\n    x = step(x, device)\n    return x\n"
    wrong = right.replace("x = step", "step")
    lines, observed = narrowed(wrong, model=right)
    assert lines == [2]
    assert observed.endswith("what `step` returns on this line is dropped")
    assert narrowed(right, model=right) == ([2], "y")  # its only statement


@pytest.mark.parametrize("statement", [f"a = 0x{'f' * 20_000}", f"({'not ' * 500}x)()"])
def test_a_text_that_python_cannot_write_costs_no_verdict(statement: str) -> None:
    right = "def f(x):\n    return x\n"
    lines, observed = narrowed(
        f"{statement}\ndef f(x):\n    {statement}\n    return x\n", model=right
    )
    assert (len(lines), observed) == (1, "y")


def test_where_it_happened_is_a_courtesy(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RecursionError

    for name in ("missing", "slips", "led_to", "given_names", "of_words"):
        monkeypatch.setattr(f"grader.judging.judge.{name}", broken)
    lines, observed = narrowed("def f(x):\n    return x\n")
    assert (lines, observed) == ([1], "y")
    raised = Outcome("raised", "ValueError: no", [Frame(2, "f", "return x")])
    runs = judge(record(Observed(raised)), exercise()).verdicts[1]
    assert (runs.status, runs.observed) == ("fail", "ValueError: no")


def test_a_wrapper_that_returns_nothing_is_blamed_for_what_it_decorates() -> None:
    right = "def f(x):\n    return x\n"
    own = "def own(f):\n    def call(x):\n        f(x)\n\n    return call\n\n\n@own\n"
    made = exercise()
    made.model = right
    unusable = Outcome("unusable", "it returned None", promise="`f` returns a number")
    runs = judge(record(Observed(unusable), source=own + right), made).verdicts[1]
    assert (runs.expected, runs.culprits[0].line) == ("`f` returns a number", 2)
    assert runs.observed == "`call` returned None: no `return` gives a value"


def test_a_fault_in_judging_is_one_reports_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise AttributeError("no `tree`")

    monkeypatch.setattr("grader.judging.judge._source", broken)
    report = judge(record(), exercise(one=None))
    assert (report.exit_code, report.path) == (4, "exercises/ex.py")
    assert report.verdicts[0].fault == "judging: AttributeError: no `tree`"
    assert "the grader itself is at fault, not your file" in report.verdicts[0].reason


def test_a_failure_of_megabytes_is_cut() -> None:
    long = "a" * 10_000_000
    verdict = judge(record(), exercise(one=Failure(long, long, hint=long))).verdicts[2]
    said = {verdict.expected, verdict.observed, verdict.hint}
    assert said == {f"{long[:LONGEST]} ..."}


def test_a_parameter_that_is_not_used_explains_only_what_it_has_to_do_with() -> None:
    right = "def f(x, device):\n    return g(x, device)\n"
    wrong = "def f(x, device):\n    return g(x)\n"
    assert narrowed(wrong, model=right) == ([2], "y")
    _, observed = narrowed(wrong, model=right, expected="all lie on the device")
    assert observed == "y\n`f` does not use `device`"


@pytest.mark.parametrize(
    ("failure", "line"),
    [
        ({"hint": FORM}, 6),
        ({"expected": "8 calls of `step`"}, 4),
        ({"observed": "XLA_SOME_FLAG is 3"}, 5),
        ({"observed": "`f` donates it"}, 1),
        ({}, 2),
    ],
)
def test_what_a_failure_is_about_gives_its_line(failure: dict[str, str], line: int) -> None:
    source = (
        "@jax.jit\ndef f(step, x):\n    for _ in range(7):\n        x = step(x)\n"
        "    os.environ['XLA_SOME_FLAG'] = '3'\n    return x\n"
    )
    assert narrowed(source, **failure)[0] == [line]


def test_a_call_that_raises_before_it_begins_is_placed_at_the_decorator() -> None:
    message = "ValueError: Non-hashable static arguments are used"
    source = "import jax\n@jax.jit(static_argnums=0)\ndef f(x):\n    return x\n"
    kept = Observed(Outcome("unusable", message))
    runs = judge(record(kept, source=source), exercise()).verdicts[1]
    assert [place.line for place in runs.culprits] == [2]
    assert runs.observed.startswith("an argument that `static_argnums`")
