"""Every exercise, found by its files: all pieces are there, and each does what it says.

The starter fails, the solution passes, right variants pass, and a wrong variant fails
exactly the check that its first line names. If an exercise has checks for a target, all of
this is tested with a target: h200x8, unless the file's second line `# target: NAME` asks for
another. Nothing here names an exercise: a new one is tested because its files exist.
"""

import ast
import math
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import GOLDEN, ROOT
from variant_grading import (
    ONE_IN,
    RIGHT,
    SEED,
    VARIANTS,
    WRONG,
    Grading,
    as_kept,
    expectation,
    failed,
    golden_of,
    graded,
    message,
    name_of,
    of_this_run,
    problem,
    steady,
    unplaced,
    varies,
)

from grader.course import catalog
from grader.course.catalog import Entry
from grader.judging import witness
from grader.judging.judge import judge
from grader.program import targets
from grader.records.record import Record
from grader.records.verdict import Report, Status, Verdict
from grader.running.session import Options, Session, modules_of
from grader.running.sides import Reference

STEMS = sorted(path.stem for path in (ROOT / "exercises").glob("ex*.py"))
CHECKS = (ROOT / "grader" / "checks").glob("ex*/checks.py")
WITH_TARGET = sorted(p.parent.name for p in CHECKS if 'ground="target"' in p.read_text("utf-8"))
PROBES = ("reads", "transfers", "compiles")
MAX_STARTER_LINES, MIN_WRONG, MIN_RIGHT = 60, 6, 3
TWO_NODES = "h200x2x8"


@pytest.fixture(scope="module")
def grading(session: Session) -> Grading:
    """One for all tests of this module."""
    return Grading(session, SEED)


def blind(record: Record, entry: Entry) -> dict[str, Status]:
    """The verdicts if no probe had worked: a mistake that was not seen is never a pass."""
    seen = record.submission
    if seen is not None:
        missing = dict.fromkeys(PROBES, "gone")
        unseeing = msgspec.structs.replace(seen, events=[], missing_probes=missing)
        record = msgspec.structs.replace(record, submission=unseeing)
    return {verdict.check: verdict.status for verdict in judge(record, entry.exercise).verdicts}


def outside(source: str, entry: Entry) -> list[str]:
    """The statements outside the edited definitions, with docstrings and without layout."""
    edits = set(entry.exercise.edits)
    body = [n for n in ast.parse(source).body if getattr(n, "name", None) not in edits]
    return [ast.unparse(node) for node in body]


def test_something_was_found() -> None:
    assert [entry.stem for entry in catalog.entries()] == STEMS != []
    assert {path.parent.parent.name for path in VARIANTS} == set(STEMS)
    assert [stem for stem in STEMS if Entry(stem).exercise.has_target] == WITH_TARGET != []


@pytest.mark.parametrize("stem", STEMS)
def test_all_pieces_exist(stem: str) -> None:
    for piece in ("exercises/{}.py", "solutions/{}.py"):
        assert (ROOT / piece.format(stem)).is_file()
    for half in ("__init__.py", "drive.py", "checks.py"):
        assert (ROOT / "grader" / "checks" / stem / half).is_file()
    assert (ROOT / "docs" / "exercises" / f"{stem}.md").is_file()
    assert sum(path.parent.parent.name == stem for path in WRONG) >= MIN_WRONG
    assert sum(path.parent.parent.name == stem for path in RIGHT) >= MIN_RIGHT


@pytest.mark.parametrize("stem", STEMS)
def test_a_starter_is_short_and_says_what_to_do(stem: str) -> None:
    source = (ROOT / "exercises" / f"{stem}.py").read_text("utf-8")
    assert len(source.splitlines()) <= MAX_STARTER_LINES
    assert source.count("TODO") == 1


@pytest.mark.parametrize("stem", STEMS)
def test_starter_and_solution_are_one_program_outside_the_edits(stem: str) -> None:
    entry = Entry(stem)
    starter = (ROOT / "exercises" / f"{stem}.py").read_text("utf-8")
    assert outside(starter, entry) == outside(entry.solution.read_text("utf-8"), entry)
    assert "TODO" not in entry.solution.read_text("utf-8")


@pytest.mark.parametrize("path", VARIANTS, ids=name_of)
def test_variants_are_the_same_program_outside_the_edits(path: Path) -> None:
    entry = Entry(path.parent.parent.name)
    findings = entry.inspect(path.read_text("utf-8"))
    expected = expectation(path) if path in WRONG else ""
    assert findings == [] or expected == "source"


@pytest.mark.parametrize("stem", STEMS)
def test_titles_of_checks_are_sentences(stem: str) -> None:
    exercise = Entry(stem).exercise
    assert exercise.checks, "an exercise without checks passes anything"
    assert exercise.hints
    assert exercise.title
    for check in exercise.checks:
        assert check.title.endswith("."), f"{check.name}: {check.title}"
        assert not check.title[0].islower()
        assert all(hint.strip() for hint in check.hints)
    names = [check.name for check in exercise.checks]
    assert len(names) == len(set(names))
    assert {name for check in exercise.checks for name in check.after} <= set(names)


@pytest.mark.parametrize("stem", STEMS)
def test_every_check_links_a_paragraph_of_a_lesson(stem: str) -> None:
    for check in Entry(stem).exercise.checks:
        page, _, anchor = check.lesson.partition("#")
        source = ROOT / "docs" / f"{page}.py"
        assert source.is_file(), f"{check.name} links {page}"
        assert anchor in anchors(source.read_text("utf-8")), f"{check.name} links #{anchor}"


def anchors(page: str) -> set[str]:
    """What a link can end in: `{#id}` where a heading has one, else its slug."""
    headings = re.findall(r"^#{2,6} (.+)$", page, re.MULTILINE)
    found = set()
    for heading in headings:
        named = re.search(r"\{\s*#([\w-]+)", heading)
        plain = re.sub(r"[^\w\s-]", "", heading).strip().lower()
        found.add(named[1] if named else re.sub(r"[\s-]+", "-", plain))
    return found


@pytest.mark.parametrize("stem", STEMS)
def test_the_starter_fails(stem: str, grading: Grading) -> None:
    _, report = graded(stem, ROOT / "exercises" / f"{stem}.py", grading)
    assert report.exit_code == 1, report
    assert failed(report).check != "source", "a starter is a valid file that is not solved"
    assert failed(report).observed.strip()


@pytest.mark.parametrize("stem", STEMS)
def test_the_solution_passes(stem: str, grading: Grading) -> None:
    record, report = graded(stem, Entry(stem).solution, grading)
    assert not problem(report, "")
    assert report.unrun == [], "the drive leads to every line of the solution"
    no_target = judge(msgspec.structs.replace(record, target=None), Entry(stem).exercise)
    assert not problem(no_target, "")
    assert bool(no_target.left_out) == Entry(stem).exercise.has_target


NUMBERS = """
BUCKETS = (3, 8, 16, 20, 64, 100, 128, 150, 200, 256, 300, 500, 512, 1000, 1024, 2048, 4096, 10_000)
BYTES, TINY, HUGE = (1 << 14, 1 << 20, 1 << 24, 100_000_000), 1e-12, 1e30
"""
"""What a file may add: what is drawn goes beyond all of these, as far as an exercise does."""
SOLUTIONS = [Entry(stem).solution for stem in STEMS]


@pytest.mark.parametrize("solution", of_this_run(SOLUTIONS), ids=lambda path: path.stem[:4])
def test_the_solution_passes_if_it_names_many_numbers(
    solution: Path, grading: Grading, tmp_path: Path
) -> None:
    path = tmp_path / solution.name
    path.write_text(solution.read_text("utf-8") + NUMBERS, "utf-8")
    _, report = graded(solution.stem, path, grading)
    assert not problem(report, "")


OF_EACH_KIND = ("ex07", "ex12", "ex14", "ex17", "ex22", "ex26", "ex29")
"""A loop of steps, one with compiles and random keys, donation, what stays alive, collectives, host
memory, several processes."""


@pytest.mark.parametrize("stem", [stem for stem in STEMS if stem.startswith(OF_EACH_KIND)])
def test_what_was_compiled_before_changes_no_evidence(stem: str) -> None:
    """A program is observed and measured alike, whether it was compiled or read from a folder.

    So a submission need not compile what the reference did. A fact that differs between two
    workers which do the same, such as a rate, is not compared. Whatever the exercise, solutions and
    right variants pass with programs that the reference compiled.
    """
    with Session(Options(device="cpu"), modules_of([Entry(stem)])) as alone:
        compiling, reading, again = (evidence(stem, alone) for _ in range(3))
    facts = [found.get("facts", {}) for found in (reading, again, compiling)]
    same = {name for name, fact in facts[0].items() if facts[1][name] == fact}
    for found, all_facts in zip((reading, again, compiling), facts, strict=True):
        found["facts"] = {name: name in same and fact for name, fact in all_facts.items()}
    assert reading == again == compiling


def evidence(stem: str, session: Session) -> dict[str, Any]:
    """What is seen of the reference, without addresses, durations and lines of XLA's log."""
    side = Reference(Entry(stem), session, SEED).side
    observed, machine = side.driven.result()
    assert observed.outcome.kind == "finished"
    assert not observed.missing_probes
    drive = (ROOT / "grader" / "checks" / stem / "drive.py").read_text("utf-8")
    assert (observed.witnessed is None) == ("observe.without_trace()" in drive)
    # Where memory begins decides whether it is copied, and what is read from a folder is not
    # compiled. So the trace varies, and what is judged does not.
    judged = witness.counted(observed)
    # Of collectives, the trace may lack some that ran while one session followed another.
    judged.events = [event for event in judged.events if event.kind != "exchange"]
    assert not judged.missing_probes
    found: dict[str, Any] = _lasting(msgspec.to_builtins(judged))
    return found | {
        "machine": machine,
        "measured": _lasting(msgspec.to_builtins(side.measured.result())),
    }


def _lasting(found: Any) -> Any:
    if isinstance(found, dict):
        passing = ("buffer", "seconds", "output")
        return {name: _lasting(value) for name, value in found.items() if name not in passing}
    return [_lasting(each) for each in found] if isinstance(found, list) else found


@pytest.mark.parametrize("stem", WITH_TARGET)
def test_the_solution_passes_on_two_nodes(stem: str, grading: Grading) -> None:
    _, report = graded(stem, Entry(stem).solution, grading, TWO_NODES)
    assert report.machine is not None
    assert report.machine.devices == targets.find(TWO_NODES).devices
    assert not problem(report, "")


@pytest.mark.parametrize("path", of_this_run(RIGHT), ids=name_of)
def test_right_variants_pass(path: Path, grading: Grading) -> None:
    _, report = graded(path.parent.parent.name, path, grading)
    assert not problem(report, "")


@pytest.mark.parametrize("path", of_this_run(WRONG), ids=name_of)
def test_wrong_variants_fail_the_check_they_name(
    path: Path, grading: Grading, golden: Callable[[str, str], None]
) -> None:
    """And the report says what `tests/golden/messages` holds; `make messages` prints all of it.

    Where it says something else, it is graded once more: on a busy machine, a thread may have its
    turn so late that what it did is seen at another step.
    """
    entry = Entry(path.parent.parent.name)
    kept = GOLDEN / golden_of(path)
    wanted = kept.read_text("utf-8") if kept.exists() else ""
    for _ in range(2):
        record, report = graded(entry.stem, path, grading)
        assert not problem(report, expectation(path))
        assert not unplaced(report), "a failure points into the learner's file"
        assert blind(record, entry).get(expectation(path)) != "pass"
        if (now := as_kept(message(report, path), wanted)) == wanted or not wanted:
            break
    if not varies(path):
        golden(golden_of(path), now)


def test_one_variant_in_three_is_another_third_at_another_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert of_this_run(WRONG) == WRONG or ONE_IN in os.environ
    monkeypatch.setenv(ONE_IN, "3")
    parts = []
    for commit in "abcdef":
        told = subprocess.CompletedProcess([], 0, stdout=commit)
        monkeypatch.setattr(subprocess, "run", lambda *_, told=told, **__: told)
        parts.append(of_this_run(WRONG))
        assert len(parts[-1]) == math.ceil(len(WRONG) / 3)
    assert len({tuple(part) for part in parts}) == len(parts)
    assert len(set().union(*parts)) > len(WRONG) * 0.85


def test_every_message_is_a_variants() -> None:
    """What is left of a variant that was renamed would be read as if it were still said."""
    kept = {str(path.relative_to(GOLDEN)) for path in (GOLDEN / "messages").rglob("*.*")}
    assert kept == {golden_of(path) for path in WRONG if not varies(path)} != set()


@pytest.mark.parametrize("stem", STEMS)
def test_every_check_is_failed_by_some_variant(stem: str) -> None:
    """A check that no variant fails may as well not exist."""
    named = {expectation(path) for path in WRONG if path.parent.parent.name == stem}
    assert {check.name for check in Entry(stem).exercise.checks} <= named


def test_the_harness_can_fail() -> None:
    """`problem` accepts reports that a file promises, and no others."""
    passing = Report("ex", "", "", 0, [Verdict("a", "", "pass", "observed")])
    failing = Report("ex", "", "", 0, [Verdict("a", "", "fail", "observed", observed="x")])
    silent = Report("ex", "", "", 0, [Verdict("a", "", "fail", "observed")])
    both = Report("ex", "", "", 0, [*failing.verdicts, Verdict("b", "", "fail", "observed")])
    waiting = Report("ex", "", "", 0, [*failing.verdicts, Verdict("b", "", "blocked", "observed")])
    unknown = Report("ex", "", "", 0, [Verdict("a", "", "could not check", "observed")])
    good = [(passing, ""), (failing, "a"), (waiting, "a")]
    bad = [(failing, ""), (passing, "a"), (silent, "a"), (both, "a"), (failing, "b"), (unknown, "")]
    assert [problem(*case) for case in good] == [""] * len(good)
    assert all(problem(*case) for case in bad)


def test_only_dates_of_logs_and_comparisons_of_times_are_masked() -> None:
    assert steady("ERROR:2026-11-23 18:26:56,030:jax:522: x") == "ERROR:(date and time):jax:522: x"
    assert steady("keys is\n  ['b'] ['c'] ['a1']") == "keys is\n  ['a1'] ['b'] ['c']"
    kept = "step 12 holds 4,096 bytes, -0.0123, 1e-05 and 999."
    near = "step 12 holds 4,090 bytes, -0.0124, 1.001e-05 and 999."
    assert as_kept(near, kept) == kept
    for old, new in (("12 h", "13 h"), ("4,096", "4,300"), ("-0", "0"), ("999", "998"), ("h", "H")):
        other = kept.replace(old, new)
        assert as_kept(other, kept) == other
    compared = "2.45 x the reference's (quartiles 2.41 to 2.50), slower in 13 of 13 pairs"
    masked = "N x the reference's (quartiles N to N), slower in N of N pairs"
    kept = "observed  72.5 ms a call: 5 calls were timed, at [3], 0.7415 times as much, 13 of 13"
    assert steady(f"{kept}\n{compared}") == f"{kept}\n{masked}"


def test_a_right_variant_presented_as_wrong_is_noticed(grading: Grading) -> None:
    path = next(path for path in RIGHT if not Entry(path.parent.parent.name).exercise.loop_timing)
    _, report = graded(path.parent.parent.name, path, grading)
    check = Entry(path.parent.parent.name).exercise.checks[0].name
    assert "did not fail" in problem(report, check)
