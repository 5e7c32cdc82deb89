"""Wall time of a re-check in a session that is kept, against a bare script.

The session is what `grader watch` and the test suite keep: libraries are imported once,
and every grading still gets fresh processes.
"""

import time

from bench.commands import DidNotRun, bare, shown, timed
from bench.figures import Row, Seconds, interleaved, ratios, spread
from grader.catalog import Entry
from grader.judge import judge
from grader.runner import grade, look_ahead
from grader.session import Options, Session, modules_of

BETWEEN_SAVES = 1.5
"""Seconds a learner takes at the least from one save to the next."""


def kept(entry: Entry, session: Session, *, standing_by: bool) -> Seconds:
    """Grades the reference solution, from the file to the verdicts.

    With `standing_by`, as `grader watch` does on a save: the next grading's workers were
    started since the last one, while nobody waited.

    Raises (when called):
      DidNotRun: it did not pass.
    """

    def run() -> float:
        ahead = None
        if standing_by:
            ahead = look_ahead(entry, session)
            time.sleep(BETWEEN_SAVES)
        start = time.perf_counter()
        report = judge(grade(entry, entry.solution, session, ahead=ahead), entry.exercise)
        seconds = time.perf_counter() - start
        if report.exit_code != 0:
            missed = [f"{v.check} {v.status}: {v.observed or v.reason}" for v in report.verdicts]
            raise DidNotRun(f"{entry.id} did not pass: {'; '.join(missed)}")
        return seconds

    return run


def warm_row(entry: Entry, rounds: int) -> Row:
    """A re-check of one exercise against its bare script."""
    peer = bare(entry)
    with Session(Options(device="cpu"), modules_of([entry])) as session:
        waiting, forking = (kept(entry, session, standing_by=on) for on in (True, False))
        forking()
        checks, forks, scripts = interleaved(rounds, waiting, forking, timed(peer))
    ratio = ratios(checks, scripts)
    return Row(
        title=f"warm re-check of {entry.id}",
        command=f"grader watch {entry.id}, then save",
        figures=f"{ratio} x the bare script; {spread(checks)} s and {spread(scripts)} s; "
        f"without workers that stand by {spread(forks)} s",
        limit=f"0.3 x {shown(peer)}",
        holds=ratio.median <= 0.3,
        spreads={
            "ratio": ratio,
            "check": spread(checks),
            "check without stand-by": spread(forks),
            "bare": spread(scripts),
        },
    )
