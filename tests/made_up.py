"""Made-up exercises, checks and records, for tests that judge without running anything."""

from collections.abc import Callable

from grader.judging.checking import Exercise, Result
from grader.records.record import Observed, Outcome, Record
from grader.records.verdict import Ground, Report

FINISHED = Observed(Outcome("finished"))


def exercise(**results: Result) -> Exercise:
    """An exercise with a check of ground `observed` for each keyword: name -> its result."""
    made = Exercise("", "lessons/01", "top", ("f",))
    for name, result in results.items():
        add(made, name, always(result))
    return made


def always(result: Result) -> Callable[[Record], Result]:
    """A check with this result."""
    return lambda record: result


def add(
    made: Exercise,
    name: str,
    function: Callable[[Record], Result],
    ground: Ground = "observed",
    after: tuple[str, ...] = (),
) -> None:
    """Add one check to the exercise."""
    function.__name__, function.__doc__ = name, f"The {name} holds."
    made.check(ground=ground, after=after)(function)


def record(submission: Observed | None = FINISHED, **fields: object) -> Record:
    """A record, by default of a submission that finished, with these fields."""
    made = Record("ex", "exercises/ex.py", "a = 1\nb = 2\n", 0)
    made.submission = made.reference = submission
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def statuses(report: Report) -> dict[str, str]:
    """Check -> status, in order."""
    return {verdict.check: verdict.status for verdict in report.verdicts}
