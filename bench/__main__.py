"""`python -m bench`: options, the table, the data file, the exit code.

Exit codes: 0 all limits hold (or --no-limits), 1 one does not, 2 the options are wrong.
"""

import argparse
import datetime
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench import commands, margins, next_door, sessions, terminals, verdicts
from bench.figures import Row
from grader.course.catalog import find

Plan = list[tuple[str, Callable[[], Row | list[Row]]]]
"""What is measured, in order: a word for the progress line, and the measurement."""


class Results(msgspec.Struct, frozen=True):
    """The data file: the rows, and where and how they were measured."""

    date: str
    machine: str
    cores: int
    load: tuple[float, float]
    """Mean number of runnable processes in the last minute, before and after."""
    python: str
    jax: str
    quick: bool
    rows: list[Row]


def plan(*, quick: bool) -> Plan:
    """All rows; `quick` takes fewer runs of each."""
    rounds, gradings = (3, 40) if quick else (9, 500)
    steps: Plan = [
        ("grader --help", partial(commands.help_row, max(rounds, 7))),
        ("cold check of ex04", partial(commands.cold_row, rounds)),
        ("second check of ex04", partial(terminals.row, find("ex04"), rounds)),
        ("all solutions", partial(commands.all_row, max(2, rounds // 3))),
    ]
    steps.append(("the device next door", partial(next_door.rows, max(2, rounds // 3))))
    steps.append(("cold check of ex04 next door", partial(next_door.check_row, rounds)))
    for entry in commands.with_peers():
        steps.append((f"warm re-check of {entry.id}", partial(sessions.warm_row, entry, rounds)))
    for entry in margins.timed():
        step = partial(margins.row, entry, max(2, rounds // 3))
        steps.append((f"margins of {entry.id}", step))
    for burners in (0, 3):
        name = f"timing verdicts, {burners} burners"
        steps.append((name, partial(verdicts.row, burners, gradings)))
    return steps


def measured(steps: Plan, console: Console) -> Iterator[Row]:
    """Measure each row, saying on the console which one is under way, and what came out."""
    say = partial(console.print, markup=False, highlight=False)
    for number, (name, measure) in enumerate(steps, 1):
        say(f"[{number}/{len(steps)}] {name}")
        try:
            found = measure()
        except (commands.DidNotRun, subprocess.CalledProcessError) as error:
            found = Row(name, "", f"did not run: {error}", "", holds=False)
        for row in found if isinstance(found, list) else [found]:
            say(f"  {row.figures} ({'holds' if row.holds else 'DOES NOT HOLD'})")
            yield row


def table(results: Results) -> Table:
    """The rows for a reader."""
    runs = "quick: few runs, wide spreads" if results.quick else "full"
    shown = Table(
        title=f"{results.machine}, {results.cores} cores, load {results.load[0]:.1f} to "
        f"{results.load[1]:.1f}, Python {results.python}, jax {results.jax}, {results.date} "
        f"({runs}). Medians (least to greatest) of interleaved runs.",
        show_lines=True,
    )
    for column in ("what", "measured", "limit", "holds"):
        shown.add_column(column, overflow="fold")
    for row in results.rows:
        held = "yes" if row.holds else "NO"
        shown.add_row(f"{row.title}\n{row.command}", row.figures, row.limit, held)
    return shown


def run(*, quick: bool, only: str, console: Console) -> Results:
    """Measure everything, or what `only` is part of the name of."""
    before = os.getloadavg()[0]
    rows = list(measured([step for step in plan(quick=quick) if only in step[0]], console))
    return Results(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        machine=f"{platform.system()} {platform.machine()}",
        cores=os.cpu_count() or 0,
        load=(before, os.getloadavg()[0]),
        python=platform.python_version(),
        jax=version("jax"),
        quick=quick,
        rows=rows,
    )


def main() -> int:
    """Measure, print, save; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs; the table says so")
    parser.add_argument("--only", default="", metavar="TEXT", help="what has TEXT in its name")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also save the figures here")
    parser.add_argument("--no-limits", action="store_true", help="exit with 0 in any case")
    options = parser.parse_args()
    results = run(quick=options.quick, only=options.only, console=Console(stderr=True))
    if not results.rows:
        names = ", ".join(name for name, _ in plan(quick=options.quick))
        parser.error(f"nothing has {options.only!r} in its name; there are: {names}")
    # Text that is piped has no width of its own; the default of 80 would fold the commands.
    Console(width=None if sys.stdout.isatty() else 160).print(table(results), markup=False)
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
    return 0 if options.no_limits or all(row.holds for row in results.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
