"""Grades one file: source, two workers side by side, measurers, timing; yields a `Record`.

Runs in the grader's own process. It reaches no verdict (`grader.judging.judge` does), and
decides only whether there is a point in going on. How one file is driven and how programs
are measured is in `grader.running.sides`.
"""

import copy
import os
import platform
import secrets
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from grader import __version__
from grader.course.catalog import Entry
from grader.judging import judge
from grader.judging.words import plural
from grader.records.record import Made, Record, Target
from grader.running import pacing, submitted
from grader.running.launch import BrokenInstallation, Lost
from grader.running.messages import DriveJob, PaceJob
from grader.running.session import NEXT_DOOR, NoDevice, NotNextDoor, Session
from grader.running.sides import (
    Reference,
    Side,
    compile_for,
    place_for,
    reference_job,
    time_programs,
    timed_place,
)
from grader.source import inspection, numbers

Progress = Callable[[str], None]


def new_seed() -> int:
    """A fresh secret seed for the inputs of one grading."""
    return secrets.randbits(63)


def made(entry: Entry) -> Made:
    """What a record says of its origin: this grader, this exercise, this moment, this machine."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    count = plural(os.cpu_count() or 1, "processor")
    return Made(__version__, entry.checksum, now, f"{system}, {count}")


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
    is used, once. Both sides meet what is drawn from the seed and from the numbers in the file.
    """
    label = label or submitted.shown(path)
    if seed is None:
        seed = ahead.seed if ahead else new_seed()
    record = Record(entry.stem, label, "", seed, target=target, made=made(entry))
    try:
        record.source = submitted.read(path)
    except inspection.Unreadable as unreadable:
        record.findings = [unreadable.finding]
        return record
    try:
        record.findings = entry.inspect(record.source)
    except Exception as error:  # noqa: BLE001 (one file's fault is not the next one's)
        record.broken = _fault(error)
    if record.findings or record.broken:
        return record
    try:
        return _observed(entry, record, session, ahead, progress)
    except Lost:
        session.start_afresh()
        return _observed(entry, record, session, None, progress)


def _observed(
    entry: Entry, blank: Record, session: Session, ahead: Reference | None, progress: Progress
) -> Record:
    """The record, filled in.

    Raises:
      Lost: the fork server did not live to the end, and nothing of the record counts.
    """
    record = copy.deepcopy(blank)
    try:
        named = numbers.own(record.source, entry.exercise.model)
        if ahead is None or (ahead.seed, ahead.named) != (record.seed, named):
            ahead = Reference(entry, session, record.seed, record.target, named)
        _run(entry, record, session, ahead, progress)
    except NotNextDoor:
        return _observed(entry, blank, session, None, progress)
    except NoDevice as missing:
        record.unavailable = str(missing)
    except (BrokenInstallation, Lost):
        raise
    except Exception as error:  # noqa: BLE001 (one exercise's fault is not the next one's)
        record.broken = _fault(error)
        session.start_afresh()
    session.confirm()
    return record


def _fault(error: Exception) -> str:
    """A fault of the grader's own, in words for its maintainers."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"


def look_ahead(
    entry: Entry, session: Session, target: Target | None = None, seed: int | None = None
) -> Reference:
    """Start what the next grading needs and no submission changes, while nobody waits.

    The reference runs on a fresh secret seed, or on one that no submission has met yet; the
    submission's workers stand by.
    """
    reference = Reference(entry, session, new_seed() if seed is None else seed, target)
    session.stand_by(*reference.place, program=entry.exercise.has_program)
    return reference


def begin_next(
    now: Entry, upcoming: Entry, session: Session, target: Target | None, seed: int | None
) -> Reference | None:
    """Run the reference of what is graded next, beside what is graded now.

    None where that would disturb: while programs are timed, and on a GPU, whose memory the two
    would share; or where `grade` will say what stands against it.
    """
    if now.exercise.loop_timing or now.exercise.program_timing:
        return None
    with suppress(NoDevice):
        if place_for(upcoming, session, target).platform == "cpu":
            return Reference(upcoming, session, new_seed() if seed is None else seed, target)
    return None


def try_ahead(entry: Entry, session: Session, target: Target | None) -> Reference | None:
    """As `look_ahead`, once, with what the last command left for it.

    None where `grade` will say what stands against it.
    """
    try:
        seed = session.take_left(reference_job(entry, 0, target))
        return look_ahead(entry, session, target, seed)
    except (NoDevice, Lost):
        return None


def leave_ahead(entry: Entry, session: Session, target: Target | None) -> None:
    """Leave what `look_ahead` starts to the next command, if the session leaves it a server."""
    if target is not None and not entry.exercise.has_target:
        target = None
    with suppress(NoDevice):
        place = place_for(entry, session, target)
        job = reference_job(entry, new_seed(), target)
        session.leave_standing_by(*place, job, program=entry.exercise.has_program)


def _run(
    entry: Entry, record: Record, session: Session, reference: Reference, progress: Progress
) -> None:
    name, devices = reference.place
    kind = "next-door" if name == NEXT_DOOR else name.upper()
    where = plural(devices, f"{kind} device")
    progress(f"{entry.id}: running on {where}")
    for_target = reference.target is not None
    asked = (entry.drive_module, record.path, record.source, record.seed, for_target)
    job = DriveJob(*asked, named=reference.named)
    if for_target:
        session.start_compilers()  # they import JAX while the submission runs
    try:
        mine = _drive_both(session, job, reference)
        if mine.finished and not reference.side.finished:
            # The submission may have kept the reference from its time or its memory.
            reference = Reference(entry, session, record.seed, record.target, reference.named)
            reference.side.wait()
            mine = _drive_both(session, job, reference)
        instead = session.instead_of_next_door(entry.exercise)
        _collect(record, mine, reference.side, instead if name != NEXT_DOOR else "")
    except (NoDevice, NotNextDoor, BrokenInstallation, Lost):
        raise
    except BaseException:  # an interrupt, too: nothing goes on behind it
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


def _drive_both(session: Session, job: DriveJob, reference: Reference) -> Side:
    """Drive the submission beside the reference, and return when neither runs any more."""
    mine = Side(session, reference.place, job, hide=True, inputs=reference.side)
    import numpy  # noqa: F401 (what judges will need it, and here there is time)

    mine.wait()
    reference.side.wait()
    return mine


def _collect(record: Record, mine: Side, theirs: Side, instead: str) -> None:
    record.submission, record.machine = mine.driven.result()
    record.machine.instead = instead
    record.reference, _ = theirs.driven.result()
    if record.submission.outcome.kind == "broken":
        record.broken = record.submission.outcome.message
    elif record.submission.outcome.kind != "finished":
        return  # what ended it, a fork bomb, say, may have kept the reference from its time
    elif record.reference.outcome.kind != "finished":
        record.broken = f"the reference solution ended: {record.reference.outcome.message}"
    record.measured, record.reference_measured = mine.measured.result(), theirs.measured.result()


def _compile(record: Record, session: Session, reference: Reference, target: Target) -> None:
    """Compile both sides for the target.

    Where the reference fails too, the fault is not the learner's.
    """
    record.target_problem = session.start_compilers()
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
        job = PaceJob(entry.drive_module, record.path, record.source)
        place = timed_place(entry, reference.place)
        record.timing["loop"] = pacing.duel(entry, job, session, *place)
    if entry.exercise.program_timing:
        progress(f"{entry.id}: timing the program against the reference's")
        time_programs(entry.exercise.program_timing, record, session, reference.place)
