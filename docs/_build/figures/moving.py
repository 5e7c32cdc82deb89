"""Figures that a reader can move: their places in pages, their still forms, their tables.

Input: what each figure's module says of itself (`Figure`), and its table: the JSON that a program
prints, which asks JAX. It runs once, and the cache keeps it. Output: the figure where a page holds
`{{ name figure }}`, and in its lessons before a heading. `assets/<name>.js` makes it move, with
what all figures share in `assets/moving.js`; without them, the figure is still.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import notebooks

_SECONDS = 600
_STEERING = ("JAX_", "XLA_", "TF_")


class FigureError(Exception):
    """A program did not make a figure's table, or a lesson has no place for the figure."""


@dataclass(frozen=True)
class Figure:
    """One figure. `places` are a lesson's number and the heading before which the figure stands;
    `still` makes HTML of the table; `reads` are files, from the root, that the program reads."""

    name: str
    title: str
    places: tuple[tuple[str, str], ...]
    still: Callable[[dict[str, Any]], str]
    reads: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        """What stands for the figure in a page."""
        return f"{{{{ {self.name} figure }}}}"

    @property
    def program(self) -> Path:
        """The program that prints the table, from the root."""
        return Path("docs") / "_build" / "figures" / f"{self.name}_table.py"

    @property
    def table(self) -> Path:
        """Where the script looks for the table, from the site's root."""
        return Path("assets") / f"{self.name}_table.js"


@dataclass(frozen=True)
class Moving:
    """A figure of the course at `root`, whose tables are kept in `cache`."""

    figure: Figure
    root: Path
    cache: Path

    def fill(self, markdown: str, here: str, base: str) -> str:
        """The page `here` with the figure in place of its mark; `base` leads to the site's root.

        Raises FigureError where a lesson has lost the heading that the figure stands before.
        """
        mark = self.figure.mark
        for number, heading in self.figure.places:
            if here.startswith(f"lessons/{number}-"):
                if heading not in markdown:
                    raise FigureError(f"no heading {heading!r} for the figure {self.figure.name}")
                markdown = markdown.replace(heading, f"{mark}\n\n{heading}")
        return markdown.replace(mark, self._html(base)) if mark in markdown else markdown

    def text(self) -> str:
        """The table as JSON, asked of its program where the cache lacks it. Raises FigureError."""
        kept = self.cache / self.figure.name / f"table-{self._key()}.json"
        if not kept.exists():
            notebooks.keep(kept, "table", self._ask())
        return kept.read_text("utf-8")

    def wanted(self) -> bool:
        """Whether any page holds the figure."""
        lessons = self.root / "docs" / "lessons"
        index = self.root / "docs" / "index.md"
        return (index.is_file() and self.figure.mark in index.read_text("utf-8")) or any(
            any(lessons.glob(f"{number}-*.py")) for number, _ in self.figure.places
        )

    def write(self, site: Path) -> None:
        """Write the table where the script looks for it, if a page holds the figure."""
        if self.wanted():
            name = json.dumps(self.figure.name)
            text = f"(self.tables ||= {{}})[{name}] = {self.text()};\n"
            (site / self.figure.table).write_text(text, "utf-8")

    def _key(self) -> str:
        digest = hashlib.sha256("\0".join(notebooks.installed_versions()).encode())
        for path in (self.figure.program, *map(Path, self.figure.reads)):
            digest.update((self.root / path).read_bytes() + b"\0")
        return digest.hexdigest()[:20]

    def _ask(self) -> str:
        kept = {name: text for name, text in os.environ.items() if not name.startswith(_STEERING)}
        done = subprocess.run(
            [sys.executable, str(self.root / self.figure.program)],
            env={**kept, "MPLBACKEND": "agg"},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode:
            raise FigureError(
                f"{self.figure.program}: exit code {done.returncode}\n{done.stderr[-2000:]}"
            )
        return done.stdout.strip()

    def _html(self, base: str) -> str:
        name = self.figure.name
        still = self.figure.still(json.loads(self.text()))
        scripts = "".join(
            f'<script src="{base}assets/{script}.js" defer></script>' for script in ("moving", name)
        )
        return (
            f'<div class="moving {name}" data-figure="{name}" data-base="{base}" role="group" '
            f'aria-label="{escape(self.figure.title)}"><p class="moving-title">'
            f"{escape(self.figure.title)}</p>"
            f'<div class="moving-body"><div class="{name}-still">{still}</div></div></div>{scripts}'
        )
