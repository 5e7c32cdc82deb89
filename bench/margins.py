"""How far the reference and the known slow answers lie from each timing threshold.

A threshold is useful if the reference stays well below it, and the mistake that the exercise
is about stays well above it. Both are measured as the grader measures them, on this machine. The
slow answers are the exercise's own wrong variants that must fail its timing check, and by their
time: others fail it by what they do, such as a compile at each step.
"""

import os
from pathlib import Path

from bench.figures import Row, Spread, spread
from grader.course.catalog import Entry, entries
from grader.running.grade import grade
from grader.running.session import Options, Session, modules_of

ROOT = Path(__file__).resolve().parent.parent
WANTED_MARGIN = 1.5
"""How many times below or above the threshold an answer should lie."""
_BY_TIME = "N x the "
"""What the message of an answer says that fails by its time; the numbers of messages are not
kept."""


def timed() -> list[Entry]:
    """The exercises that have a timing check."""
    return [e for e in entries() if e.exercise.loop_timing or e.exercise.program_timing]


def row(entry: Entry, rounds: int) -> Row:
    """The grader's ratios, of the reference and of each slow answer, beside the threshold."""
    files = {"the reference": entry.solution, **slow_answers(entry)}
    options = Options(device=os.environ.get("BENCH_DEVICE", "cpu"))
    with Session(options, modules_of([entry])) as session:
        found = {name: ratios(entry, path, session, rounds) for name, path in files.items()}
    reference, *slow = found.values()
    quickest = min((each.median for each in slow), default=0.0)
    k = threshold(entry)
    below, above = k / reference.median, quickest / k
    baseline = "reference" if k > 1 else "naive version"
    answers = "; ".join(f"{name} {each} x" for name, each in found.items())
    return Row(
        title=f"threshold of {entry.id}: {k:g} x the {baseline}",
        command=f"grader check {entry.id}",
        figures=f"{answers}; margins {below:.2f} below, {above:.2f} above",
        limit=f"{WANTED_MARGIN:.2f} either side",
        holds=min(below, above) >= WANTED_MARGIN,
        spreads=found,
    )


def threshold(entry: Entry) -> float:
    """The ratio k at which the exercise's timing check decides."""
    timing = entry.exercise.loop_timing or entry.exercise.program_timing
    assert timing is not None
    return timing.at_most


def slow_answers(entry: Entry) -> dict[str, Path]:
    """The wrong variants that must fail a timing check by their time, by name."""
    checks = {check.name for check in entry.exercise.checks if check.ground == "timing"}
    found = {}
    for path in sorted((ROOT / "tests" / "variants" / entry.stem / "wrong").glob("*.py")):
        first_line = path.read_text("utf-8").split("\n", 1)[0]
        if first_line.removeprefix("# expect: ") not in checks:
            continue
        message = ROOT / "tests" / "golden" / "messages" / entry.stem / f"{path.stem}.txt"
        if _BY_TIME in message.read_text("utf-8"):
            found[path.stem] = path
    return found


def ratios(entry: Entry, path: Path, session: Session, rounds: int) -> Spread:
    """The ratios that the grader measures in `rounds` gradings, or 0 if it measures none."""
    found = []
    for _ in range(rounds):
        for timing in grade(entry, path, session).timing.values():
            found.append(timing.ratio)
    return spread(found or [0.0])
