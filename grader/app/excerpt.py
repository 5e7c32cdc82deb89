"""Prints a place in the learner's file as compilers do: the lines around it, with a mark below.

The place comes from a verdict. Where a terminal is narrow, lines are folded: the lines around
between words, the one of the place with its mark. What stands in the file is untrusted text:
control characters are shown as escapes.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from grader.judging.words import plural
from grader.records.verdict import Culprit

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
        if number == place.line:
            rows = list(_rows(line[indent:], *_columns(place, indent), width))
            rows = _with_count(rows, said, width) if (said := times(place)) else rows
        else:
            rows = _folded(line[indent:], width, out)
        for text, style in rows:
            row = Text(f"  {left:>{digits}} | ", "dim") + Text(text, style)
            row.rstrip()
            out.print(row)
            left = ""


def _folded(text: str, width: int, out: "Console") -> list[_Row]:
    """A line around the place, folded between words; what is left of it stands further in."""
    from rich.text import Text

    first, *rest = Text(text).wrap(out, width, overflow="fold") or [Text("")]
    if not rest:
        return [(first.plain, "")]
    more = " " * min(len(text) - len(text.lstrip()) + len(_TAB), width // 2)
    left = Text(text[len(first.plain) :].lstrip())
    return [
        (first.plain.rstrip(), ""),
        *((f"{more}{row.plain.rstrip()}", "") for row in left.wrap(out, width - len(more))),
    ]


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
