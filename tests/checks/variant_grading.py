"""Right and wrong submissions of each exercise, and what a grading of one must come to.

A right variant passes every check. A wrong one fails exactly the check that its first line names.
The files are `tests/variants/exNN_slug/{right,wrong}/*.py`. Used by the tests of exercises, and by
`scripts/seeds.py`, which grades each variant many times.
"""

import hashlib
import io
import math
import os
import re
import subprocess
from pathlib import Path

import msgspec
from rich.console import Console

from grader.app.report import UNFOLDED, print_failure
from grader.course.catalog import Entry
from grader.judging.judge import judge
from grader.program import targets
from grader.records.record import Record
from grader.records.verdict import Report, Verdict
from grader.running.grade import grade, new_seed
from grader.running.session import Session
from grader.running.sides import Reference

ROOT = Path(__file__).resolve().parents[2]
VARIANTS = sorted((ROOT / "tests" / "variants").glob("*/*/*.py"))
RIGHT = [path for path in VARIANTS if path.parent.name == "right"]
WRONG = [path for path in VARIANTS if path.parent.name == "wrong"]
ONE_IN = "COURSE_TESTS_ONE_IN"
"""Names the variable that says to grade one file in so many, others at each commit."""
EXPECT = re.compile(r"# expect: (\w+)$")
TARGET = re.compile(r"# target: (\w+)$")
LOGGED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}")
RATIO = re.compile(
    r"[\d.]+ x (the [\w ]+'s) \(quartiles [\d.]+ to [\d.]+\), slower in \d+ of \d+ pairs"
)
GROWN = re.compile(r"about [\d,]+ bytes more")
CUT = re.compile(r"(?m)^(.{120}).* \.\.\.$")
KEYS = re.compile(r"(?:\['\w+'\] ?){2,}$", re.MULTILINE)
NUMBER = re.compile(r"-?\d(?:[\d,]*\d)?(?:\.\d+)?(?:e[-+]?\d+)?")
USUAL_TARGET = "h200x8"
ATTEMPTS = 3
SEED = 7
"""The same inputs in every run, so that a failure is a change's; `make seeds` draws fresh ones."""


def name_of(path: Path) -> str:
    """The name of a variant in the list of tests."""
    return f"{path.parent.parent.name[:4]}-{path.stem}"


def of_this_run(paths: list[Path]) -> list[Path]:
    """The files that a run of the tests grades: all, or a part of them (`ONE_IN`)."""
    many = int(os.environ.get(ONE_IN, "1"))
    if many == 1:
        return paths
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    commit = asked.stdout.strip()

    def place(path: Path) -> bytes:
        return hashlib.sha256(f"{commit} {name_of(path)}".encode()).digest()

    drawn = sorted(paths, key=place)[: math.ceil(len(paths) / many)]
    return [path for path in paths if path in drawn]


class Grading:
    """Grades files in one session.

    All files of an exercise get the same inputs, so its reference runs once for all of them:
    fresh ones, or those of `seed`.
    """

    def __init__(self, session: Session, seed: int | None = None) -> None:
        self.session, self.seed = session, seed
        self._references: dict[tuple[str, str], Reference] = {}

    def record(self, entry: Entry, path: Path, target: str) -> Record:
        """Grade a file, with the target if the exercise has checks for one."""
        machine = targets.find(target) if entry.exercise.has_target else None
        key = entry.stem, target
        if key not in self._references:
            seed = new_seed() if self.seed is None else self.seed
            self._references[key] = Reference(entry, self.session, seed, machine)
        ahead = self._references[key]
        return grade(entry, path, self.session, target=machine, ahead=ahead)


def graded(stem: str, path: Path, grading: Grading, target: str = "") -> tuple[Record, Report]:
    """Grade a file; grade it again if only a comparison of times stayed undecided.

    On a machine that does other work too, such a comparison may stay undecided: it says so
    rather than guess. Only this is repeated; a pass or a fail never is.
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
    """What is wrong with a report, or nothing; `expected` is the one check that must fail."""
    statuses = {verdict.check: verdict.status for verdict in report.verdicts}
    others = {name: s for name, s in statuses.items() if s != "pass" and name != expected}
    if not expected:
        return f"not passed: {others}" if others else ""
    if statuses.get(expected) != "fail":
        return f"{expected} did not fail: {statuses}"
    if set(others.values()) - {"blocked"}:
        return f"beside {expected}: {others}"
    return "" if failed(report).observed.strip() else f"{expected} says nothing of what it saw"


NO_PLACE = ("source",)
"""What may fail without a line: a definition that is not in the file has none."""


def unplaced(report: Report) -> list[str]:
    """The failures that name no line of the file, with what stands there."""
    failures = [v for v in report.verdicts if v.status == "fail" and v.check not in NO_PLACE]
    return [v.check for v in failures if not (v.culprits and v.culprits[0].excerpt)]


def failed(report: Report) -> Verdict:
    """The first failure."""
    return next(verdict for verdict in report.verdicts if verdict.status == "fail")


def golden_of(path: Path) -> str:
    """Where `tests/golden` keeps the message of a wrong variant."""
    return f"messages/{path.parent.parent.name}/{path.stem}.txt"


def varies(path: Path) -> bool:
    """Whether a variant's second line says that what happens hangs on which process is first."""
    return "\n# varies: " in path.read_text("utf-8")


def message(report: Report, path: Path) -> str:
    """What a learner reads of the first failure: place, expected, observed and hint.

    The link to the lesson is left out. Runs of one seed give one text: `steady` masks the rest,
    and `as_kept` allows for another processor.
    """
    out = Console(file=io.StringIO(), width=UNFOLDED, highlight=False, emoji=False, markup=False)
    with out.capture() as captured:
        print_failure(msgspec.structs.replace(failed(report), lesson=""), path.name, out, "")
    return steady(captured.get().replace(str(path), path.name))


def as_kept(now: str, kept: str) -> str:
    """`kept` where `now` says the same, else `now`.

    Fractions, and numbers of 1,000 and more, may differ by a hundredth: another processor rounds
    otherwise, and its compiler takes other room.
    """
    numbers = zip(NUMBER.findall(now), NUMBER.findall(kept), strict=False)
    same_words = NUMBER.split(now) == NUMBER.split(kept)
    same = same_words and all(one == other or _near(one, other) for one, other in numbers)
    return kept if same else now


def _near(one: str, other: str) -> bool:
    a, b = (float(number.replace(",", "")) for number in (one, other))
    counts = a.is_integer() and b.is_integer() and max(abs(a), abs(b)) < 1000
    return not counts and math.isclose(a, b, rel_tol=0.01)


def steady(text: str) -> str:
    """The text without a log's date and time, and with N for what was measured: a comparison of
    times, and how much a process has grown. Where a long line was cut hangs on the path, and
    JAX lists a set of keys in any order.

    Nothing else is masked.
    """
    text = LOGGED.sub("(date and time)", text)
    text = CUT.sub(r"\1 ...", GROWN.sub("about N bytes more", text))
    text = KEYS.sub(lambda found: " ".join(sorted(found[0].split())), text)
    return RATIO.sub(r"N x \1 (quartiles N to N), slower in N of N pairs", text)


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
