"""Wall time of a re-check in a session that is kept, against a bare script.

`grader watch` and the test suite keep such a session: libraries are imported once, and every
grading still gets fresh processes. The bare scripts come from `commands`.
"""

import time

from bench.commands import DidNotRun, bare, shown, timed
from bench.figures import Row, Seconds, interleaved, ratios, spread
from grader.course.catalog import Entry
from grader.judging.judge import judge
from grader.running.grade import grade, look_ahead
from grader.running.session import Options, Session, modules_of

BETWEEN_SAVES = 1.5
"""The shortest time, in seconds, that a learner takes from one save to the next."""


def regrading(entry: Entry, session: Session, *, standing_by: bool) -> Seconds:
    """Times one grading of the solution, from the file to the verdicts.

    With `standing_by`, the grading's workers are started before the clock, as `grader watch`
    starts them between two saves.

    Raises (when called):
      DidNotRun: the solution did not pass.
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
    """The row that compares a re-check of one exercise with its bare script."""
    peer = bare(entry)
    with Session(Options(device="cpu"), modules_of([entry])) as session:
        ready = regrading(entry, session, standing_by=True)
        unready = regrading(entry, session, standing_by=False)
        unready()  # the first grading of a session is slower
        checks, without, scripts = interleaved(rounds, ready, unready, timed(peer))
    ratio = ratios(checks, scripts)
    return Row(
        title=f"warm re-check of {entry.id}",
        command=f"grader watch {entry.id}, then save",
        figures=f"{ratio} x the bare script; {spread(checks)} s and {spread(scripts)} s; "
        f"without workers that stand by {spread(without)} s",
        limit=f"0.3 x {shown(peer)}",
        holds=ratio.median <= 0.3,
        spreads={
            "ratio": ratio,
            "check": spread(checks),
            "check without stand-by": spread(without),
            "bare": spread(scripts),
        },
    )
