"""A lesson as its author wrote it: the cells of a py:percent file, and the line of each.

Input: `docs/lessons/NN-slug.py`. Nothing runs here (that is `notebooks`), and nothing here knows
of MkDocs (that is `hooks`).

Prose may contain figures: `{{ name }}` or `{{ name:.1f }}`. The name is a variable of the lesson,
read after the last cell has run, and formatted as in an f-string. So no measured number is typed.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jupytext
from nbformat import NotebookNode

_MARKER = re.compile(r"^# %%")
_FIGURE = re.compile(r"\{\{ *([a-z_][a-z0-9_]*)(:[^{}: ]+)? *\}\}")


class LessonError(Exception):
    """A lesson cannot be built. The text starts with file and line, as a compiler's does."""


@dataclass(frozen=True)
class Lesson:
    """One lesson file. `lines[i]` is the 1-based line of the first source line of cell i."""

    path: Path
    notebook: NotebookNode
    lines: tuple[int, ...]

    @property
    def name(self) -> str:
        """`04-the-inner-loop` for `docs/lessons/04-the-inner-loop.py`."""
        return self.path.stem

    def code(self) -> list[str]:
        """The source of each code cell, in order."""
        return [cell.source for cell in self.notebook.cells if cell.cell_type == "code"]

    def hashes(self) -> list[str]:
        """The `code_hashes` of the code cells.

        Modules beside the lesson that it imports count as code before the first cell.
        """
        helpers = [path.read_text("utf-8") for path in self.helpers()]
        return code_hashes([*helpers, *self.code()])[len(helpers) :]

    def helpers(self) -> list[Path]:
        """The modules beside the lesson that it imports."""
        names = set(re.findall(r"(?m)^\s*(?:import|from) (_\w+)", "\n".join(self.code())))
        paths = (self.path.parent / f"{name}.py" for name in sorted(names))
        return [path for path in paths if path.is_file()]

    def figures(self) -> dict[str, int]:
        """Each figure that prose asks for, as `name` or `name:spec`, with its line."""
        return dict(_figures(self))


def read(path: Path) -> Lesson:
    """Read a py:percent file. Raises LessonError where text stands before the first cell."""
    text = path.read_text(encoding="utf-8")
    notebook = jupytext.reads(text, fmt="py:percent")
    rows = text.splitlines()
    markers = [number for number, row in enumerate(rows) if _MARKER.match(row)]
    if len(markers) != len(notebook.cells):
        raise LessonError(f"{path}:1: text before the first '# %%' line")
    return Lesson(path, notebook, tuple(_first_line(rows, marker) for marker in markers))


def _first_line(rows: list[str], marker: int) -> int:
    """The 1-based line where the source of a cell starts; `marker` is the row of its `# %%`."""
    row = marker + 1
    while row < len(rows) and rows[row].strip().lstrip("r") in ("", '"""'):
        row += 1
    return row + 1


def _figures(lesson: Lesson) -> Iterator[tuple[str, int]]:
    for cell, first in zip(lesson.notebook.cells, lesson.lines, strict=True):
        if cell.cell_type == "markdown":
            for match in _FIGURE.finditer(cell.source):
                row = cell.source.count("\n", 0, match.start())
                yield match[1] + (match[2] or ""), first + row


def fill_figures(source: str, figures: dict[str, str]) -> str:
    """Prose with its figures filled in; `figures` must have every name of `Lesson.figures`."""
    return _FIGURE.sub(lambda match: figures[match[1] + (match[2] or "")], source)


def code_hashes(code: list[str]) -> list[str]:
    """For each code cell, the hash of its code and of all code before it: 16 hex digits.

    Recordings are keyed by these hashes. A change of prose keeps a recording; a change of code in
    the cell or before it retires the recording.
    """
    digest = hashlib.sha256()
    hashes = []
    for source in code:
        digest.update(source.encode() + b"\0")
        hashes.append(digest.hexdigest()[:16])
    return hashes
