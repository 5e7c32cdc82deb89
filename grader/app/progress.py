"""Tells where a learner stands: what is solved, and what to do next.

That is read from what was remembered of each exercise (`grader.app.remembered`) and from the files
as they are now. Nothing is run.
"""

import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grader.app import report
from grader.app.remembered import Remembered, State, digest
from grader.course import catalog
from grader.course.catalog import Entry
from grader.running import submitted
from grader.source import inspection

if TYPE_CHECKING:
    from rich.console import Console


class Rank(IntEnum):
    """The order in which to do exercises: the lowest first, those that are solved never."""

    OPEN = 0
    NO_FILE = 1
    COULD_NOT_CHECK = 2
    SOLVED = 3


_RANKS = {0: Rank.SOLVED, 3: Rank.COULD_NOT_CHECK}
_SAID = {Rank.SOLVED: "solved", Rank.OPEN: "not yet", Rank.COULD_NOT_CHECK: "could not check"}


@dataclass(frozen=True)
class Standing:
    """How far one exercise is: its rank, and that in words."""

    entry: Entry
    rank: Rank
    said: str


def standings(folder: Path) -> list[Standing]:
    """How far each exercise is, by id."""
    return [_standing(entry, folder) for entry in catalog.entries()]


def _standing(entry: Entry, folder: Path) -> Standing:
    path = folder / "exercises" / entry.file_name
    if not path.is_file():
        return Standing(entry, Rank.NO_FILE, f"no file; grader reset {entry.id}")
    known = State(folder).get(entry.stem)
    if known is None or not known.digest:
        return Standing(entry, Rank.OPEN, "not checked")
    if not _same(path, known):
        before = "solved before; " if known.solved_once else ""
        return Standing(entry, Rank.OPEN, f"{before}changed since the last check")
    if known.checksum != entry.checksum:
        before = "solved before; " if known.solved_once else ""
        return Standing(entry, Rank.OPEN, f"{before}its checks have changed since the last check")
    rank = _RANKS.get(known.exit_code, Rank.OPEN)
    if known.solved_once and rank != Rank.SOLVED:
        now = "fails now" if rank == Rank.OPEN else _SAID[rank]
        return Standing(entry, rank, f"solved before; {now}")
    return Standing(entry, rank, _SAID[rank])


def _same(path: Path, known: Remembered) -> bool:
    try:
        return known.digest == digest(submitted.read(path))
    except inspection.Unreadable:
        return known.digest == digest("")


def solved(found: Sequence[Standing]) -> int:
    """How many are solved."""
    return sum(one.rank == Rank.SOLVED for one in found)


def unsolved(found: Sequence[Standing], after: Entry | None = None) -> list[Entry]:
    """Exercises to do, lowest rank first; those of one rank start with the one after `after`."""
    start = 1 + next((n for n, one in enumerate(found) if one.entry == after), -1)
    in_turn = [*found[start:], *found[:start]]
    left = [one for one in in_turn if one.rank < Rank.SOLVED]
    return [one.entry for one in sorted(left, key=lambda one: one.rank)]


def status_lines(folder: Path) -> Iterator[str]:
    """One line for each exercise, then the next command."""
    found = standings(folder)
    for one in found:
        yield f"{one.entry.id}  {one.entry.stem.split('_', 1)[1]:<18} {one.said}"
    if not (open_ones := unsolved(found)):
        yield "all solved"
        return
    first = next(one for one in found if one.entry == open_ones[0])
    command = "reset" if first.rank == Rank.NO_FILE else "check"
    yield f"next: grader {command} {first.entry.id}"


def status_document(folder: Path) -> dict[str, Any]:
    """The same for a program: version, each exercise's id, name, status and words, and the next.

    `status` is `solved`, `open`, `no file` or `could not check`. `next` is an id, or None.
    """
    found = standings(folder)
    left = unsolved(found)
    return {
        "version": 1,
        "exercises": [
            {
                "id": one.entry.id,
                "name": one.entry.stem,
                "status": one.rank.name.lower().replace("_", " "),
                "said": one.said,
            }
            for one in found
        ],
        "next": left[0].id if left else None,
    }


def print_progress(found: Sequence[Standing], now: Entry | None, out: "Console") -> None:
    """Print how many are solved, on a terminal with a bar, and what to open now."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    count = f"{solved(found)} of {len(found)} solved"
    what = f"now {now.stem}: exercises/{now.file_name}" if now else "nothing is left to do"
    if not out.is_terminal:
        out.print(f"{count}; {what}")
        return
    line = Table.grid(padding=(0, 2))
    line.add_row(ProgressBar(len(found), solved(found), width=len(found)), count)
    out.print(line)
    report.print_folded("", what, out)


def next_command() -> str:
    """What to do after a first look."""
    first = catalog.entries()[0]
    return f"next: open exercises/{first.file_name}, then: {_command()} check {first.id}"


def _command() -> str:
    """`grader`, or its path if the shell would not find it."""
    beside = Path(sys.executable).parent / "grader"
    if shutil.which("grader") or not beside.is_file():
        return "grader"
    here = Path.cwd()
    return str(beside.relative_to(here) if beside.is_relative_to(here) else beside)
