"""Renders reports for people and machines.

A report comes from `grader.judging.judge`; neither JAX nor a process is known here. Texts that
come from a learner's process are untrusted: control characters are shown as escapes, and so is
what a CI system would take for a command to itself. No text that holds a difference is cut; long
lines are folded on a terminal.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from grader.app import addresses
from grader.app.excerpt import plain, print_excerpt, times
from grader.app.files import is_own
from grader.device.options import KIND as NEXT_DOOR
from grader.judging.words import plural
from grader.records.record import Machine
from grader.records.verdict import Culprit, Report, Reports, Verdict, encode

if TYPE_CHECKING:
    from rich.console import Console
_MARKS = {"pass": "PASS", "fail": "FAIL", "blocked": "WAIT", "could not check": "????"}
_COLOURS = {"pass": "green", "fail": "red", "blocked": "dim", "could not check": "yellow"}
MAX_CULPRITS = 5
MAX_OUTPUT_LINES = 12
MIN_WIDTH, UNFOLDED = 20, 1 << 20


def console(*, stderr: bool = False, outlives_readers: bool = False) -> "Console":
    """A console that is plain, uncoloured and unwrapped where there is no terminal.

    When nobody reads any more, what it prints goes nowhere if it `outlives_readers`; else it
    raises BrokenPipeError.
    """
    from rich.console import Console

    class PipeConsole(Console):
        """rich's own ends the whole process, with code 1."""

        def on_broken_pipe(self) -> None:
            to_nobody()
            if not outlives_readers:
                raise BrokenPipeError

    on_terminal = PipeConsole(stderr=stderr, highlight=False, emoji=False, markup=False)
    if on_terminal.is_terminal:
        return on_terminal
    return PipeConsole(
        stderr=stderr,
        highlight=False,
        emoji=False,
        markup=False,
        no_color=True,
        width=UNFOLDED,
    )


def to_nobody() -> None:
    """Let what is printed from now on go nowhere: nobody reads it, or it cannot be written."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def as_json(document: Reports) -> str:
    """All reports as one JSON document (see `grader schema report`)."""
    text = msgspec.json.format(encode(document), indent=2).decode()
    return _no_commands(text) + "\n"


def as_line(document: Reports) -> str:
    """The same on one line."""
    return _no_commands(encode(document).decode()) + "\n"


def _no_commands(text: str) -> str:
    """The same JSON, in which no CI system finds a command to itself."""
    for command in ("[", "vso["):
        text = text.replace(f"##{command}", f"#\\u0023{command}")
    return text


def exit_code(reports: Iterable[Report]) -> int:
    """The worst of all: a fault of the grader, a failure, what could not be checked."""
    codes = {report.exit_code for report in reports}
    return next((code for code in (4, 1, 3) if code in codes), 0)


def print_report(report: Report, out: "Console", site: str = "", *, verbose: bool = False) -> None:
    """One exercise in full: each failure with its lines, then the other checks by their names.

    `site` is where lessons are read; "" looks for it (see `grader.app.addresses`). A `verbose`
    report has each check's title.
    """
    _print_heading(report, out)
    for verdict in report.verdicts:
        if verdict.status == "fail":
            out.print()
            print_failure(verdict, report.path, out, site)
    if printed := report.output.rstrip().splitlines()[-MAX_OUTPUT_LINES:]:
        out.print()
        print_folded("  printed by your file  ", "\n".join(printed), out)
    for line in report.machine.refused if report.machine else ():
        print_folded("  fence  ", line, out)
    if any(verdict.status == "fail" for verdict in report.verdicts) or printed:
        out.print()
    if verbose:
        for verdict in report.verdicts:
            _print_line(verdict, out)
    else:
        _print_others(report.verdicts, out)
    if report.unrun:
        _print_unrun(report, out)
    out.print(_summary(report), style="bold")
    if report.left_out:
        out.print(f"  {_more(report.left_out)}", style="dim")


def print_failure(verdict: Verdict, path: str, out: "Console", site: str) -> None:
    """What failed, where, what was expected and observed, and where to look next."""
    ground = f" [{verdict.ground}]" if verdict.ground != "source" else ""
    print_folded("FAIL  ", f"{verdict.check}{ground}: {verdict.title}", out, "bold red")
    if verdict.culprits:
        print_place(verdict.culprits[0], path, out)
    for label, text in _details(verdict, path):
        print_folded(f"  {label:<10}", text, out)
    if verdict.lesson:
        shown = addresses.on(site, verdict.lesson)
        print_folded(f"  {'why':<10}", shown, out, link=addresses.link(shown))


def _print_others(verdicts: Sequence[Verdict], out: "Console") -> None:
    """The checks that did not fail, by their names: one line for what became of them."""
    if passed := [v.check for v in verdicts if v.status == "pass"]:
        print_folded("  passed: ", ", ".join(passed), out)
    waiting: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.status == "blocked":
            waiting.setdefault(verdict.reason.removeprefix("waits for "), []).append(verdict.check)
    for what, names in waiting.items():
        wait = "waits" if len(names) == 1 else "wait"
        print_folded("  ", f"{wait} for {what}: {', '.join(names)}", out)
    for verdict in verdicts:
        if verdict.status == "could not check":
            text = f"{verdict.check}: {verdict.title} ({verdict.reason})"
            print_folded("  could not check: ", text, out)


def _print_unrun(report: Report, out: "Console") -> None:
    """What a pass says nothing about."""
    for part in report.unrun[:MAX_CULPRITS]:
        alone = part.line == part.last
        lines = f"line {part.line}" if alone else f"lines {part.line} to {part.last}"
        print_folded("  never ran: ", f"{lines}, `{part.text}`", out)
    left = len(report.unrun) - MAX_CULPRITS
    more = f"Nor did {left} more, which `--format json` lists. " if left > 0 else ""
    print_folded("  ", f"{more}A pass says nothing about what never ran.", out)


def print_brief(report: Report, out: "Console") -> None:
    """One exercise in one line, with its first failure."""
    by_status = {verdict.status: verdict for verdict in reversed(report.verdicts)}
    bad = by_status.get("fail") or by_status.get("could not check")
    status = {0: "pass", 1: "fail"}.get(report.exit_code, "could not check")
    text = f"{report.exercise:<22} {report.seconds:5.1f} s"
    if bad is not None:
        text += f"  {bad.check}: {_first_line(bad.observed or bad.reason)}"
    print_folded(f"  {_MARKS[status]}  ", text, out, _COLOURS[status])


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""


def _print_heading(report: Report, out: "Console") -> None:
    """The exercise, and the machine beside it, or below where it has no room."""
    heading, machine = f"{report.exercise}: {report.title}", ""
    if report.machine is not None:
        target = f"; target {report.target}" if report.target else ""
        instead = f"; not next door: {report.machine.instead}" if report.machine.instead else ""
        machine = f"  [{machine_line(report.machine)}{instead}{target}]"
    if len(heading + machine) <= out.width:
        print_folded("", heading + machine, out, bold=True)
    else:
        print_folded("", heading, out, bold=True)
        print_folded("  ", machine.strip(), out, bold=True)


def _more(count: int) -> str:
    """How to make the checks that were left out."""
    return f"{plural(count, 'more check')} with --target h200x8, for which no GPU is needed"


def machine_line(machine: Machine) -> str:
    """`8 simulated CPU devices, jax 0.12.0.1`."""
    if machine.device_kind == NEXT_DOOR:
        return f"{plural(machine.devices, 'device')} next door, jax {machine.jax}"
    kind = machine.device_kind if machine.platform != "cpu" else "CPU"
    simulated = "simulated " if machine.simulated else ""
    return f"{plural(machine.devices, f'{simulated}{kind} device')}, jax {machine.jax}"


def _no_command(line: str) -> str:
    """A whole line; where it begins with `::`, which CI systems read, that is an escape."""
    start = len(line) - len(line.lstrip())
    return f"{line[:start]}\\x3a{line[start + 1 :]}" if line.startswith("::", start) else line


def _print_line(verdict: Verdict, out: "Console") -> None:
    reason = f" ({verdict.reason})" if verdict.reason else ""
    ground = f" [{verdict.ground}]" if verdict.ground != "source" else ""
    text = f"{verdict.check}{ground}: {verdict.title}{reason}"
    print_folded(f"  {_MARKS[verdict.status]}  ", text, out, _COLOURS[verdict.status])


def print_folded(
    label: str, text: str, out: "Console", style: str = "", link: str = "", *, bold: bool = False
) -> None:
    """A label in `style`, and beside it all of the text, folded where the terminal is narrow.

    A terminal that can open addresses opens `link`.
    """
    from rich.style import Style
    from rich.text import Text

    width = max(out.width - len(label), MIN_WIDTH)
    shown = Style(link=link or None, bold=bold or None)
    for line in text.splitlines() or [""]:
        for piece in Text(plain(line)).wrap(out, width, overflow="fold"):
            whole = Text(label, style=style) + Text(piece.plain, style=shown)
            if not label.strip():
                whole = Text(_no_command(whole.plain))
            whole.rstrip()
            out.print(whole)
            label = " " * len(label)


def _details(verdict: Verdict, path: str) -> Iterator[tuple[str, str]]:
    """The labels and texts that describe a failure, below its first place."""
    yield from _more_places(verdict, path)
    yield "expected", verdict.expected
    yield "observed", verdict.observed
    places = [place.line for place in verdict.culprits]
    callers = _callers(verdict, places)
    for frame in verdict.traceback[::-1]:
        if frame.line not in places:
            label = "called by" if frame.line in callers else "inside"
            yield label, f"{path}:{frame.line} ({frame.function})   {frame.text}"
    if verdict.hint:
        yield "hint", verdict.hint


def _callers(verdict: Verdict, places: list[int]) -> set[int]:
    """The lines of a traceback that come before the first of the places that stands in it."""
    lines = [frame.line for frame in verdict.traceback]
    shown = next((lines.index(line) for line in places if line in lines), len(lines))
    return set(lines[:shown])


def print_place(place: Culprit, path: str, out: "Console") -> None:
    """File, line and column, which editors and terminals open, and the lines around."""
    column = f":{place.column}" if place.column else ""
    inside = f" in {place.function}" if place.function else ""
    print_folded("  --> ", f"{path}:{place.line}{column}{inside}", out)
    if place.excerpt:
        print_excerpt(place, out)
    else:
        said = f"   ({times(place)})" if place.count > 1 else ""
        print_folded("      ", f"{place.text}{said}", out)


def _more_places(verdict: Verdict, path: str) -> Iterator[tuple[str, str]]:
    for place in verdict.culprits[1:MAX_CULPRITS]:
        said = f"   ({times(place)})" if place.count > 1 else ""
        yield "and", f"{path}:{place.line}   {place.text}{said}"
    if (more := len(verdict.culprits) - MAX_CULPRITS) > 0:
        yield "and", plural(more, "more line")


def _summary(report: Report) -> str:
    counts = dict.fromkeys(_MARKS, 0)
    for verdict in report.verdicts:
        counts[verdict.status] += 1
    said = [f"{n} {status}" for status, n in counts.items() if n]
    took = f" ({report.seconds:.1f} s)" if report.seconds else ""
    if report.exit_code == 0:
        return f"{report.exercise}: all {len(report.verdicts)} checks pass{took}"
    summary = f"{report.exercise}: {', '.join(said)}{took}"
    if not counts["fail"]:
        return summary
    again = f"the same inputs again: --seed {report.seed}"
    if is_own(Path(report.path), report.exercise):
        again = f"a hint: grader hint {report.exercise.split('_', 1)[0]}; {again}"
    return f"{summary}\n  {again}"
