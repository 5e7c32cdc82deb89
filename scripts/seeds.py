"""Grades right and wrong submissions many times with fresh seeds, and prints how often each verdict
was the one it must be.

The files are those of `tests/variants`, with each exercise's starter and solution. A right one must
pass every check, a wrong one fail the check that its first line names and no other. The test suite
grades each once; this shows a verdict that hangs on the seed. `--device next-door` leaves out the
exercises that do not run there. Exit code 1 if any verdict was wrong.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import track
from rich.table import Table

from grader.course import catalog
from grader.course.catalog import Entry
from grader.running.session import NEXT_DOOR, Options, Session, modules_of

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "checks"))
from variant_grading import RIGHT, WRONG, Grading, expectation, graded, problem  # noqa: E402  (above)


class Case(NamedTuple):
    """One file, and the check that it must fail, or "" if it must pass."""

    stem: str
    path: Path
    expected: str


def cases(entries: list[Entry], word: str) -> Iterator[Case]:
    """The solutions and variants of these exercises whose file names hold `word`."""
    stems = {entry.stem for entry in entries}
    for entry in entries:
        yield Case(entry.stem, entry.solution, "")
    for path in RIGHT + WRONG:
        stem = path.parent.parent.name
        if stem in stems and word in path.stem:
            yield Case(stem, path, expectation(path) if path in WRONG else "")


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("exercises", nargs="*", help="such as ex07; all, if none is named")
    parser.add_argument("--times", type=int, default=20, help="fresh seeds for each file")
    parser.add_argument("--device", choices=("cpu", "next-door"), default="cpu")
    parser.add_argument("--word", default="", help="only variants with this in their name")
    return parser.parse_args()


def main() -> int:
    """Grade, print the table and each wrong verdict, and return the exit code."""
    asked = arguments()
    console = Console()
    named = [catalog.find(name) for name in asked.exercises]
    chosen = named or catalog.entries()
    if asked.device == NEXT_DOOR:
        chosen = [entry for entry in chosen if entry.exercise.next_door]
    rows = {entry.stem: {"": [0, 0], "wrong": [0, 0]} for entry in chosen}
    found: list[str] = []
    with Session(Options(device=asked.device), modules_of(chosen)) as session:
        all_cases = list(cases(chosen, asked.word))
        for turn in range(asked.times):
            grading = Grading(session)  # fresh seeds
            told = f"seed {turn + 1} of {asked.times}"
            for case in track(all_cases, told, console=console, transient=True):
                _, report = graded(case.stem, case.path, grading)
                said = problem(report, case.expected)
                count = rows[case.stem]["wrong" if case.expected else ""]
                count[0] += not said
                count[1] += 1
                if said:
                    found.append(f"{case.path.relative_to(ROOT)} (--seed {report.seed}): {said}")
                    console.print(found[-1], markup=False, soft_wrap=True)
    table = Table("exercise", "right ones pass", "wrong ones fail their check")
    for stem, counts in rows.items():
        table.add_row(stem, *(f"{good} of {many}" for good, many in counts.values()))
    console.print(table)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
