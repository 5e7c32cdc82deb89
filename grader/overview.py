"""What a learner sees between gradings: status, hints, devices, the next command."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from grader import catalog, source
from grader.catalog import Entry
from grader.checking import Check
from grader.judge import RUNS, SOURCE
from grader.state import Remembered, State, digest

_SOURCE_HINT = (
    "The file was not run yet: mend what `expected` and `observed` name, at the line under `at`. "
    "`grader reset` writes a fresh starter, and keeps your version beside it."
)
_RUNS_HINT = (
    "The code ended before it could be judged. `observed` is Python's or JAX's own message, and "
    "`at` is your line. What was the value there?"
)
_SAID = {0: "solved", 1: "not yet", 3: "could not check"}


def status_lines(folder: Path) -> Iterator[str]:
    """One line an exercise, then the next command."""
    open_ones: list[tuple[bool, str]] = []
    for entry in catalog.entries():
        said = _status(entry, folder)
        if said != "solved":  # what only the machine could not judge comes last
            open_ones.append((said == _SAID[3], entry.id))
        yield f"{entry.id}  {entry.stem.split('_', 1)[1]:<18} {said}"
    yield f"next: grader check {min(open_ones)[1]}" if open_ones else "all solved"


def _status(entry: Entry, folder: Path) -> str:
    path = folder / "exercises" / entry.file_name
    if not path.is_file():
        return f"no file; grader reset {entry.id}"
    known = State(folder).get(entry.stem)
    if known is None or not known.digest:
        return "not checked"
    said = _SAID.get(known.exit_code, "not yet")
    said = said if _same(path, known) else "changed since the last check"
    if known.solved_once and said != "solved":
        return f"solved before; {'fails now' if said == _SAID[1] else said}"
    return said


def _same(path: Path, known: Remembered) -> bool:
    try:
        return known.digest == digest(source.read(path))
    except source.Unreadable:
        return known.digest == digest("")


def next_hint(entry: Entry, folder: Path, site: str) -> Iterator[str]:
    """The next hint for the first check that failed last, else for the exercise."""
    state = State(folder)
    known = state.get(entry.stem) or Remembered("", 1)
    if known.exit_code == 0:
        yield f"{entry.id} is solved: nothing failed in the last check"
        return
    if known.exit_code == 3:
        yield f"{entry.id}: nothing failed in the last check, but not all could be judged; the"
        yield "report says why. A busy machine cannot time: close other programs, and check again."
        return
    check = next((c for c in entry.exercise.checks if c.name in known.failed), None)
    hints = _ladder(entry, known, check)
    number = min(known.hints_given + 1, len(hints))
    about = f" for {check.name}" if check else ""
    yield f"hint {number} of {len(hints)}{about}:"
    yield f"  {hints[number - 1]}"
    lesson = check.lesson if check else f"{entry.exercise.lesson}#{entry.exercise.anchor}"
    yield f"  why: {site}/{lesson.replace('#', '/#')}"
    if number < len(hints):
        yield f"  more: grader hint {entry.id}"
    else:
        yield f"  that was the last; grader solution {entry.id} shows one answer"
    state.put(entry.stem, msgspec.structs.replace(known, hints_given=number))


def _ladder(entry: Entry, known: Remembered, check: Check | None) -> tuple[str, ...]:
    """Hints from mild to plain: those of the failed check, then the exercise's plainest."""
    if check and check.hints:
        return (*check.hints, entry.exercise.hints[-1])
    if SOURCE in known.failed:
        return (_SOURCE_HINT, *entry.exercise.hints)
    if RUNS in known.failed:
        return (_RUNS_HINT, *entry.exercise.hints)
    return entry.exercise.hints


def next_command() -> str:
    """What to do after a first look."""
    first = catalog.entries()[0]
    return f"next: open exercises/{first.file_name}, then: {_command()} check {first.id}"


def _command() -> str:
    """`grader`, or where it lies if the shell would not find it."""
    beside = Path(sys.executable).parent / "grader"
    if shutil.which("grader") or not beside.is_file():
        return "grader"
    here = Path.cwd()
    return str(beside.relative_to(here) if beside.is_relative_to(here) else beside)


def devices_lines(device: str) -> Iterator[str]:
    """What devices JAX finds."""
    from grader import doctor

    yield from doctor.device_lines(device)
