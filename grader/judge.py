"""Turns a record into a report: every check once, in order, nothing run.

A check that raises is a fault of the grader's and is reported as such (`CheckBroke`),
never as a verdict on the learner.
"""

from grader.checking import Check, Exercise, Failure, Unable
from grader.evidence import culprit, definition
from grader.record import Outcome, Record
from grader.verdict import Culprit, Ground, Report, Status, Verdict

SOURCE = "source"
RUNS = "runs"
_PROMISE = {
    "raised": "no exception",
    "exited": "the code returns to the grader",
    "killed": "the process lives to the end",
    "timeout": "the code ends in time",
    "flooded": "little output",
    "garbled": "an answer the grader can read",
}


class CheckBroke(Exception):
    """A check function raised: a fault of the grader."""


def judge(record: Record, exercise: Exercise) -> Report:
    """Judge every check of `exercise` over `record`.

    Raises:
      CheckBroke: a check raised an exception.
    """
    verdicts = [_source(record, exercise)]
    if not record.findings:
        verdicts.append(_runs(record, exercise))
    for check in _judged(record, exercise):
        verdicts.append(_check(record, check, exercise, {v.check: v.status for v in verdicts}))
    printed = record.submission.outcome.output if record.submission else ""
    return Report(
        exercise=record.exercise,
        title=exercise.title,
        path=record.path,
        seed=record.seed,
        verdicts=verdicts,
        machine=record.machine,
        output=printed,
        target=record.target.title if record.target and exercise.has_target else "",
        left_out=len(exercise.checks) - len(_judged(record, exercise)),
    )


def _judged(record: Record, exercise: Exercise) -> list[Check]:
    """Every check; without a target, not those that need one."""
    return [c for c in exercise.checks if c.ground != "target" or record.target is not None]


def worth_timing(record: Record, exercise: Exercise) -> bool:
    """Whether every check but those of time passes; what lacks its target is not asked."""
    statuses = _statuses(record, exercise, "observed", "program", "target")
    lacking = {c.name for c in exercise.checks if c.ground == "target" and record.target_problem}
    return {status for name, status in statuses.items() if name not in lacking} == {"pass"}


def worth_compiling(record: Record, exercise: Exercise) -> bool:
    """Whether a check of the target does not wait for another that fails."""
    done = _statuses(record, exercise, "observed", "program")
    return any(
        all(done.get(name, "pass") == "pass" for name in check.after)
        for check in exercise.checks
        if check.ground == "target"
    )


def _statuses(record: Record, exercise: Exercise, *grounds: Ground) -> dict[str, Status]:
    """The verdicts of the checks of these grounds, those of the file among them."""
    statuses: dict[str, Status] = {SOURCE: "pass", RUNS: "pass"}
    for check in _judged(record, exercise):
        if check.ground in grounds:
            statuses[check.name] = _check(record, check, exercise, statuses).status
    return statuses


def _source(record: Record, exercise: Exercise) -> Verdict:
    title = "The file is readable Python, changed only where it may be."
    lesson = f"{exercise.lesson}#{exercise.anchor}"
    if not record.findings:
        return Verdict(SOURCE, title, "pass", "source", lesson=lesson)
    expected = "; ".join(dict.fromkeys(f.expected for f in record.findings))
    observed = "; ".join(dict.fromkeys(f.observed for f in record.findings))
    lines = dict.fromkeys(f.line for f in record.findings if f.line is not None)
    places = [culprit(record, line) for line in lines]
    return Verdict(SOURCE, title, "fail", "source", expected, observed, places)


def _runs(record: Record, exercise: Exercise) -> Verdict:
    title = "The code runs to the end."
    lesson = f"{exercise.lesson}#{exercise.anchor}"
    verdict = Verdict(RUNS, title, "pass", "observed", lesson=lesson)
    if record.unavailable or record.submission is None:
        verdict.status, verdict.reason = "could not check", record.unavailable or record.broken
    elif record.submission.outcome.kind != "finished":
        _explain(verdict, record, record.submission.outcome, exercise)
    return verdict


def _explain(verdict: Verdict, record: Record, outcome: Outcome, exercise: Exercise) -> None:
    verdict.status = "fail"
    promise = _PROMISE.get(outcome.kind, "a result the grader can use")
    verdict.expected, verdict.observed = outcome.promise or promise, outcome.message
    verdict.traceback = outcome.frames
    if outcome.frames:
        last = outcome.frames[-1]
        verdict.culprits = [Culprit(last.line, last.text)]
    elif outcome.kind == "unusable" and len(exercise.edits) == 1:
        verdict.culprits = definition(record, exercise.edits[0])


def _check(record: Record, check: Check, exercise: Exercise, done: dict[str, Status]) -> Verdict:
    verdict = Verdict(check.name, check.title, "pass", check.ground, lesson=check.lesson)
    needs = [SOURCE, RUNS, *check.after]
    if check.ground == "timing":
        needs += [c.name for c in exercise.checks if c.ground != "timing"]
    waits = next((name for name in needs if done.get(name) in ("fail", "blocked")), None)
    if waits:
        verdict.status, verdict.reason = "blocked", f"waits for {waits}"
    elif record.submission is None or record.unavailable:
        verdict.status = "could not check"
        verdict.reason = record.unavailable or "nothing was run"
    elif any(done.get(name) == "could not check" for name in check.after):
        verdict.status, verdict.reason = "could not check", "an earlier check could not be made"
    else:
        _judge_one(verdict, record, check)
    return verdict


def _judge_one(verdict: Verdict, record: Record, check: Check) -> None:
    try:
        result = check.function(record)
    except Exception as error:
        raise CheckBroke(f"{check.name}: {type(error).__name__}: {error}") from error
    match result:
        case Failure(expected=expected, observed=observed, culprits=culprits):
            verdict.status, verdict.expected, verdict.observed = "fail", expected, observed
            verdict.culprits = list(culprits)
        case Unable(reason=reason):
            verdict.status, verdict.reason = "could not check", reason
