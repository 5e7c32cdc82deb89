"""Grades one or many exercises in one session, and judges a saved record again.

Which files are graded is in `grader.app.files`, and what becomes of the reports in
`grader.app.emitting`.
"""

import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from grader import __version__
from grader.app import report, updating
from grader.app.emitting import Emitter, NotWritten
from grader.app.files import Unusable, files_of, is_own, label
from grader.app.lingering import LEFT_BEHIND
from grader.app.remembered import Remembered, State, digest
from grader.app.saving import save
from grader.course import catalog
from grader.course.catalog import Entry
from grader.judging.judge import hints_for, judge
from grader.program import targets
from grader.records.record import Made, Record, Target, decode_record
from grader.records.verdict import Report
from grader.running.grade import begin_next, grade, leave_ahead, try_ahead
from grader.running.launch import BrokenInstallation
from grader.running.process import Failed
from grader.running.session import NoDevice, Options, Session, modules_of
from grader.running.sides import Reference
from grader.running.submitted import shown

if TYPE_CHECKING:
    from rich.console import Console


class GraderBroke(Exception):
    """A fault of the grader itself."""


@dataclass
class Wanted:
    """The options of a grading command."""

    submission: Path | None
    device: str
    devices: int | None
    seed: int | None
    timeout: float
    form: str
    save: Path | None
    target: str | None = None
    verbose: bool = False
    """Print each check's title, not only its name."""
    kept: bool = False
    """Use a server that an earlier command left behind, and leave one behind."""


def run(entries: Sequence[Entry], names: Sequence[str], wanted: Wanted, *, brief: bool) -> int:
    """Grade and print; returns the exit code.

    Raises:
      Unusable: a file is missing, or JAX cannot be used at all.
      GraderBroke: a fault of the grader itself.
    """
    target = target_of(wanted)  # before anything is run
    work = files_of(entries, names, wanted.submission)
    with open_session(entries, wanted) as session:
        ahead, alone = None, len(work) == 1 and wanted.seed is None
        if session.joined and alone:
            ahead = try_ahead(entries[0], session, target)
        code = grade_all(work, session, wanted, brief=brief, ahead=ahead)
        if wanted.kept and alone:
            leave_ahead(entries[0], session, target)
    if session.left_behind:
        sys.stderr.write(LEFT_BEHIND + "\n")
    return code


@contextmanager
def open_session(entries: Sequence[Entry], wanted: Wanted) -> Iterator[Session]:
    """A session for these exercises; whatever ends it early becomes one line.

    Raises:
      Unusable, GraderBroke: as `run`.
    """
    options = Options(wanted.device, wanted.devices, wanted.timeout, kept=wanted.kept)
    try:
        with Session(options, modules_of(entries)) as session:
            if not session.joined:  # a kept server knows that no package has changed
                _supported()
            yield session
    except BrokenInstallation as error:
        raise Unusable(f"JAX cannot be imported: {error}") from error
    except NoDevice as error:
        raise Unusable(f"no device: {error}") from error
    except Failed as error:
        raise GraderBroke(f"a worker did not start: {error.outcome.message}") from error


def _supported() -> None:
    """Look at the installed versions; what reads them takes a while to import.

    Raises:
      Unusable: this grader does not support them.
    """
    from grader.app.versions import unsupported

    if problem := unsupported():
        raise Unusable(problem)


def target_of(wanted: Wanted) -> Target | None:
    """The machine to compile for, if one was asked for.

    Raises:
      Unusable: there is none of that name, or it was asked to run on devices at hand.
    """
    if wanted.target is None:
        return None
    if wanted.devices or wanted.device in ("gpu", "next-door"):
        raise Unusable("--target simulates a device for each of its own: no --device, no --devices")
    try:
        return targets.find(wanted.target)
    except targets.Unknown as error:
        raise Unusable(str(error)) from None


def grade_all(
    work: Sequence[tuple[Entry, Path]],
    session: Session,
    wanted: Wanted,
    *,
    brief: bool,
    ahead: Reference | None = None,
    outlives_readers: bool = True,
) -> int:
    """Grade each file and give out its report when it is done; returns the exit code.

    `ahead` belongs to a single file (see `grader.running.grade.look_ahead`). Whatever ends this
    early, the reports that are finished are given out.

    Raises:
      Unusable: the reports cannot be written, or the records cannot be saved.
      GraderBroke: a fault of the grader itself.
    """
    to = Emitter(
        wanted.form, brief=brief, outlives_readers=outlives_readers, verbose=wanted.verbose
    )
    try:
        target = target_of(wanted)
        for (entry, path), upcoming in itertools.zip_longest(work, work[1:]):
            begun = upcoming and begin_next(entry, upcoming[0], session, target, wanted.seed)
            to.emit(_one(entry, path, session, wanted, ahead, to))
            ahead = begun
    except NotWritten as error:
        raise Unusable(str(error)) from error
    except BaseException as error:
        to.problem, code = _ended_early(error)
        with suppress(NotWritten, BrokenPipeError):
            to.finish(code, [entry.stem for entry, _ in work[len(to.reports) :]])
        raise
    return _finished(to)


def _finished(to: Emitter) -> int:
    """The exit code after all was graded; see `grade_all`."""
    code = 2 if to.problem else report.exit_code(to.reports)
    try:
        to.finish(code)
    except NotWritten as error:
        raise Unusable(str(error)) from error
    if to.problem:
        raise Unusable(to.problem)
    return code


def _ended_early(error: BaseException) -> tuple[str, int]:
    """What ended a command before all was graded, and the exit code that it leads to."""
    match error:
        case KeyboardInterrupt():
            return "stopped before everything was graded", getattr(error, "code", 130)
        case NoDevice() | BrokenInstallation():
            return f"JAX cannot be used: {error}", 2
        case _:
            return f"the grader itself broke: {error}", 4


def _one(
    entry: Entry,
    path: Path,
    session: Session,
    wanted: Wanted,
    ahead: Reference | None,
    to: Emitter,
) -> Report:
    start = time.monotonic()
    with _status(wanted.form) as progress:
        options: dict[str, Any] = {"seed": wanted.seed, "label": label(path), "ahead": ahead}
        options["target"] = target_of(wanted)
        record = grade(entry, path, session, progress=progress, **options)
    known = State(Path.cwd()).get(entry.stem) if is_own(path, entry.stem) else None
    updating.excuse(entry, record, known)
    saved = _saved(record, wanted, to)
    done = judge(record, entry.exercise)
    done.seconds = round(time.monotonic() - start, 2)
    done.made, done.saved = record.made, saved
    if is_own(path, entry.stem):
        _remember(entry, record, done, known)
    return done


def _saved(record: Record, wanted: Wanted, to: Emitter) -> str:
    """Save the record if that was asked for; returns where. A full disk costs no verdict."""
    if wanted.save is None:
        return ""
    try:
        return shown(save(record, wanted.save))
    except OSError as error:
        to.problem = f"cannot save the record in {shown(wanted.save)}: {error.strerror}"
        return ""


def _status(form: str) -> Any:
    """A progress display on a terminal, nothing elsewhere."""
    if form != "text" or not sys.stderr.isatty():
        return nullcontext(lambda _: None)
    return _Spinner(report.console(stderr=True))


class _Spinner:
    """Shows what is being done while it takes more than a moment."""

    def __init__(self, out: "Console") -> None:
        self._status = out.status("starting JAX")

    def __enter__(self) -> Any:
        self._status.start()
        return self._status.update

    def __exit__(self, *_: object) -> None:
        self._status.stop()


def _remember(entry: Entry, record: Record, done: Report, before: Remembered | None) -> None:
    failures = {v.check: v for v in done.verdicts if v.status == "fail"}
    failed = list(failures)
    new = Remembered(digest(record.source), done.exit_code, failed, checksum=entry.checksum)
    new.chosen = {
        name: v.hint
        for name, v in failures.items()
        if v.hint and v.hint not in hints_for(entry.exercise, name)
    }
    new.began_with = updating.base(entry, record.source, before)
    if before is not None and before.failed == failed:
        new.hints = before.hints
    new.solved_once = done.exit_code == 0 or (before is not None and before.solved_once)
    State(Path.cwd()).put(entry.stem, new)


def judge_saved(path: Path, form: str, *, verbose: bool = False) -> int:
    """Judge a saved record and print the report; returns the exit code.

    Raises:
      Unusable: not a record this grader reads, or one that other rules made.
    """
    try:
        record = decode_record(path.read_bytes())
        entry = catalog.find(record.exercise)
    except OSError as error:
        raise Unusable(f"cannot read {shown(path)}: {error.strerror}") from error
    except (msgspec.DecodeError, catalog.UnknownExercise, RecursionError) as error:
        raise Unusable(f"{shown(path)} is no record of this grader: {error}") from error
    if problem := _other_rules(entry, record.made):
        raise Unusable(f"{shown(path)} {problem}")
    done = judge(record, entry.exercise)
    done.made = record.made
    to = Emitter(form, brief=False, outlives_readers=True, verbose=verbose)
    try:
        to.emit(done)
    except NotWritten as error:
        raise Unusable(str(error)) from error
    return _finished(to)


def _other_rules(entry: Entry, made: Made | None) -> str:
    """Why a record does not fit this grader's checks of an exercise, or ""."""
    again = "check the submission again"
    if made is None:
        return f"does not say which checks of {entry.id} it was made for: {again}"
    if made.grader != __version__:
        by = f"was made by grader {made.grader} on {made.date}, and this is {__version__}"
        return f"{by}: judge it with that one, or {again}"
    if made.checksum != entry.checksum:
        return f"was made on {made.date} for other checks of {entry.id} than are here: {again}"
    return ""
