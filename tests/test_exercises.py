"""Every exercise, found by its files: all pieces are there, and each does what it says.

The starter fails, the solution passes, right variants pass, and a wrong variant fails
exactly the check that its first line names. Where an exercise has checks for a target, all
of that holds for a target: one of eight, unless a second line `# target: NAME` asks for
another. Nothing here names an exercise: a new one is tested because its files exist.
"""

import ast
import re
from pathlib import Path

import msgspec
import pytest
from conftest import ROOT

from grader import catalog, runner, targets
from grader.catalog import Entry
from grader.judge import judge
from grader.record import Record
from grader.session import Session
from grader.sides import Reference
from grader.source import inspect_source
from grader.verdict import Report, Status, Verdict

STEMS = sorted(path.stem for path in (ROOT / "exercises").glob("ex*.py"))
CHECKS = (ROOT / "grader" / "checks").glob("ex*.py")
AIMED = sorted(p.stem for p in CHECKS if 'ground="target"' in p.read_text("utf-8"))
VARIANTS = sorted((ROOT / "tests" / "variants").glob("*/*/*.py"))
RIGHT = [path for path in VARIANTS if path.parent.name == "right"]
WRONG = [path for path in VARIANTS if path.parent.name == "wrong"]
EXPECT = re.compile(r"# expect: (\w+)$")
TARGET = re.compile(r"# target: (\w+)$")
USUAL_TARGET, TWO_NODES = "h200x8", "h200x2x8"
PROBES = ("reads", "transfers", "compiles")
MAX_STARTER_LINES, MIN_WRONG, MIN_RIGHT, ATTEMPTS = 60, 6, 3, 3


def name_of(path: Path) -> str:
    """The name of a variant in the list of tests."""
    return f"{path.parent.parent.name[:4]}-{path.stem}"


class Grading:
    """Grades files in one session. The reference is run once for all files of an exercise:
    on the same inputs, it is the same run."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._references: dict[tuple[str, str], Reference] = {}

    def record(self, entry: Entry, path: Path, target: str) -> Record:
        """What was observed of a file, and compiled for the target if the exercise asks for one."""
        machine = targets.find(target) if entry.exercise.has_target else None
        key = entry.stem, target
        if key not in self._references:
            self._references[key] = Reference(entry, self._session, runner.new_seed(), machine)
        ahead = self._references[key]
        return runner.grade(entry, path, self._session, target=machine, ahead=ahead)


@pytest.fixture(scope="module")
def grading(session: Session) -> Grading:
    """One for all tests of this module."""
    return Grading(session)


def graded(stem: str, path: Path, grading: Grading, target: str = "") -> tuple[Record, Report]:
    """Grade a file, again if nothing but time could not be judged.

    On a machine that does other work too, a comparison of times may stay undecided: it
    says so, rather than guess. Only that is tried again; no verdict ever is.
    """
    entry = Entry(stem)
    for _ in range(ATTEMPTS):
        record = grading.record(entry, path, target or target_of(path))
        report = judge(record, entry.exercise)
        undecided = [v for v in report.verdicts if v.status == "could not check"]
        if report.exit_code != 3 or any(v.ground != "timing" for v in undecided):
            break
    return record, report


def problem(report: Report, expected: str) -> str:
    """Why a report is not what a file promises, or nothing; `expected` names a check or none."""
    statuses = {verdict.check: verdict.status for verdict in report.verdicts}
    others = {name: s for name, s in statuses.items() if s != "pass" and name != expected}
    if not expected:
        return f"not passed: {others}" if others else ""
    if statuses.get(expected) != "fail":
        return f"{expected} did not fail: {statuses}"
    if set(others.values()) - {"blocked"}:
        return f"beside {expected}: {others}"
    return "" if failed(report).observed.strip() else f"{expected} says nothing of what it saw"


def failed(report: Report) -> Verdict:
    """The first failure."""
    return next(verdict for verdict in report.verdicts if verdict.status == "fail")


def blind(record: Record, entry: Entry) -> dict[str, Status]:
    """The verdicts if no probe had worked: a mistake that goes unseen is never a pass."""
    seen = record.submission
    if seen is not None:
        missing = dict.fromkeys(PROBES, "gone")
        unseeing = msgspec.structs.replace(seen, events=[], missing_probes=missing)
        record = msgspec.structs.replace(record, submission=unseeing)
    return {verdict.check: verdict.status for verdict in judge(record, entry.exercise).verdicts}


def target_of(path: Path) -> str:
    """The target that a file's second line names, else the usual one."""
    second = "".join(path.read_text("utf-8").splitlines()[1:2])
    found = TARGET.match(second)
    return found[1] if found else USUAL_TARGET


def expectation(path: Path) -> str:
    """The check that a wrong variant's first line names."""
    found = EXPECT.match(path.read_text("utf-8").split("\n", 1)[0])
    assert found, f"{path}: the first line is not `# expect: <check>`"
    return found[1]


def outside(source: str, entry: Entry) -> list[str]:
    """The statements outside the edited definitions, without layout, docstrings kept."""
    edits = set(entry.exercise.edits)
    body = [n for n in ast.parse(source).body if getattr(n, "name", None) not in edits]
    return [ast.unparse(node) for node in body]


def test_something_was_found() -> None:
    assert [entry.stem for entry in catalog.entries()] == STEMS != []
    assert {path.parent.parent.name for path in VARIANTS} == set(STEMS)
    assert [stem for stem in STEMS if Entry(stem).exercise.has_target] == AIMED != []


@pytest.mark.parametrize("stem", STEMS)
def test_all_pieces_exist(stem: str) -> None:
    for piece in ("exercises/{}.py", "solutions/{}.py", "grader/checks/{}.py"):
        assert (ROOT / piece.format(stem)).is_file()
    assert (ROOT / "docs" / "exercises" / f"{stem}.md").is_file()
    assert sum(path.parent.parent.name == stem for path in WRONG) >= MIN_WRONG
    assert sum(path.parent.parent.name == stem for path in RIGHT) >= MIN_RIGHT


@pytest.mark.parametrize("stem", STEMS)
def test_a_starter_is_short_and_says_what_is_to_do(stem: str) -> None:
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
    solution = entry.solution.read_text("utf-8")
    findings = inspect_source(path.read_text("utf-8"), solution, entry.exercise)
    expected = expectation(path) if path in WRONG else ""
    assert findings == [] or expected == "source"


@pytest.mark.parametrize("stem", STEMS)
def test_checks_are_told_in_sentences(stem: str) -> None:
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
    assert failed(report).check != "source", "a starter is a whole file, merely unsolved"
    assert failed(report).observed.strip()


@pytest.mark.parametrize("stem", STEMS)
def test_the_solution_passes(stem: str, grading: Grading) -> None:
    record, report = graded(stem, Entry(stem).solution, grading)
    assert not problem(report, "")
    aimless = judge(msgspec.structs.replace(record, target=None), Entry(stem).exercise)
    assert not problem(aimless, "")
    assert bool(aimless.left_out) == Entry(stem).exercise.has_target


@pytest.mark.parametrize("stem", AIMED)
def test_the_solution_passes_on_two_nodes(stem: str, grading: Grading) -> None:
    _, report = graded(stem, Entry(stem).solution, grading, TWO_NODES)
    assert report.machine is not None
    assert report.machine.devices == targets.find(TWO_NODES).devices
    assert not problem(report, "")


@pytest.mark.parametrize("path", RIGHT, ids=name_of)
def test_right_variants_pass(path: Path, grading: Grading) -> None:
    _, report = graded(path.parent.parent.name, path, grading)
    assert not problem(report, "")


@pytest.mark.parametrize("path", WRONG, ids=name_of)
def test_wrong_variants_fail_the_check_they_name(path: Path, grading: Grading) -> None:
    entry = Entry(path.parent.parent.name)
    record, report = graded(entry.stem, path, grading)
    assert not problem(report, expectation(path))
    assert blind(record, entry).get(expectation(path)) != "pass"


@pytest.mark.parametrize("stem", STEMS)
def test_every_check_is_failed_by_some_variant(stem: str) -> None:
    """A check that nothing fails may as well not be there."""
    named = {expectation(path) for path in WRONG if path.parent.parent.name == stem}
    assert {check.name for check in Entry(stem).exercise.checks} <= named


def test_the_harness_can_fail() -> None:
    """Reports that are not what a file promises are told apart from those that are."""
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


def test_a_right_variant_presented_as_wrong_is_noticed(grading: Grading) -> None:
    path = next(path for path in RIGHT if not Entry(path.parent.parent.name).exercise.loop_timing)
    _, report = graded(path.parent.parent.name, path, grading)
    check = Entry(path.parent.parent.name).exercise.checks[0].name
    assert "did not fail" in problem(report, check)
