"""The body of a worker process: meets JAX, runs a file, reports what was observed.

Reached by a fork (`grader.forkserver`) or a spawn (`python -m grader.worker`). It gives
no verdicts. Whatever the learner's code raises becomes an `Outcome` with the frames that
lie in the learner's file; nothing of the grader's own stack is reported.
"""

import faulthandler
import linecache
import os
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from grader import messages
from grader.checking import Misused
from grader.messages import Done, DriveJob, Job, MeasureJob, PaceJob, Ready, Setup, Turn
from grader.record import Frame, Observed, Outcome

if TYPE_CHECKING:
    from grader.probes.observer import Observer


class _Stopped(Exception):
    """The learner's code ended in a way that leaves nothing to observe."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


def run(inbox: int, result: int) -> int:
    """Serve one job over two descriptors; return the process's exit code."""
    setup = msgspec.json.decode(messages.read_frame(inbox), type=Setup)
    observer, ready = _prepare(setup)
    messages.write_all(result, messages.frame(ready))
    body = messages.read_frame(inbox)
    if not body or ready.problem:
        return 0
    job = msgspec.json.decode(body, type=Job)
    faulthandler.dump_traceback_later(setup.timeout, exit=False)
    match job:
        case DriveJob():
            assert observer is not None
            messages.write_all(result, messages.frame(_drive(job, observer)))
        case MeasureJob():
            from grader.program import measurements

            messages.write_all(result, messages.frame(measurements(job)))
        case PaceJob():
            _pace(job, inbox, result)
    return 0


def _prepare(setup: Setup) -> "tuple[Observer | None, Ready]":
    """Start the backend and the probes; a plugin's error becomes the answer."""
    from grader.probes import devices, observer

    try:
        machine = devices.start(setup.platform, setup.devices)
    except Exception as error:
        return None, Ready(problem=f"{type(error).__name__}: {error}")
    return observer.Observer() if setup.observe else None, Ready(machine)


def load(path: str, source: str, observer: "Observer | None" = None) -> ModuleType:
    """Execute a submission's source as a module of its own, its lines followed.

    Raises:
      _Stopped: the code raised or exited while it was imported.
    """
    module = ModuleType("submission")
    module.__file__ = path
    sys.modules["submission"] = module
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    with _Learner(path):
        code = compile(source, path, "exec", dont_inherit=True)
        if observer is not None:
            observer.follow(code)
        exec(code, module.__dict__)
    return module


class _Learner:
    """Turns whatever the learner's code raises into `_Stopped`."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and not isinstance(error, _Stopped):
            raise _Stopped(_outcome(error, self._path)) from None


def _outcome(error: BaseException, path: str) -> Outcome:
    frames = [
        Frame(f.lineno or 0, f.name, f.line or "")
        for f in traceback.extract_tb(error.__traceback__)
        if f.filename == path
    ]
    if isinstance(error, SystemExit):
        return Outcome("exited", f"the code called exit (SystemExit: {error.code})")
    if isinstance(error, Misused):
        return Outcome("unusable", f"{error.expected}\n{error.observed}", frames)
    message = "".join(traceback.format_exception_only(error)).strip()
    kind = "raised" if frames else "unusable"
    return msgspec.convert({"kind": kind, "message": message[:4000], "frames": frames}, Outcome)


def _drive(job: DriveJob, observer: "Observer") -> Observed:
    import numpy as np

    from grader import catalog

    exercise = catalog.Entry(job.stem).exercise
    with observer.watching(job.path):
        try:
            module = load(job.path, job.source, observer)
            with _Learner(job.path):
                exercise.drive(module, observer, np.random.default_rng(job.seed))
            outcome = Outcome("finished")
        except _Stopped as stopped:
            outcome = stopped.outcome
        except Exception as error:
            outcome = Outcome("broken", _inner(error))
    return observer.observed(outcome)


def _inner(error: Exception) -> str:
    """A fault of the grader's own, for its maintainers."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({os.path.basename(last.filename)}:{last.lineno})"


def _pace(job: PaceJob, inbox: int, result: int) -> None:
    """Prepare and run windows of a loop, until the grader closes the input."""
    import numpy as np

    from grader import catalog

    timing = catalog.Entry(job.stem).exercise.loop_timing
    assert timing is not None

    def answer(done: Done) -> None:
        messages.write_all(result, messages.frame(done))

    try:
        module = load(job.path, job.source)
        if job.naive:
            setattr(module, timing.function, timing.naive)
        answer(Done())
        window: Callable[[], list[float]] = list
        while body := messages.read_frame(inbox):
            turn = msgspec.json.decode(body, type=Turn)
            rng = np.random.default_rng(turn.seed)
            with _Learner(job.path):
                match turn.act:
                    case "measure":
                        answer(Done([timing.unit(module, rng)]))
                    case "prepare":
                        window = timing.pace(module, rng, turn.steps, turn.unit)
                        answer(Done())
                    case "go":
                        answer(Done(window()))
    except _Stopped as stopped:
        answer(Done(problem=Observed(stopped.outcome)))


def main() -> None:
    """Entry point of a spawned worker: job on stdin, answers on stdout, prints on stderr."""
    inbox, result = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os._exit(run(inbox, result))


if __name__ == "__main__":
    main()
