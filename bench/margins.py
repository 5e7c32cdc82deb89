"""How far the reference and the known slow answers lie from each timing threshold.

A threshold is worth something if the reference stays well below it and what the exercise is
about well above. Both are measured as the grader measures them, on this machine. What counts
as slow comes from the exercise's own wrong variants: those that must fail its timing check.
"""

import os
from pathlib import Path

from bench.figures import Row, Spread, spread
from grader.catalog import Entry, entries
from grader.runner import grade
from grader.session import Options, Session, modules_of

ROOT = Path(__file__).resolve().parent.parent
WANTED = 1.5


def timed() -> list[Entry]:
    """The exercises whose verdict holds a timing."""
    return [e for e in entries() if e.exercise.loop_timing or e.exercise.program_timing]


def row(entry: Entry, rounds: int) -> Row:
    """The grader's ratios, of the reference and of each slow answer, beside the threshold."""
    files = {"the reference": entry.solution, **slow_answers(entry)}
    k = threshold(entry)
    with Session(Options(device=os.environ.get("BENCH_DEVICE", "cpu")), modules_of([entry])) as s:
        found = {name: ratios(entry, path, s, rounds) for name, path in files.items()}
    reference, *slow = found.values()
    quickest = min((each.median for each in slow), default=0.0)
    margins = k / reference.median, quickest / k
    return Row(
        title=f"threshold of {entry.id}: {k:g} x the {'reference' if k > 1 else 'naive version'}",
        command=f"grader check {entry.id}",
        figures="; ".join(f"{name} {each} x" for name, each in found.items())
        + f"; margins {margins[0]:.2f} below, {margins[1]:.2f} above",
        limit=f"{WANTED:.2f} either side",
        holds=min(margins) >= WANTED,
        spreads=found,
    )


def threshold(entry: Entry) -> float:
    """k of the exercise's timing."""
    timing = entry.exercise.loop_timing or entry.exercise.program_timing
    assert timing is not None
    return timing.at_most


def slow_answers(entry: Entry) -> dict[str, Path]:
    """The wrong variants that must fail a timing check, by name."""
    checks = {check.name for check in entry.exercise.checks if check.ground == "timing"}
    wrong = sorted((ROOT / "tests" / "variants" / entry.stem / "wrong").glob("*.py"))
    first = {path: path.read_text("utf-8").split("\n", 1)[0] for path in wrong}
    return {
        path.stem: path for path, line in first.items() if line.removeprefix("# expect: ") in checks
    }


def ratios(entry: Entry, path: Path, session: Session, rounds: int) -> Spread:
    """The grader's own ratio, of several gradings."""
    found = []
    for _ in range(rounds):
        for timing in grade(entry, path, session).timing.values():
            found.append(timing.ratio)
    return spread(found or [0.0])
