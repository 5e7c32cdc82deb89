"""The order of the pages and the table of lessons, from the files themselves.

A lesson says in its front matter which `part` it belongs to; an exercise says in
`grader/checks/` which lesson it follows. So a new lesson or exercise edits no list.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import exercise_pages
import notebooks

MARK = "{{ lessons }}"
PART, TITLE, DESCRIPTION = r"part: (.+)", r"# (?!%%)(.+)", r"description: (.+)"


@dataclass(frozen=True)
class Entry:
    """One lesson as the navigation sees it."""

    stem: str
    part: str
    title: str
    description: str
    exercises: tuple[str, ...]


def entries(docs: Path) -> Iterator[Entry]:
    """The lessons that name a part, by number."""
    follows = _exercises(docs.parent / "grader" / "checks")
    for path in notebooks.lesson_paths(docs / "lessons"):
        text = path.read_text("utf-8")
        part, title, description = (_field(text, name) for name in (PART, TITLE, DESCRIPTION))
        if part:
            exercises = tuple(follows.get(f"lessons/{path.stem}", ()))
            yield Entry(path.stem, part, title, description, exercises)


def nav(docs: Path, others: list[Any]) -> list[Any]:
    """Start page, then each part with its lessons and exercises, then `others`."""
    parts: dict[str, list[str]] = {}
    for entry in entries(docs):
        pages = parts.setdefault(entry.part, [])
        pages.append(f"lessons/{entry.stem}.ipynb")
        pages += [f"exercises/{exercise}.md" for exercise in entry.exercises]
    return [{"Start": "index.md"}, *({part: pages} for part, pages in parts.items()), *others]


def fill(markdown: str, docs: Path) -> str:
    """Put the table of lessons in the place of `{{ lessons }}`."""
    if MARK not in markdown:
        return markdown
    rows = ["| lesson | exercise | what it shows |", "|---|---|---|"]
    for e in entries(docs):
        exercises = ", ".join(f"[{x.partition('_')[0]}](exercises/{x}.md)" for x in e.exercises)
        rows.append(
            f"| [{e.title}](lessons/{e.stem}.ipynb) | {exercises or '-'} | {e.description} |"
        )
    return markdown.replace(MARK, "\n".join(rows))


def _exercises(checks: Path) -> dict[str, list[str]]:
    follows: dict[str, list[str]] = {}
    for source in sorted(checks.glob("ex*.py")):
        follows.setdefault(exercise_pages.read(source).lesson, []).append(source.stem)
    return follows


def _field(text: str, pattern: str) -> str:
    found = re.search(f"(?m)^{pattern}$", text)
    return found[1].strip() if found else ""
