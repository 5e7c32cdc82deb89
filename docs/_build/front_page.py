"""The first screen: a figure and a picture of a lesson's run, and the four questions as cards.

Input: the runs of lessons (`notebooks`) and their parts. Marks that pages may hold:
`{{ figure: 04 slowdown:.1f }}` (a figure that the lesson's prose shows), `{{ picture: 04 }}` (its
first picture) and `{{ questions }}`. No number is typed here.
"""

import re
from collections.abc import Callable
from html import escape
from pathlib import Path

import nbformat

import lesson_pages
import navigation
import notebooks

QUESTIONS = "{{ questions }}"
_FIGURE = re.compile(r"\{\{ figure: (\d\d) ([^{} ]+) \}\}")
_PICTURE = re.compile(r"(?m)^\{\{ picture: (\d\d) \}\}$")
# What the reader asks, for each part of the course; parts are numbered.
_ASKED = (
    ("What hardware do I have, and how do I use it?", "Devices, placement, the inner loop."),
    ("Why is my code not on the GPU?", "Who decides where code runs, and when a GPU pays."),
    ("Why is my GPU memory gone?", "Who took it, what jit does to it, what really leaks."),
    ("Why is my eight-GPU machine slow?", "Meshes, collectives, host memory, measuring."),
)


class FrontPageError(Exception):
    """A page asks for a figure or picture that no lesson has."""


def fill(markdown: str, docs: Path, cache: Path, address: Callable[[str], str]) -> str:
    """A page with its marks replaced; `address` turns a page's path in docs/ into a link."""

    def figure(match: re.Match[str]) -> str:
        path = _lesson(docs, match[1])
        figures = notebooks.load(path, cache / "runs").figures
        if match[2] not in figures:
            raise FrontPageError(f"{path.name} shows no figure {match[2]}")
        return figures[match[2]]

    def picture(match: re.Match[str]) -> str:
        return _picture(_lesson(docs, match[1]), cache)

    markdown = _PICTURE.sub(picture, _FIGURE.sub(figure, markdown))
    if QUESTIONS in markdown:
        markdown = markdown.replace(QUESTIONS, questions(docs, address))
    return markdown


def questions(docs: Path, address: Callable[[str], str]) -> str:
    """The four questions as a list of cards, in HTML."""
    parts: dict[str, list[navigation.Entry]] = {}
    for entry in navigation.entries(docs):
        parts.setdefault(entry.part, []).append(entry)
    if len(parts) != len(_ASKED):
        return ""
    cards = []
    for entries, (question, about) in zip(parts.values(), _ASKED, strict=True):
        first, last = entries[0], entries[-1]
        count = sum(len(entry.exercises) for entry in entries)
        cards.append(
            f'<li><a href="{address(f"lessons/{first.stem}.ipynb")}"><strong>{escape(question)}'
            f"</strong><span>{escape(about)}</span><small>Lessons {first.stem[:2]} to "
            f"{last.stem[:2]}, {count} exercises</small></a></li>"
        )
    return f'<ul class="questions">{"".join(cards)}</ul>'


def _lesson(docs: Path, number: str) -> Path:
    for path in notebooks.lesson_paths(docs / "lessons"):
        if path.stem.startswith(f"{number}-"):
            return path
    raise FrontPageError(f"no lesson {number}")


def _picture(path: Path, cache: Path) -> str:
    """The first picture of a lesson, as its page shows it."""
    notebook = nbformat.read(lesson_pages.page_path(path, cache), 4)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if svg := output.get("data", {}).get("image/svg+xml"):
                alt = escape(cell.metadata.alt)
                return f'<div class="picture" role="img" aria-label="{alt}">{svg}</div>'
    raise FrontPageError(f"{path.name} has no picture")
