"""The order of the pages, the table of lessons on the start page, and that of the exercises.

Both come from the files themselves: a lesson says in its front matter which `part` it belongs to,
and an exercise says in `grader/checks/` which lesson it follows. So adding a lesson or an exercise
edits no list.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mkdocs.structure.pages import Page

import exercise_pages
import notebooks

MARK, EXERCISES = "{{ lessons }}", "{{ exercises }}"
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
    """The lessons that name a part, in the order of their numbers."""
    exercises_of = _exercises_by_lesson(docs.parent / "grader" / "checks")
    for path in notebooks.lesson_paths(docs / "lessons"):
        text = path.read_text("utf-8")
        part = _field(text, PART)
        if part:
            exercises = tuple(exercises_of.get(f"lessons/{path.stem}", ()))
            title, description = _field(text, TITLE), _field(text, DESCRIPTION)
            yield Entry(path.stem, part, title, description, exercises)


class LessonPage(Page):
    """The page of a lesson: the sidebar shows its exercises below it, as the pages of a folder."""

    @property
    def is_index(self) -> bool:
        return True


def nav(docs: Path, others: list[Any]) -> list[Any]:
    """MkDocs' `nav`: the start page and the symptoms, each part with its lessons, then `others`.

    A lesson is a section: its own page first (`LessonPage`), then its exercises.
    """
    parts: dict[str, list[Any]] = {}
    for entry in entries(docs):
        exercises = [f"exercises/{exercise}.md" for exercise in entry.exercises]
        pages = [f"lessons/{entry.stem}.ipynb", *exercises]
        parts.setdefault(entry.part, []).append({entry.title: pages})
    first: list[Any] = [{"Home": "index.md"}, "symptoms.md"]
    return [*first, *({part: pages} for part, pages in parts.items()), *others]


def fill(markdown: str, docs: Path) -> str:
    """Replace `{{ lessons }}` by the table of lessons, `{{ exercises }}` by that of exercises."""
    if EXERCISES in markdown:
        markdown = markdown.replace(EXERCISES, _table_of_exercises(docs))
    if MARK not in markdown:
        return markdown
    rows = [
        '<div class="lessons" markdown>\n',
        "| lesson | exercise | what it shows |",
        "|---|---|---|",
    ]
    for entry in entries(docs):
        lesson = f"[{entry.title}](lessons/{entry.stem}.ipynb)"
        exercises = ", ".join(map(_link, entry.exercises)) or "-"
        rows.append(f"| {lesson} | {exercises} | {entry.description} |")
    return markdown.replace(MARK, "\n".join([*rows, "\n</div>"]))


def _link(exercise: str) -> str:
    number = exercise.partition("_")[0]
    return f"[{number}](exercises/{exercise}.md)"


def _table_of_exercises(docs: Path) -> str:
    """Every exercise in the order of the lessons, with what its page and its checks say of it."""
    rows = [
        '<div class="exercises" markdown>\n',
        "| exercise | about | difficulty | judged by | you edit |",
        "|---|---|---|---|---|",
    ]
    for entry in entries(docs):
        for exercise in entry.exercises:
            text = (docs / "exercises" / f"{exercise}.md").read_text("utf-8")
            found = exercise_pages.read(docs.parent / "grader" / "checks" / exercise)
            cells = (
                f"[{_field(text, TITLE)}]({exercise}.md)",
                f"{_field(text, 'minutes: (.+)')} min",
                _field(text, "level: (.+)"),
                ", ".join(dict.fromkeys(check.ground for check in found.checks)),
                ", ".join(f"`{name}`" for name in found.edits),
            )
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([*rows, "\n</div>"])


def _exercises_by_lesson(checks: Path) -> dict[str, list[str]]:
    """The exercises that follow each lesson, in the order of their numbers."""
    found: dict[str, list[str]] = {}
    for package in sorted(path.parent for path in checks.glob("ex*/__init__.py")):
        found.setdefault(exercise_pages.read(package).lesson, []).append(package.name)
    return found


def _field(text: str, pattern: str) -> str:
    """The group of the first line that matches, or an empty text."""
    found = re.search(f"(?m)^{pattern}$", text)
    return found[1].strip() if found else ""
