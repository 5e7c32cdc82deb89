"""Wall time of a re-check in a session that is kept, against a bare script.

The session is what `grader watch`, `grader batch` and the test suite keep: libraries
are imported, and every grading still gets fresh processes.
"""

import time

from bench.commands import DidNotRun, bare, shown, timed
from bench.figures import Row, Seconds, interleaved, ratios, spread
from grader.catalog import Entry
from grader.judge import judge
from grader.runner import grade
from grader.session import Options, Session, modules_of


def kept(entry: Entry, session: Session) -> Seconds:
    """Grades the reference solution, from the file to the verdicts.

    Raises (when called):
      DidNotRun: it did not pass.
    """

    def run() -> float:
        start = time.perf_counter()
        report = judge(grade(entry, entry.solution, session), entry.exercise)
        seconds = time.perf_counter() - start
        if report.exit_code != 0:
            missed = [f"{v.check}: {v.observed or v.reason}" for v in report.verdicts]
            raise DidNotRun(f"{entry.id} did not pass: {'; '.join(missed)}")
        return seconds

    return run


def warm_row(entry: Entry, rounds: int) -> Row:
    """A re-check of one exercise against its bare script."""
    peer = bare(entry)
    with Session(Options(device="cpu"), modules_of([entry])) as session:
        check = kept(entry, session)
        first = check()
        checks, scripts = interleaved(rounds, check, timed(peer))
    ratio = ratios(checks, scripts)
    return Row(
        title=f"warm re-check of {entry.id}",
        command=f"grade(...) again in one Session; the first took {first:.2f} s",
        figures=f"{ratio} x the bare script; {spread(checks)} s and {spread(scripts)} s",
        limit=f"0.3 x {shown(peer)}",
        holds=ratio.median <= 0.3,
        spreads={"ratio": ratio, "check": spread(checks), "bare": spread(scripts)},
    )
