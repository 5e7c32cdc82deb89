"""Renders reports for people and machines. Knows verdicts, not JAX and not processes."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from grader.record import Machine, Report, Verdict

if TYPE_CHECKING:
    from rich.console import Console

_MARKS = {"pass": "PASS", "fail": "FAIL", "blocked": "WAIT", "could not check": "????"}
_COLOURS = {"pass": "green", "fail": "red", "blocked": "dim", "could not check": "yellow"}
MAX_CULPRITS = 5
MAX_OUTPUT_LINES = 12


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
            width=10_000,
        )
    return plain


def as_json(reports: Iterable[Report]) -> str:
    """All reports as one JSON document (see `grader schema report`)."""
    reports = list(reports)
    body = {"version": 1, "exit_code": exit_code(reports), "reports": reports}
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode()


def exit_code(reports: Iterable[Report]) -> int:
    """The worst of all: a failure outranks what could not be checked."""
    codes = {report.exit_code for report in reports}
    return next((code for code in (1, 3) if code in codes), 0)


def print_report(report: Report, out: "Console", site: str) -> None:
    """One exercise in full: each check's line, then each failure in detail."""
    out.print(_heading(report), style="bold")
    for verdict in report.verdicts:
        _print_line(verdict, out)
    for verdict in report.verdicts:
        if verdict.status == "fail":
            _print_failure(verdict, report, out, site)
    out.print(_summary(report), style="bold")


def print_brief(report: Report, out: "Console") -> None:
    """One exercise in one line, with its first failure."""
    bad = next((v for v in report.verdicts if v.status == "fail"), None)
    bad = bad or next((v for v in report.verdicts if v.status == "could not check"), None)
    status = {0: "pass", 1: "fail", 3: "could not check"}[report.exit_code]
    text = f"{report.exercise:<22} {report.seconds:5.1f} s"
    if bad is not None:
        text += f"  {bad.check}: {bad.observed or bad.reason}"
    out.print(f"  {_MARKS[status]}  ", style=_COLOURS[status], end="")
    out.print(text)


def _heading(report: Report) -> str:
    return f"{report.exercise}: {report.title}" + (
        f"  [{machine_line(report.machine)}]" if report.machine else ""
    )


def machine_line(machine: Machine) -> str:
    """`8 simulated CPU devices, jax 0.12.0.1`."""
    kind = machine.device_kind if machine.platform != "cpu" else "CPU"
    count = f"{machine.devices} " + ("simulated " if machine.simulated else "")
    return f"{count}{kind} device{'s' * (machine.devices != 1)}, jax {machine.jax}"


def _print_line(verdict: Verdict, out: "Console") -> None:
    out.print(f"  {_MARKS[verdict.status]}  ", style=_COLOURS[verdict.status], end="")
    reason = f" ({verdict.reason})" if verdict.reason else ""
    ground = f" [{verdict.ground}]" if verdict.ground != "source" else ""
    out.print(f"{verdict.check}{ground}: {verdict.title}{reason}")


def _print_failure(verdict: Verdict, report: Report, out: "Console", site: str) -> None:
    out.print()
    out.print(f"  {verdict.check}", style="red")
    out.print(f"    expected  {verdict.expected}")
    out.print(f"    observed  {verdict.observed}")
    for index, place in enumerate(verdict.culprits[:MAX_CULPRITS]):
        times = f"   ({place.count} times)" if place.count > 1 else ""
        label = "at" if index == 0 else "and"
        out.print(f"    {label:<9} {report.path}:{place.line}   {place.text}{times}")
    if len(verdict.culprits) > MAX_CULPRITS:
        out.print(f"    {'and':<9} {len(verdict.culprits) - MAX_CULPRITS} more lines")
    for frame in verdict.traceback[:-1]:
        out.print(f"    called in {report.path}:{frame.line} ({frame.function})   {frame.text}")
    if verdict.output.strip():
        out.print("    printed by your code, the last lines:")
        for line in verdict.output.rstrip().splitlines()[-MAX_OUTPUT_LINES:]:
            out.print(f"      {line}")
    page, _, anchor = verdict.lesson.partition("#")
    out.print(f"    why       {site}/{page}/#{anchor}")


def _summary(report: Report) -> str:
    counts = {status: 0 for status in _MARKS}
    for verdict in report.verdicts:
        counts[verdict.status] += 1
    said = [f"{n} {status}" for status, n in counts.items() if n]
    if report.exit_code == 0:
        return f"{report.exercise}: all {len(report.verdicts)} checks pass ({report.seconds:.1f} s)"
    short = report.exercise.split("_", 1)[0]
    return f"{report.exercise}: {', '.join(said)} ({report.seconds:.1f} s)   grader hint {short}"
