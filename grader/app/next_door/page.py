"""The page at the end of `grader run`: what reached the device, in figures and on a timeline.

The figures come from `grader.records.bookkeeping`. Here they become lines of plain ASCII text, as
wide as the terminal allows; without colour, so that nothing depends on it. A program's name is
the program's own text: control characters in it are shown as escapes.
"""

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby

from grader.app.excerpt import plain
from grader.app.next_door.quantities import shown
from grader.judging.words import exchanges, plural
from grader.records.book import Book
from grader.records.bookkeeping import LANES, Lane, Peak, Program, Summary, Tally, timeline

NARROWEST, WIDEST = 40, 120
MAX_PROGRAMS, MAX_COLLECTIVES, MAX_PEAKS, MAX_ROWS = 5, 3, 4, 16
ALIKE = 0.2
"""Shares of a column that differ by this much look the same."""
_INDENT, _LABEL, _DEVICES = 2, 15, 6
_MARKS = ((0.75, "#"), (0.5, "+"), (0.25, "-"), (0.0, "."))
_LEGEND = ". less than a quarter of the time, - a quarter, + half, # three quarters or more"


def lines(title: str, summary: Summary, book: Book, width: int) -> Iterator[str]:
    """The page, line by line; `title` says what ran. No line is wider than `width`, if it is 40
    or more."""
    width = min(max(width, NARROWEST), WIDEST)
    yield from _folded("", _heading(title, summary), width)
    if not summary.launches.number and not summary.copies_in.number:
        yield from _folded("", _UNUSED, width)
        return
    for label, text in _figures(summary):
        yield from _folded(label, text, width)
    yield from _programs(summary.programs, width)
    yield from _timeline(book, summary.seconds, width)


_UNUSED = (
    "The program put nothing on the device and ran nothing on it. A program that sets "
    'JAX_PLATFORMS or `jax.config.update("jax_platforms", ...)` chooses its devices itself.'
)


def _folded(label: str, text: str, width: int) -> Iterator[str]:
    """A label, and beside it all of the text."""
    begin = " " * _INDENT + f"{label:<{_LABEL}}" if label else ""
    rest = " " * len(begin)
    text = plain(text)
    yield from _wrapped(text, width, begin, rest)


def _wrapped(text: str, width: int, begin: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=begin, subsequent_indent=rest, break_on_hyphens=False
    )


def _heading(title: str, summary: Summary) -> str:
    like = f" like {summary.like}, 1000 times slower and smaller" if summary.like else ""
    devices = plural(summary.devices, f"device {summary.kind}")
    if summary.devices != 1:
        devices = f"{summary.devices} devices {summary.kind}"
    return f"{title} on {devices}{like}, {shown(summary.memory)} each"


def _figures(summary: Summary) -> Iterator[tuple[str, str]]:
    yield "copies in", _copies(summary.copies_in)
    reads = _copies(summary.copies_out)
    if summary.copies_out.number:
        reads += f", read by the host; {duration(summary.read_seconds)} from question to answer"
    yield "copies out", reads
    yield "copies across", _copies(summary.copies_across)
    if summary.copies_within.number:
        yield "copies within", _copies(summary.copies_within)
    if summary.copies_pinned.number:
        yield "copies pinned", _copies(summary.copies_pinned)
    yield "waits", _times(summary.waits)
    yield "launches", _times(summary.launches)
    yield "compiles", _times(summary.compiles)
    if summary.callbacks.number:
        yield "callbacks", _times(summary.callbacks)
    yield "peak memory", _peaks(summary.peaks)
    if summary.modelled:
        what = {"host_link": "copies in and out", "device_link": "copies across"}
        named = ", ".join(what.get(name, name) for name in summary.modelled)
        yield "modelled speed", f"of {named}; counts, bytes and order are real"
    if summary.refused:
        yield "out of memory", plural(summary.refused, "allocation") + " did not fit"
    if summary.lost:
        yield "device lost", plural(summary.lost, "time")
    if summary.problem:
        yield "incomplete", summary.problem


def _copies(tally: Tally) -> str:
    return f"{tally.number:,} ({tally.bytes:,} bytes)" if tally.number else "0"


def _times(tally: Tally) -> str:
    return f"{tally.number:,}, {duration(tally.seconds)}" if tally.number else "0"


def duration(seconds: float) -> str:
    """`12.3 s`, `312 ms`, `0.31 ms`: three digits."""
    return (
        f"{seconds:.3g} s"
        if 1 <= seconds < 1000
        else (f"{seconds:,.0f} s" if seconds >= 1000 else f"{seconds * 1000:.3g} ms")
    )


def _peaks(peaks: Sequence[Peak]) -> str:
    """`12 MiB on devices 0-7`, those with equal peaks together, the highest first."""
    by_size = sorted(peaks, key=lambda peak: -peak.bytes)
    parts = []
    for count, group in groupby(by_size, key=lambda peak: peak.bytes):
        devices = [peak.device for peak in group]
        noun = "device" if len(devices) == 1 else "devices"
        parts.append(f"{shown(count)} on {noun} {ranges(devices)}")
    if len(parts) > MAX_PEAKS:
        parts[MAX_PEAKS - 1 : -1] = ["..."]
    return ", ".join(parts)


def ranges(numbers: Sequence[int]) -> str:
    """`0-2,5`: increasing numbers, neighbours together."""
    # In a run of neighbours, a number and its place differ by the same amount.
    runs = [list(run) for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])]
    ends = [(run[0][1], run[-1][1]) for run in runs]
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)


def _programs(programs: Sequence[Program], width: int) -> Iterator[str]:
    """The programs that took longest, each with its collectives."""
    ran = [program for program in programs if program.launches]
    if not ran:
        return
    yield ""
    yield from _folded(
        "", "programs by their time; collectives are estimates from their text", width
    )
    for program in ran[:MAX_PROGRAMS]:
        said = f"launched {_often(program.launches)}, {duration(program.seconds)}"
        if program.compiles > 1:
            said += f", compiled {_often(program.compiles)}"
        if program.collectives:
            said += f"; one launch: {_collectives(program)}"
        whole = f"{plain(program.name)}  {said}"
        yield from _wrapped(whole, width, " " * _INDENT, " " * (2 * _INDENT))
    if len(ran) > MAX_PROGRAMS:
        rest = ran[MAX_PROGRAMS:]
        seconds = duration(sum(program.seconds for program in rest))
        yield from _folded("", f"  and {plural(len(rest), 'more program')}, {seconds}", width)


def _often(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _collectives(program: Program) -> str:
    """The collectives of one launch, the largest first."""
    by_size = sorted(program.collectives, key=lambda c: -c.nbytes * c.count * max(c.runs, 1))
    more = len(by_size) - MAX_COLLECTIVES
    return exchanges(by_size[:MAX_COLLECTIVES]) + (f" and {more} more sizes" if more > 0 else "")


def _timeline(book: Book, seconds: float, width: int) -> Iterator[str]:
    """A row for each thing that went on, and for each device where they differ."""
    columns = width - _INDENT - _LABEL - _DEVICES - 2
    rows = list(_rows(timeline(book, columns)))
    if not rows:
        return
    yield ""
    told = f"timeline of {duration(seconds)}, {duration(seconds / columns)} a column: {_LEGEND}"
    yield from _folded("", told, width)
    for event, devices, marks in rows:
        yield f"{' ' * _INDENT}{LANES[event]:<{_LABEL}}{devices:<{_DEVICES}}|{marks}|"


def _rows(lanes: Sequence[Lane]) -> Iterator[tuple[str, str, str]]:
    """Event, devices and marks of each row.

    Devices whose rows look much the same share one that shows their mean. Where that leaves too
    many rows, all devices of an event share one.
    """
    groups = list(_alike(lanes))
    if len(groups) > MAX_ROWS:
        groups = [list(same) for _, same in groupby(lanes, key=lambda lane: lane.event)]
    for group in groups:
        columns = zip(*(lane.shares for lane in group), strict=True)
        means = "".join(mark(sum(shares) / len(group)) for shares in columns)
        yield group[0].event, _named([lane.device for lane in group]), means


def _alike(lanes: Sequence[Lane]) -> Iterator[list[Lane]]:
    """Lanes of one event that differ from the first of them by `ALIKE` at most in each column."""
    for _, same in groupby(lanes, key=lambda lane: lane.event):
        groups: list[list[Lane]] = []
        for lane in same:
            for group in groups:
                if all(
                    abs(a - b) <= ALIKE for a, b in zip(group[0].shares, lane.shares, strict=True)
                ):
                    group.append(lane)
                    break
            else:
                groups.append([lane])
        yield from groups


def _named(devices: Sequence[int | None]) -> str:
    """The devices of a row, or how many they are where there is no room for that."""
    known = [device for device in devices if device is not None]
    text = ranges(known)
    return text if len(text) < _DEVICES else f"({len(known)})"


def mark(share: float) -> str:
    return next((mark for least, mark in _MARKS if share > 0 and share >= least), " ")
