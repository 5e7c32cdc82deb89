"""Prints a place in the learner's file as compilers do: the lines around it, with a mark below.

The place comes from a verdict. Each line is folded where a terminal is narrow, and its mark with
it. What stands in the file is untrusted text: control characters are shown as escapes.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from grader.judging.verdict import Culprit
from grader.judging.words import plural

if TYPE_CHECKING:
    from rich.console import Console

NARROWEST = 8
_TAB, _MARK = "    ", "bold red"
_Row = tuple[str, str]
"""What stands right of the line number, and its style."""


def plain(text: str) -> str:
    """`text` on one line, with control characters as escapes (`\\x1b`).

    CI systems read commands out of what a program prints: `##[` and `##vso[` become escapes too.
    """
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text.replace("\t", _TAB))
    return shown.replace("##[", "#\\x23[").replace("##vso[", "#\\x23vso[")


def times(place: Culprit) -> str:
    """How often it happened there; "" for once."""
    return plural(place.count, "time") if place.count > 1 else ""


def print_excerpt(place: Culprit, out: "Console") -> None:
    """The lines around a place, without the blanks that all of them begin with."""
    from rich.text import Text

    lines = [plain(line) for line in place.excerpt]
    indent = min((len(s) - len(s.lstrip()) for s in lines if s.strip()), default=0)
    digits = len(str(place.first + len(lines) - 1))
    width = max(out.width - digits - len("   | "), NARROWEST)
    for number, line in enumerate(lines, place.first):
        left = str(number)
        columns = _columns(place, indent) if number == place.line else (0, 0)
        rows = list(_rows(line[indent:], *columns, width))
        if number == place.line and (said := times(place)):
            rows = _with_count(rows, said, width)
        for text, style in rows:
            row = Text(f"  {left:>{digits}} | ", "dim") + Text(text, style)
            row.rstrip()
            out.print(row)
            left = ""


def _with_count(rows: list[_Row], said: str, width: int) -> list[_Row]:
    """The rows of a marked line with the count beside the mark, or below where it has no room."""
    text, style = rows[-1]
    if style and len(text) + 1 + len(said) <= width:
        return [*rows[:-1], (f"{text} {said}", style)]
    return [*rows, (said, _MARK)]


def _columns(place: Culprit, indent: int) -> tuple[int, int]:
    """Where the mark begins and has ended in the line as it is shown, from 0."""
    line = place.excerpt[place.line - place.first]
    begin, end = (len(plain(line[: at - 1])) - indent for at in (place.column, place.end))
    return max(begin, 0), max(end, 0)


def _rows(text: str, begin: int, end: int, width: int) -> Iterator[_Row]:
    """Parts of a line that fit, each followed by the marks below it, if it has any."""
    from rich.cells import cell_len, chop_cells

    start = 0
    for piece in chop_cells(text, width) or [""]:
        yield piece, ""
        first, last = max(begin - start, 0), min(end - start, len(piece))
        if first < last:
            yield " " * cell_len(piece[:first]) + "^" * cell_len(piece[first:last]), _MARK
        start += len(piece)
