"""Grades one file: source, two workers side by side, measurer, timing; yields a `Record`.

Runs in the grader's own process. It decides nothing about the submission except whether
there is a point in going on: verdicts are `grader.judge`'s.
"""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from grader import judge, pacing, source
from grader.catalog import Entry
from grader.launch import BrokenInstallation
from grader.messages import DriveJob, Measurements, MeasureJob, PaceJob
from grader.process import Failed
from grader.record import Machine, Measured, Observed, Outcome, Record
from grader.session import NoDevice, Session
from grader.stuck import frames_in

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
    label: str = "",
    progress: Progress = lambda _: None,
) -> Record:
    """Grade the file at `path` as a submission of `entry`; never raises for its faults."""
    label = label or str(path)
    record = Record(entry.stem, label, "", new_seed() if seed is None else seed)
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
        _run(entry, record, solution, session, progress)
    except NoDevice as missing:
        record.unavailable = str(missing)
    return record


def _run(
    entry: Entry, record: Record, solution: str, session: Session, progress: Progress
) -> None:
    platform, devices = session.platform_for(entry.exercise.devices)
    where = f"{devices} {platform.upper()} device" + ("s" if devices > 1 else "")
    progress(f"{entry.id}: running on {where}")
    jobs = (
        DriveJob(entry.stem, record.path, record.source, record.seed),
        DriveJob(entry.stem, entry.file_name, solution, record.seed),
    )
    with ThreadPoolExecutor(2) as pool:
        mine = pool.submit(_drive, session, platform, devices, jobs[0], hide=True)
        theirs = pool.submit(_drive, session, platform, devices, jobs[1], hide=False)
        try:
            record.submission, record.machine = mine.result()
            record.reference, _ = theirs.result()
        except (NoDevice, BrokenInstallation):
            raise
        except BaseException:
            session.cancel()
            raise
    if record.submission.outcome.kind == "broken":
        record.broken = record.submission.outcome.message
    if record.submission.outcome.kind != "finished":
        return
    if record.reference.outcome.kind != "finished":
        record.broken = f"the reference solution ended: {record.reference.outcome.message}"
        return
    if record.submission.programs:
        progress(f"{entry.id}: compiling the exported program")
        _measure(entry, record, session, platform, devices)
    if entry.exercise.loop_timing and judge.worth_timing(record, entry.exercise):
        progress(f"{entry.id}: timing against the reference")
        job = PaceJob(entry.stem, record.path, record.source)
        record.timing["loop"] = pacing.duel(entry, job, solution, session, platform, devices)


def _drive(
    session: Session, platform: str, devices: int, job: DriveJob, *, hide: bool
) -> tuple[Observed, Machine]:
    """One file in one worker. How the worker failed, if it did, is an `Outcome`."""
    prepared = session.prepare(platform, devices, observe=True, hide=hide)
    machine, worker = prepared.machine, prepared.worker
    try:
        raw = worker.ask(job, session.options.timeout)
        observed = msgspec.json.decode(raw, type=Observed)
        observed.outcome.output = worker.output()
    except Failed as failed:
        frames = frames_in(worker.stack(), job.path, job.source)
        observed = Observed(msgspec.structs.replace(failed.outcome, frames=frames))
    except (msgspec.DecodeError, RecursionError) as error:
        observed = Observed(Outcome("garbled", f"the worker's answer is not a record: {error}"))
    finally:
        session.release(worker)
    machine.isolation = worker.fences
    return observed, machine


def _measure(entry: Entry, record: Record, session: Session, platform: str, devices: int) -> None:
    """Programs of both sides, in a process that never saw the learner's Python."""
    assert record.submission is not None and record.reference is not None
    timing = entry.exercise.program_timing
    reference = record.reference
    job = MeasureJob(
        entry.stem,
        {name: p.blob for name, p in record.submission.programs.items() if p.blob},
        {name: p.blob for name, p in reference.programs.items()},
        {name: reference.inputs.get(name, []) for name in reference.programs},
        timed=timing.program if timing else "",
        at_most=timing.at_most if timing else 0.0,
        seed=record.seed,
    )
    try:
        prepared = session.prepare(platform, devices, observe=False, hide=True)
    except Failed as failed:
        record.broken = f"the measurer did not start: {failed.outcome.message}"
        return
    try:
        raw = prepared.worker.ask(job, session.options.timeout + 60)
        found = msgspec.json.decode(raw, type=Measurements)
    except (Failed, msgspec.DecodeError) as error:
        text = f"the process that compiles it ended: {error}"
        record.measured = {name: Measured(name, text) for name in job.programs}
        return
    finally:
        session.release(prepared.worker)
    record.measured, record.reference_measured = found.submission, found.reference
    record.timing |= found.timing
