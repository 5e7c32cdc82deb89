"""Gives the next hint for what failed last, from mild to plain.

What failed comes from `grader.app.remembered`, and the hints from the exercise. Nothing is run.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from grader.app import addresses
from grader.app.remembered import Remembered, State
from grader.course.catalog import Entry
from grader.judging.checking import Check
from grader.judging.judge import RUNS, SOURCE, hints_for

_SOURCE_HINT = (
    "The file was not run yet: fix what `expected` and `observed` name, at the marked line. "
    "`grader reset` writes a fresh starter, and keeps your version beside it."
)
_RUNS_HINT = (
    "The code ended before it could be judged. `observed` is Python's or JAX's own message, and "
    "the line that is marked is yours. What was the value there?"
)


def next_hint(entry: Entry, folder: Path, more: str = "", about: str = "") -> Iterator[str]:
    """The next hint for what failed last, else for the exercise.

    Of several checks that failed, each has its turn; `about` names one. `more` says how to get
    the hint after it. The default is the command that gives it.
    """
    state = State(folder)
    known = state.get(entry.stem) or Remembered("", 1)
    if known.exit_code == 0:
        yield f"{entry.id} is solved: nothing failed in the last check"
        return
    if known.exit_code == 3:
        yield f"{entry.id}: nothing failed in the last check, but not all could be judged; the"
        yield "report says why. A busy machine cannot time: close other programs, and check again."
        return
    if about and about not in known.failed:
        named = ", ".join(known.failed) or "nothing is known of its last check"
        yield f"{about} did not fail in the last check of {entry.id}; these did: {named}"
        return
    name = about or min(known.failed, key=lambda one: known.hints.get(one, 0), default="")
    yield from _hint(entry, known, name, more)
    given = known.hints | {name: known.hints.get(name, 0) + 1}
    state.put(entry.stem, msgspec.structs.replace(known, hints=given))


def _hint(entry: Entry, known: Remembered, name: str, more: str) -> Iterator[str]:
    """The lines of the next hint about a failed check."""
    check = next((c for c in entry.exercise.checks if c.name == name), None)
    ladder = _ladder(entry, known, name)
    number = min(known.hints.get(name, 0) + 1, len(ladder))
    about = f" for {check.name}" if check else ""
    yield f"hint {number} of {len(ladder)}{about}:"
    yield f"  {ladder[number - 1]}"
    yield f"  why: {lesson_link(entry, check)}"
    others = [other for other in known.failed if other != name]
    if number < len(ladder) or others:
        yield f"  more: {more or f'grader hint {entry.id}'}"
    else:
        yield f"  that was the last; grader solution {entry.id} shows one answer"


def lesson_link(entry: Entry, check: Check | None = None) -> str:
    """The address of a check's lesson, else of the exercise's."""
    lesson = check.lesson if check else f"{entry.exercise.lesson}#{entry.exercise.anchor}"
    return addresses.address(lesson)


def _ladder(entry: Entry, known: Remembered, name: str) -> tuple[str, ...]:
    """Hints from mild to plain for a failed check, the one that fits what was observed first."""
    first = (known.chosen[name],) if name in known.chosen else ()
    if own := hints_for(entry.exercise, name):
        return (*first, *own)
    general = {SOURCE: (_SOURCE_HINT,), RUNS: first or (_RUNS_HINT,)}.get(name, ())
    return (*general, *entry.exercise.hints)
