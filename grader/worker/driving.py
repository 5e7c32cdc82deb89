"""Lets an exercise's drive run a submission: once under observation, or in timed windows.

The jobs come from `grader.worker.serve`. Nothing is judged here: observations go into an
`Observed`, and the grader takes the time of the windows.
"""

import importlib
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np

from grader.probes.observe import Drive, Stretch, TimedDrive
from grader.records.record import Observed, Outcome
from grader.running.messages import Done, DriveJob, PaceJob, Turn
from grader.stages.drawn import draw
from grader.worker.learner import LearnersCode, Stopped, load
from grader.worker.observer import Observer


def drive(job: DriveJob, observer: Observer) -> Observed:
    """Run a file once; returns all that was observed, however the run ended."""
    exercise = cast(Drive, importlib.import_module(job.drive))
    observer.for_target, observer.reference = job.target, job.reference
    with observer.watching(job.path):
        try:
            module = load(job.path, job.source, observer.follow)
            with LearnersCode(job.path):
                exercise.drive(module, observer, draw(job.seed, job.named))
                observer.require_all_counted()
            observer.prove_again()
            outcome = Outcome("finished")
        except Stopped as stopped:
            outcome = stopped.outcome
        except Exception as error:  # noqa: BLE001 (it becomes the record's own words)
            outcome = Outcome("broken", _fault(error))
    return observer.observed(outcome)


def _fault(error: Exception) -> str:
    """A fault of the grader itself, in words for its maintainers."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"


def pace(
    job: PaceJob, next_turn: Callable[[], Turn | None], answer: Callable[[Done], None]
) -> None:
    """Prepare and run windows of a loop, until the grader has no more turns."""
    timed = cast(TimedDrive, importlib.import_module(job.drive))
    try:
        module = load(job.path, job.source)
        if job.naive:
            setattr(module, job.naive, timed.naive)
        answer(Done())
        window: Callable[[], list[float]] = list
        while turn := next_turn():
            rng = np.random.default_rng(turn.seed)
            with LearnersCode(job.path):
                match turn.act:
                    case "measure":
                        answer(Done([timed.seconds_of_a_step(module, rng)]))
                    case "prepare":
                        alike = np.random.default_rng(job.seed)
                        window = timed.pace(module, Stretch(turn.steps, turn.unit, rng, alike))
                        answer(Done())
                    case "go":
                        answer(Done(window()))
    except Stopped as stopped:
        answer(Done(problem=Observed(stopped.outcome)))
