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
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from grader import messages
from grader.checking import Misused
from grader.messages import (
    Done,
    DriveJob,
    Job,
    MeasureJob,
    PaceJob,
    Ready,
    Setup,
    TargetJob,
    Turn,
)
from grader.record import Frame, Observed, Outcome

if TYPE_CHECKING:
    from grader.probes.observer import Observer


MAX_FRAMES = 12
"""Of a deep recursion, the first and the last calls."""


class _Stopped(Exception):
    """The learner's code ended in a way that leaves nothing to observe."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


def serve(inbox: int, result: int, stack: int | None) -> int:
    """Serve one job; return the process's exit code.

    Jobs come from the descriptor `inbox`, answers go to `result`; where the process is
    stuck or why it broke goes to `stack`.
    """
    try:
        return _serve(inbox, result, stack)
    except Exception:  # noqa: BLE001 (whatever it is, it is reported, and not to the learner)
        if stack is not None:
            os.write(stack, traceback.format_exc().encode("utf-8", "replace"))
        return messages.BROKE


def _serve(inbox: int, result: int, stack: int | None) -> int:
    if not (body := messages.read_frame(inbox)):
        return 0  # the grader has gone
    setup = msgspec.json.decode(body, type=Setup)
    if stack is not None:
        faulthandler.enable(stack)
    observer, ready = _prepare(setup)
    messages.write_all(result, messages.frame(ready))
    if setup.warm and not ready.problem:
        from grader.program import warm_up

        warm_up()
    if ready.problem or not (body := messages.read_frame(inbox)):
        return 0
    job = msgspec.json.decode(body, type=Job)
    match job:
        case DriveJob():
            assert observer is not None
            if stack is not None:
                faulthandler.dump_traceback_later(setup.timeout, exit=False, file=stack)
            messages.write_all(result, _framed(_drive(job, observer)))
        case MeasureJob():
            from grader.program import measurements

            messages.write_all(result, messages.frame(measurements(job)))
        case TargetJob():
            from grader.program import compile_for

            messages.write_all(result, messages.frame(compile_for(job)))
        case PaceJob():
            _pace(job, inbox, result)
    return 0


def _prepare(setup: Setup) -> "tuple[Observer | None, Ready]":
    """Start the backend and the probes; a plugin's error becomes the answer."""
    from grader.probes import devices, observer

    try:
        machine = devices.start(setup.platform, setup.devices)
    except Exception as error:  # noqa: BLE001 (a plugin may raise anything)
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


def _framed(observed: Observed) -> bytes:
    """As `messages.frame`; names and facts from the learner's code may not be JSON."""
    try:
        return messages.frame(observed)
    except (TypeError, ValueError) as error:
        text = f"what the code left behind cannot be written down ({error})"
        return messages.frame(Observed(Outcome("unusable", text)))


def _outcome(error: BaseException, path: str) -> Outcome:
    frames = [
        Frame(f.lineno or 0, f.name, f.line or "")
        for f in traceback.extract_tb(error.__traceback__)
        if f.filename == path
    ]
    if len(frames) > MAX_FRAMES:
        frames[MAX_FRAMES // 2 : -MAX_FRAMES // 2] = []
    if isinstance(error, SystemExit):
        code = error.code if type(error.code) in (int, str, type(None)) else "an object"
        return Outcome("exited", f"the code called exit (SystemExit: {code})", frames)
    if isinstance(error, Misused):
        return Outcome("unusable", error.observed, frames, promise=error.expected)
    message = "".join(traceback.format_exception_only(error)).strip()
    message = message.partition("\n=== Source Location Trace")[0]  # lines of XLA's own code
    if isinstance(error, MemoryError):
        message += ": the run asked for more memory than it may have"
    kind = "raised" if frames else "unusable"
    return msgspec.convert({"kind": kind, "message": message[:4000], "frames": frames}, Outcome)


def _drive(job: DriveJob, observer: "Observer") -> Observed:
    import numpy as np

    from grader import catalog

    exercise = catalog.Entry(job.stem).exercise
    observer.for_target = job.target
    with observer.watching(job.path):
        try:
            module = load(job.path, job.source, observer)
            with _Learner(job.path):
                exercise.drive(module, observer, np.random.default_rng(job.seed))
            outcome = Outcome("finished")
        except _Stopped as stopped:
            outcome = stopped.outcome
        except Exception as error:  # noqa: BLE001 (it becomes the record's own words)
            outcome = Outcome("broken", _inner(error))
    return observer.observed(outcome)


def _inner(error: Exception) -> str:
    """A fault of the grader's own, for its maintainers."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"


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
    """Entry point of `python -m grader.worker [STACK]`, a spawned worker.

    Jobs come from stdin, answers go to stdout, what is printed goes to stderr.
    """
    inbox, result = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout = sys.stderr
    os._exit(serve(inbox, result, int(sys.argv[1]) if sys.argv[1:] else None))


if __name__ == "__main__":
    main()
