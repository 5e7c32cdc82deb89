"""Drives one file and measures its programs, each in a process of its own.

Both sides of a grading, submission and reference, go through the same steps. They differ
in what they may see. Programs of both sides run on the reference's inputs. What a worker
did wrong is an `Outcome` or a `Measured.problem`, not an exception.
"""

from concurrent.futures import Future
from typing import NamedTuple

import msgspec

from grader.course.catalog import Entry
from grader.judging.checking import ProgramTiming
from grader.records.record import (
    Leaf,
    Machine,
    Measured,
    Observed,
    Outcome,
    Program,
    Record,
    Target,
)
from grader.records.stack_dump import frames_in
from grader.running.messages import DriveJob, MeasureJob, Measurements, Targeted, TargetJob
from grader.running.process import Failed
from grader.running.session import NEXT_DOOR, Session, measuring_platform

MEASURE_SECONDS = 60.0
SAID_BY_WORKERS = ("finished", "raised", "exited", "unusable")
"""How a run ended, as far as its own process may say. Whether the grader broke is seen from
outside: in a learner's process, the learner's code could say so."""
MAYBE_BY_OTHERS = ("killed", "garbled", "exited")
"""How a run ends whose process was ended, alone or together with what watches over it."""
TARGET_SECONDS = 120.0


class Place(NamedTuple):
    """Where both sides run."""

    platform: str
    devices: int


class Side:
    """One file. It is driven at once, and measured as soon as it and the inputs are there."""

    def __init__(
        self,
        session: Session,
        place: Place,
        job: DriveJob,
        *,
        hide: bool,
        inputs: "Side | None" = None,
    ) -> None:
        self.driven: Future[tuple[Observed, Machine]] = session.pool.submit(
            drive, session, place, job, hide=hide
        )
        self.measured: Future[dict[str, Measured]] = session.pool.submit(
            self._measure, session, place, inputs or self, hide=hide
        )

    @property
    def finished(self) -> bool:
        """Whether it was driven to its end; waits for that."""
        return self.driven.result()[0].outcome.kind == "finished"

    def wait(self) -> None:
        """Return when nothing of it runs any more."""
        self.driven.exception()
        self.measured.exception()

    def _measure(
        self, session: Session, place: Place, other: "Side", *, hide: bool
    ) -> dict[str, Measured]:
        observed, _ = self.driven.result()
        blobs = {name: p.blob for name, p in observed.programs.items() if p.blob}
        if not blobs or observed.outcome.kind != "finished":
            return {}
        inputs = other.driven.result()[0].inputs
        job = MeasureJob(blobs, {}, inputs)
        return measure(session, place, job, hide=hide).submission


class Reference:
    """The reference solution on one seed, and for a target if there is one.

    `target` is None where the exercise has no check for it. `named` are the numbers that what is
    drawn reaches: those of the submission.
    """

    def __init__(
        self,
        entry: Entry,
        session: Session,
        seed: int,
        target: Target | None = None,
        named: tuple[float, ...] = (),
    ) -> None:
        self.seed = seed
        self.named = named
        self.target = target if entry.exercise.has_target else None
        self.place = place_for(entry, session, self.target)
        job = msgspec.structs.replace(reference_job(entry, seed, target), named=named)
        self.side = Side(session, self.place, job, hide=False)
        self._session = session
        self._targeted: Future[Targeted] | None = None

    def targeted(self) -> "Future[Targeted]":
        """Its programs, compiled for the target. The first call starts the compilation."""
        assert self.target is not None
        if self._targeted is None:
            programs = self.side.driven.result()[0].targeted
            self._targeted = self._session.pool.submit(
                compile_for, self._session, self.target, programs, hide=False
            )
        return self._targeted


def reference_job(entry: Entry, seed: int, target: Target | None) -> DriveJob:
    """What a worker is asked for to run the reference solution."""
    solution, for_target = entry.solution.read_text("utf-8"), entry.exercise.has_target
    targeted = for_target and target is not None
    return DriveJob(entry.drive_module, entry.file_name, solution, seed, targeted, reference=True)


def place_for(entry: Entry, session: Session, target: Target | None) -> Place:
    """Where an exercise runs; for a target, on as many simulated devices as that has."""
    if target is not None:
        return Place("cpu", target.devices)
    return Place(*session.platform_for(entry.exercise))


def timed_place(entry: Entry, place: Place) -> Place:
    """Where a loop is timed: on a device next door only if the exercise says how fast that is.

    The latency of its launches is no GPU's.
    """
    if place.platform == NEXT_DOOR and not entry.exercise.flops:
        return Place("cpu", place.devices)
    return place


def drive(session: Session, place: Place, job: DriveJob, *, hide: bool) -> tuple[Observed, Machine]:
    """Run one file in one worker, under observation."""
    prepared = session.prepare(*place, observe=True, hide=hide, job=job)
    machine, worker = prepared.machine, prepared.worker
    try:
        raw = worker.ask(job, session.limit(place.platform, job.named))
        observed = msgspec.json.decode(raw, type=Observed)
        if observed.witnessed is not None:
            observed.witnessed.by = "trace"  # no worker has a book
        if observed.outcome.kind not in SAID_BY_WORKERS:
            said = f"the run ended in its own words: {observed.outcome.message}"
            observed = Observed(Outcome("unusable", said))
        observed.outcome.output = worker.output()
    except Failed as failed:
        # It may have ended while nobody waited for it.
        if prepared.stood_by and failed.outcome.kind in MAYBE_BY_OTHERS:
            return drive(session, place, job, hide=hide)
        frames = frames_in(worker.stack(), job.path, job.source)
        observed = Observed(msgspec.structs.replace(failed.outcome, frames=frames))
    except (msgspec.DecodeError, RecursionError) as error:
        observed = Observed(Outcome("garbled", f"the worker's answer is not a record: {error}"))
    finally:
        book = session.release(worker)
    observed.witnessed = book or observed.witnessed
    machine.isolation = worker.fences
    return observed, machine


def measure(session: Session, place: Place, job: MeasureJob, *, hide: bool = True) -> Measurements:
    """Load, check, compile and run programs where the learner's Python never was."""
    platform = measuring_platform(place.platform)
    prepared = session.prepare(
        platform, place.devices, observe=False, hide=hide, timed=bool(job.timed)
    )
    try:
        raw = prepared.worker.ask(job, session.options.timeout + MEASURE_SECONDS)
        return msgspec.json.decode(raw, type=Measurements)
    except (Failed, msgspec.DecodeError, RecursionError) as error:
        text = f"the process that compiles it ended: {error}"
        return Measurements({name: Measured(name, text) for name in job.programs}, {})
    finally:
        session.release(prepared.worker)


def compile_for(
    session: Session, target: Target, programs: dict[str, Program], *, hide: bool = True
) -> Targeted:
    """Compile programs for a target, where the learner's Python never was."""
    blobs = {name: program.blob for name, program in programs.items() if program.blob}
    job = TargetJob(target, blobs)
    prepared = session.prepare_compiler(hide=hide)
    try:
        found = msgspec.json.decode(prepared.worker.ask(job, TARGET_SECONDS), type=Targeted)
        found.problem += prepared.said if found.problem else ""
        return found
    except (Failed, msgspec.DecodeError, RecursionError) as error:
        text = f"the process that compiles it for {target.title} ended: {error}"
        return Targeted({name: Measured(name, text) for name in blobs})
    finally:
        session.release(prepared.worker)


def time_programs(timing: ProgramTiming, record: Record, session: Session, place: Place) -> None:
    """Time one program of the submission against the reference's, side by side."""
    assert record.submission is not None
    assert record.reference is not None
    name = timing.program
    inputs: dict[str, list[list[Leaf]]] = {name: record.reference.inputs.get(name, [])}
    job = MeasureJob(
        {name: record.submission.programs[name].blob},
        {name: record.reference.programs[name].blob},
        inputs,
        timed=name,
        at_most=timing.at_most,
        seed=record.seed,
    )
    found = measure(session, place, job)
    record.timing |= found.timing
    problem = found.submission[name].problem
    if problem:
        record.measured[name].problem = problem
