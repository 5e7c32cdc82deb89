"""Grades one file: source, two workers side by side, measurers, timing; yields a `Record`.

Runs in the grader's own process. It decides nothing about the submission except whether
there is a point in going on: verdicts are `grader.judge`'s. How one file is driven and
one set of programs measured is in `grader.sides`.
"""

import secrets
from collections.abc import Callable
from pathlib import Path

from grader import judge, pacing, source, targets
from grader.catalog import Entry
from grader.launch import BrokenInstallation
from grader.messages import DriveJob, PaceJob
from grader.record import Record, Target
from grader.session import NoDevice, Session
from grader.sides import Reference, Side, compile_for, time_programs

Progress = Callable[[str], None]


def new_seed() -> int:
    """A fresh secret seed for the inputs of one grading."""
    return secrets.randbits(63)


def grade(
    entry: Entry,
    path: Path,
    session: Session,
    *,
    seed: int | None = None,
    target: Target | None = None,
    label: str = "",
    ahead: Reference | None = None,
    progress: Progress = lambda _: None,
) -> Record:
    """Grade the file at `path` as a submission of `entry`; never raises for its faults.

    `target` is a machine to compile for. `ahead` is what `look_ahead` returned; its seed
    is used, once.
    """
    label = label or str(path)
    if seed is None:
        seed = ahead.seed if ahead else new_seed()
    record = Record(entry.stem, label, "", seed, target=target)
    try:
        record.source = source.read(path)
    except source.Unreadable as unreadable:
        record.findings = [unreadable.finding]
        return record
    solution = entry.solution.read_text("utf-8")
    record.findings = source.inspect_source(record.source, solution, entry.exercise)
    if record.findings:
        return record
    try:
        if ahead is None or ahead.seed != seed:
            ahead = Reference(entry, session, seed, target)
        _run(entry, record, session, ahead, progress)
    except NoDevice as missing:
        record.unavailable = str(missing)
    return record


def look_ahead(entry: Entry, session: Session, target: Target | None = None) -> Reference:
    """Start what the next grading needs and no submission changes, while nobody waits.

    The reference runs on a fresh secret seed; the submission's workers stand by.
    """
    reference = Reference(entry, session, new_seed(), target)
    session.stand_by(*reference.place, program=entry.exercise.has_program)
    return reference


def _run(
    entry: Entry, record: Record, session: Session, reference: Reference, progress: Progress
) -> None:
    platform, devices = reference.place
    where = f"{devices} {platform.upper()} device" + ("s" if devices > 1 else "")
    progress(f"{entry.id}: running on {where}")
    for_target = reference.target is not None
    job = DriveJob(entry.stem, record.path, record.source, record.seed, for_target)
    mine = Side(session, reference.place, job, hide=True, inputs=reference.side)
    try:
        mine.wait()
        reference.side.wait()
        _collect(record, mine, reference.side)
    except (NoDevice, BrokenInstallation):
        raise
    except BaseException:
        session.cancel()
        raise
    if record.broken or record.submission is None or record.submission.outcome.kind != "finished":
        return
    if reference.target is not None and judge.worth_compiling(record, entry.exercise):
        progress(f"{entry.id}: compiling for {reference.target.title}")
        _compile(record, session, reference, reference.target)
    timed = entry.exercise.loop_timing or entry.exercise.program_timing
    if timed and judge.worth_timing(record, entry.exercise):
        _time(entry, record, session, reference, progress)


def _collect(record: Record, mine: Side, theirs: Side) -> None:
    record.submission, record.machine = mine.driven.result()
    record.reference, _ = theirs.driven.result()
    if record.submission.outcome.kind == "broken":
        record.broken = record.submission.outcome.message
    elif record.submission.outcome.kind != "finished":
        return  # what ended it, a fork bomb, say, may have kept the reference from its time
    elif record.reference.outcome.kind != "finished":
        record.broken = f"the reference solution ended: {record.reference.outcome.message}"
    record.measured, record.reference_measured = mine.measured.result(), theirs.measured.result()


def _compile(record: Record, session: Session, reference: Reference, target: Target) -> None:
    """Compile both sides for the target. What fails for the reference too is not the learner's."""
    record.target_problem = targets.missing()
    if record.target_problem or record.submission is None:
        return
    theirs = reference.targeted()
    mine = compile_for(session, target, record.submission.targeted)
    found = theirs.result()
    record.target_measured, record.target_reference_measured = mine.programs, found.programs
    failed = next((m for m in found.programs.values() if m.problem), None)
    record.target_problem = mine.problem or found.problem
    if failed and not record.target_problem:
        record.target_problem = f"the reference's `{failed.name}`: {failed.problem}"


def _time(
    entry: Entry, record: Record, session: Session, reference: Reference, progress: Progress
) -> None:
    if entry.exercise.loop_timing:
        progress(f"{entry.id}: timing against the reference")
        job = PaceJob(entry.stem, record.path, record.source)
        record.timing["loop"] = pacing.duel(entry, job, session, *reference.place)
    if entry.exercise.program_timing:
        progress(f"{entry.id}: timing the program against the reference's")
        time_programs(entry.exercise.program_timing, record, session, reference.place)
