"""Grades one or many exercises and prints them as they are done.

Finds the submission's files, keeps one session for all, and returns the exit code.
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from grader import catalog, report, runner, targets
from grader.catalog import Entry
from grader.judge import CheckBroke, judge
from grader.launch import BrokenInstallation
from grader.process import Failed
from grader.record import Record, Target, decode_record
from grader.session import NoDevice, Options, Session, modules_of
from grader.sides import Reference
from grader.state import Remembered, State, digest, is_own
from grader.verdict import Report, encode
from grader.versions import unsupported

if TYPE_CHECKING:
    from rich.console import Console

SITE = os.environ.get("GRADER_SITE", "http://127.0.0.1:8000")
"""Where lessons are read: by default, where `make serve` shows them."""


class Unusable(Exception):
    """The command or the files are wrong; the message is one line."""


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


def run(entries: Sequence[Entry], names: Sequence[str], wanted: Wanted, *, brief: bool) -> int:
    """Grade and print; returns the exit code.

    Raises:
      Unusable: a file is missing, or JAX cannot be used at all.
      GraderBroke: a fault of the grader's own.
    """
    if len(entries) > 1 and wanted.submission is not None and wanted.submission.is_file():
        raise Unusable(f"one file for {len(entries)} exercises; give a folder, or name one of them")
    _target(wanted)  # before anything is run
    work = _work(entries, names, wanted.submission)
    with open_session(entries, wanted) as session:
        return grade_all(work, session, wanted, brief=brief)


def watch(entry: Entry, name: str, wanted: Wanted) -> None:
    """Grade and print now and after every save, until interrupted.

    Raises:
      Unusable, GraderBroke: as `run`.
    """
    from grader.watching import saves

    _target(wanted)
    path = _path(entry, name, wanted.submission)
    with open_session([entry], wanted) as session:
        ahead = None
        for _ in saves(path):
            grade_all([(entry, path)], session, wanted, brief=False, ahead=ahead)
            if wanted.form == "text":
                now = time.strftime("%H:%M:%S")
                report.console().print(f"\n{now}  watching {path}: save it to check again\n")
            ahead = runner.look_ahead(entry, session, _target(wanted))


@contextmanager
def open_session(entries: Sequence[Entry], wanted: Wanted) -> Iterator[Session]:
    """A session for these exercises; whatever ends it early becomes one line.

    Raises:
      Unusable, GraderBroke: as `run`.
    """
    if problem := unsupported():
        raise Unusable(problem)
    options = Options(wanted.device, wanted.devices, wanted.timeout)
    try:
        with Session(options, modules_of(entries)) as session:
            yield session
    except BrokenInstallation as error:
        raise Unusable(f"JAX cannot be imported: {error}") from error
    except NoDevice as error:
        raise Unusable(f"no device: {error}") from error
    except Failed as error:
        raise GraderBroke(f"a worker did not start: {error.outcome.message}") from error
    except CheckBroke as error:
        raise GraderBroke(f"the grader itself broke: {error}") from error


def _target(wanted: Wanted) -> Target | None:
    """The machine to compile for, if one was asked for.

    Raises:
      Unusable: there is none of that name, or it was asked to run on devices at hand.
    """
    if wanted.target is None:
        return None
    if wanted.devices or wanted.device == "gpu":
        raise Unusable("--target simulates a device for each of its own: no --device, no --devices")
    try:
        return targets.find(wanted.target)
    except targets.Unknown as error:
        raise Unusable(str(error)) from None


def _work(
    entries: Sequence[Entry], names: Sequence[str], submission: Path | None
) -> list[tuple[Entry, Path]]:
    """The file of each exercise. Of a whole folder, one that is missing fails its own exercise."""
    if not any(names):
        folder = submission or Path("exercises")
        files = [folder / entry.file_name for entry in entries]
        if any(path.is_file() for path in files):
            return list(zip(entries, files, strict=True))
    padded = list(names) or [""] * len(entries)
    return [(e, _path(e, name, submission)) for e, name in zip(entries, padded, strict=True)]


def _path(entry: Entry, name: str, submission: Path | None) -> Path:
    """The file to grade: --submission, else the path that named the exercise, else exercises/."""
    if submission is not None:
        path = submission / entry.file_name if submission.is_dir() else submission
        if not path.is_file():
            inside = f"{entry.file_name} in the folder " if submission.is_dir() else "file "
            raise Unusable(f"no {inside}{submission}")
        return path
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise Unusable(f"no file {name}")
        return Path(name)
    for candidate in (Path("exercises") / entry.file_name, Path(entry.file_name)):
        if candidate.is_file():
            return candidate
    raise Unusable(
        f"no exercises/{entry.file_name} here: go to the course's folder, or "
        f"`grader reset {entry.id}` writes a fresh one here"
    )


def grade_all(
    work: Sequence[tuple[Entry, Path]],
    session: Session,
    wanted: Wanted,
    *,
    brief: bool,
    ahead: Reference | None = None,
) -> int:
    """Grade each file and print it when it is done; returns the exit code.

    `ahead` belongs to a single file (see `runner.look_ahead`).
    """
    out, reports = report.console(), []
    for entry, path in work:
        done = _one(entry, path, session, wanted, ahead)
        reports.append(done)
        if wanted.form == "text" and brief:
            report.print_brief(done, out)
        elif wanted.form == "text":
            report.print_report(done, out, SITE)
    if wanted.form == "json":
        sys.stdout.write(report.as_json(reports) + "\n")
    return report.exit_code(reports)


def _one(
    entry: Entry, path: Path, session: Session, wanted: Wanted, ahead: Reference | None
) -> Report:
    start = time.monotonic()
    with _status(wanted.form) as progress:
        options: dict[str, Any] = {"seed": wanted.seed, "label": _label(path), "ahead": ahead}
        options["target"] = _target(wanted)
        record = runner.grade(entry, path, session, progress=progress, **options)
    if record.broken:
        raise GraderBroke(f"{entry.stem}: {record.broken}")
    if wanted.save is not None:
        _save(record, wanted.save)
    done = judge(record, entry.exercise)
    done.seconds = round(time.monotonic() - start, 2)
    _remember(entry, record, done, path)
    return done


def _label(path: Path) -> str:
    """The path as the learner would type it."""
    absolute = path.resolve()
    inside = absolute.is_relative_to(Path.cwd())
    return os.fspath(absolute.relative_to(Path.cwd()) if inside else absolute)


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


def _save(record: Record, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{record.exercise}.json").write_bytes(encode(record))
    except OSError as error:
        raise Unusable(f"cannot save the record in {folder}: {error.strerror}") from error


def _remember(entry: Entry, record: Record, done: Report, path: Path) -> None:
    if not is_own(path, entry.stem):
        return
    failed = [v.check for v in done.verdicts if v.status == "fail"]
    state, new = State(Path.cwd()), Remembered(digest(record.source), done.exit_code, failed)
    before = state.get(entry.stem)
    if before is not None and before.failed == failed:
        new.hints_given = before.hints_given
    new.solved_once = done.exit_code == 0 or (before is not None and before.solved_once)
    state.put(entry.stem, new)


def judge_saved(path: Path, form: str) -> int:
    """Judge a saved record and print the report; returns the exit code.

    Raises:
      Unusable: not a record this grader reads.
    """
    try:
        record = decode_record(path.read_bytes())
        entry = catalog.find(record.exercise)
    except OSError as error:
        raise Unusable(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.DecodeError, catalog.UnknownExercise) as error:
        raise Unusable(f"{path} is no record of this grader: {error}") from error
    done = judge(record, entry.exercise)
    if form == "json":
        sys.stdout.write(report.as_json([done]) + "\n")
    else:
        report.print_report(done, report.console(), SITE)
    return report.exit_code([done])
