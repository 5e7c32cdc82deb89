"""Serves one job in a worker process: starts the backend, does the job, answers.

Jobs and answers are messages (`grader.running.messages`). What a job does is in
`grader.worker.driving` and `grader.program`.
"""

import faulthandler
import os
import traceback

import msgspec

from grader.probes import devices
from grader.program.jobs import measurements, warm_up
from grader.program.targeting import NoCompiler, compile_for
from grader.records.record import Observed, Outcome
from grader.running import compiled, messages
from grader.running.messages import (
    DriveJob,
    Job,
    MeasureJob,
    Measurements,
    PaceJob,
    Ready,
    Setup,
    Targeted,
    TargetJob,
    Turn,
)
from grader.worker import driving
from grader.worker.observer import Observer


def serve(inbox: int, result: int, stack: int | None, use: messages.Use = "") -> int:
    """Serve one job; returns the process's exit code.

    The job comes from the descriptor `inbox`, and answers go to `result`. If the process is
    stuck or breaks, the place or the reason is written to the descriptor `stack`. `use` is what
    to do with the folder of compiled programs that is there (`grader.running.compiled`).
    """
    try:
        return _serve(inbox, result, stack, use)
    except Exception:  # noqa: BLE001 (whatever it is, it is reported, and not to the learner)
        if stack is not None:
            os.write(stack, traceback.format_exc().encode("utf-8", "replace"))
        return messages.BROKE


def _serve(inbox: int, result: int, stack: int | None, use: messages.Use) -> int:
    if not (body := messages.read_frame(inbox)):
        return 0  # the grader has gone
    setup = msgspec.json.decode(body, type=Setup)
    if stack is not None:
        faulthandler.enable(stack)
    shared = compiled.used(use)
    observer, ready = _prepare(setup, shared, adds=use == "add")
    messages.write_all(result, messages.frame(ready))
    if setup.warm and not ready.problem:
        warm_up()
    if ready.problem or not (body := messages.read_frame(inbox)):
        return 0
    job = msgspec.json.decode(body, type=Job)
    if isinstance(job, DriveJob) and stack is not None:
        faulthandler.dump_traceback_later(setup.timeout, exit=False, file=stack)
    _do(job, observer, inbox, result, own=shared if use == "add" else "")
    return 0


def _prepare(setup: Setup, shared: str, *, adds: bool) -> tuple[Observer | None, Ready]:
    """Start the backend and the probes; a plugin's error becomes the answer."""
    try:
        machine = devices.start(setup.platform, setup.devices, shared, adds=adds)
    except Exception as error:  # noqa: BLE001 (a plugin may raise anything)
        return None, Ready(problem=f"{type(error).__name__}: {error}")
    next_door = setup.platform == devices.NEXT_DOOR
    return Observer(next_door=next_door) if setup.observe else None, Ready(machine)


def _do(job: Job, observer: Observer | None, inbox: int, result: int, *, own: str) -> None:
    """Do the job, and answer it; `own` is the folder with the programs to hand on."""

    def answer(message: msgspec.Struct) -> None:
        send(messages.frame(message))

    def send(done: bytes) -> None:
        if own:
            compiled.hand_on(own)  # before whoever waits for the answer goes on
        messages.write_all(result, done)

    def next_turn() -> Turn | None:
        body = messages.read_frame(inbox)
        return msgspec.json.decode(body, type=Turn) if body else None

    match job:
        case DriveJob():
            assert observer is not None
            send(_framed(driving.drive(job, observer)))
        case MeasureJob():
            answer(measured(job))
        case TargetJob():
            answer(_targeted(job))
        case PaceJob():
            driving.pace(job, next_turn, answer)


def _framed(observed: Observed) -> bytes:
    """As `messages.frame`, but names and facts from the learner's code may not be JSON."""
    try:
        return messages.frame(observed)
    except (TypeError, ValueError) as error:
        text = f"what the code left behind cannot be written down ({error})"
        return messages.frame(Observed(Outcome("unusable", text)))


def measured(job: MeasureJob) -> Measurements:
    """Measure the programs of a job."""
    return Measurements(
        *measurements(
            job.programs,
            job.reference_programs,
            job.inputs,
            timed=job.timed,
            at_most=job.at_most,
            seed=job.seed,
        )
    )


def _targeted(job: TargetJob) -> Targeted:
    try:
        return Targeted(compile_for(job.target, job.programs))
    except NoCompiler as error:
        return Targeted(problem=str(error))
