"""Renders reports for people and machines. Knows verdicts, not JAX and not processes.

Texts that come from a learner's process are untrusted: control characters are shown as
escapes. Nothing is cut that holds a difference; long lines are folded on a terminal.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from grader.record import Machine
from grader.state import is_own
from grader.verdict import Report, Reports, Verdict, encode
from grader.words import plural

if TYPE_CHECKING:
    from rich.console import Console
_MARKS = {"pass": "PASS", "fail": "FAIL", "blocked": "WAIT", "could not check": "????"}
_COLOURS = {"pass": "green", "fail": "red", "blocked": "dim", "could not check": "yellow"}
MAX_CULPRITS = 5
MAX_OUTPUT_LINES = 12
MIN_WIDTH, UNFOLDED = 20, 1 << 20


def console(*, stderr: bool = False) -> "Console":
    """A console that is plain, uncoloured and unwrapped where there is no terminal."""
    from rich.console import Console

    plain = Console(stderr=stderr, highlight=False, emoji=False, markup=False)
    if not plain.is_terminal:
        plain = Console(
            stderr=stderr,
            highlight=False,
            emoji=False,
            markup=False,
            no_color=True,
            width=UNFOLDED,
        )
    return plain


def as_json(reports: Iterable[Report]) -> str:
    """All reports as one JSON document (see `grader schema report`)."""
    reports = list(reports)
    document = Reports(exit_code(reports), reports)
    return msgspec.json.format(encode(document), indent=2).decode()


def exit_code(reports: Iterable[Report]) -> int:
    """The worst of all: a failure outranks what could not be checked."""
    codes = {report.exit_code for report in reports}
    return next((code for code in (1, 3) if code in codes), 0)


def print_report(report: Report, out: "Console", site: str) -> None:
    """One exercise in full: each check's line, then each failure in detail."""
    out.print(plain(_heading(report)), style="bold")
    for verdict in report.verdicts:
        _print_line(verdict, out)
    for verdict in report.verdicts:
        if verdict.status == "fail":
            out.print()
            out.print(f"  {verdict.check}", style="red")
            for label, text in _details(verdict, report.path, site):
                _print_folded(f"    {label:<10}", text, out)
    if printed := report.output.rstrip().splitlines()[-MAX_OUTPUT_LINES:]:
        out.print()
        _print_folded("  printed by your file  ", "\n".join(printed), out)
    for line in report.machine.refused if report.machine else ():
        _print_folded("  fence  ", line, out)
    out.print(_summary(report), style="bold")
    if report.left_out:
        out.print(f"  {_more(report.left_out)}", style="dim")
    if report.exit_code == 1 and site.startswith("http://127.0.0.1"):
        out.print("  links open while `make serve` runs", style="dim")


def print_brief(report: Report, out: "Console") -> None:
    """One exercise in one line, with its first failure."""
    bad = next((v for v in report.verdicts if v.status == "fail"), None)
    bad = bad or next((v for v in report.verdicts if v.status == "could not check"), None)
    status = {0: "pass", 1: "fail", 3: "could not check"}[report.exit_code]
    text = f"{report.exercise:<22} {report.seconds:5.1f} s"
    if bad is not None:
        text += f"  {bad.check}: {_first_line(bad.observed or bad.reason)}"
    _print_folded(f"  {_MARKS[status]}  ", text, out, _COLOURS[status])


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""


def _heading(report: Report) -> str:
    target = f"; target {report.target}" if report.target else ""
    return f"{report.exercise}: {report.title}" + (
        f"  [{machine_line(report.machine)}{target}]" if report.machine else ""
    )


def _more(count: int) -> str:
    """Where checks that were not made can be made."""
    return f"{plural(count, 'more check')} with --target h200x8, for which no GPU is needed"


def machine_line(machine: Machine) -> str:
    """`8 simulated CPU devices, jax 0.12.0.1`."""
    kind = machine.device_kind if machine.platform != "cpu" else "CPU"
    count = f"{machine.devices} " + ("simulated " if machine.simulated else "")
    return f"{count}{kind} device{'s' * (machine.devices != 1)}, jax {machine.jax}"


def plain(text: str) -> str:
    """`text` on one line, with control characters as escapes (`\\x1b`)."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text.replace("\t", "    "))


def _print_line(verdict: Verdict, out: "Console") -> None:
    reason = f" ({verdict.reason})" if verdict.reason else ""
    ground = f" [{verdict.ground}]" if verdict.ground != "source" else ""
    text = f"{verdict.check}{ground}: {verdict.title}{reason}"
    _print_folded(f"  {_MARKS[verdict.status]}  ", text, out, _COLOURS[verdict.status])


def _print_folded(label: str, text: str, out: "Console", style: str = "") -> None:
    """A label, and beside it all of the text, folded where the terminal is narrow."""
    from rich.text import Text

    width = max(out.width - len(label), MIN_WIDTH)
    for line in text.splitlines() or [""]:
        for piece in Text(plain(line)).wrap(out, width, overflow="fold"):
            whole = Text(label, style=style) + Text(piece.plain)
            whole.rstrip()
            out.print(whole)
            label = " " * len(label)


def _details(verdict: Verdict, path: str, site: str) -> Iterator[tuple[str, str]]:
    """What is told of a failure: labels and texts."""
    yield "expected", verdict.expected
    yield "observed", verdict.observed
    yield from _places(verdict, path)
    for frame in verdict.traceback[-2::-1]:
        yield "called by", f"{path}:{frame.line} ({frame.function})   {frame.text}"
    if verdict.lesson:
        page, _, anchor = verdict.lesson.partition("#")
        yield "why", f"{site}/{page}/#{anchor}"


def _places(verdict: Verdict, path: str) -> Iterator[tuple[str, str]]:
    for index, place in enumerate(verdict.culprits[:MAX_CULPRITS]):
        times = f"   ({place.count} times)" if place.count > 1 else ""
        yield "and" if index else "at", f"{path}:{place.line}   {place.text}{times}"
    if (more := len(verdict.culprits) - MAX_CULPRITS) > 0:
        yield "and", f"{more} more line{'s' * (more > 1)}"


def _summary(report: Report) -> str:
    counts = dict.fromkeys(_MARKS, 0)
    for verdict in report.verdicts:
        counts[verdict.status] += 1
    said = [f"{n} {status}" for status, n in counts.items() if n]
    took = f" ({report.seconds:.1f} s)" if report.seconds else ""
    if report.exit_code == 0:
        return f"{report.exercise}: all {len(report.verdicts)} checks pass{took}"
    short = report.exercise.split("_", 1)[0]
    again = f"the same inputs again: --seed {report.seed}"
    known = is_own(Path(report.path), report.exercise)
    more = f"\n  a hint: grader hint {short}; {again}" if known else f"\n  {again}"
    return f"{report.exercise}: {', '.join(said)}{took}{more if counts['fail'] else ''}"
