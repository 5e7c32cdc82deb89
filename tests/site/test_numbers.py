"""Numbers in prose: measured ones are filled in, others carry a mark that says what they are.

A number with a unit of time, size, rate or share in the prose of a lesson, of a document's page or
of the home page is either a figure (`{{ name }}`), or its paragraph holds a mark:
`<!-- arithmetic: why -->` or `<!-- source: which -->`. Questions are free: their numbers are made
up to be thought about.
"""

import re
from pathlib import Path

import pytest
from conftest import ROOT

import lesson

UNITS = (
    "ms|s|seconds|minutes|µs|MiB|GiB|KiB|MB|GB|TB|bytes|B|GB/s|TB/s|TFLOP/s|GFLOP/s|%|percent|times"
)
NUMBER = re.compile(rf"(?<![\w.{{`])\d[\d,.]* ?(?:{UNITS})(?![\w/])")
MARK = re.compile(r"<!-- (?:arithmetic|source): \S.* -->")
NO_PROSE = re.compile(
    r"(?ms)<quiz>.*?</quiz>|^```.*?^```|\{\{.*?\}\}|`[^`]*`|\]\([^)]*\)|^---\n.*?^---\n"
)
LESSONS = sorted((ROOT / "docs" / "lessons").glob("[0-9]*.py"))
PAGES = [ROOT / "docs" / "index.md", *sorted((ROOT / "docs" / "documents").glob("*.md"))]


def typed(prose: str) -> list[str]:
    """The numbers of a text that are typed and not marked, with the paragraph of each."""
    paragraphs = NO_PROSE.sub("", prose).split("\n\n")
    return [
        f"{number[0]}: {paragraph.strip()}"
        for paragraph in paragraphs
        if not MARK.search(paragraph)
        for number in NUMBER.finditer(paragraph)
    ]


def prose_of(path: Path) -> list[str]:
    """The texts of a page: its own, or the Markdown cells of a lesson."""
    if path.suffix == ".md":
        return [path.read_text("utf-8")]
    cells = lesson.read(path).notebook.cells
    return [cell.source for cell in cells if cell.cell_type == "markdown"]


@pytest.mark.parametrize("path", [*LESSONS, *PAGES], ids=lambda path: path.stem)
def test_a_number_in_prose_is_filled_in_or_says_what_it_is(path: Path) -> None:
    texts = prose_of(path)
    assert texts
    assert [found for text in texts for found in typed(text)] == []


def test_there_are_marks_and_figures() -> None:
    texts = [text for path in LESSONS for text in prose_of(path)]
    assert len(LESSONS) == 18
    assert any(MARK.search(text) for text in texts)
    assert all(lesson.read(path).figures() for path in LESSONS)


@pytest.mark.parametrize(
    ("prose", "found"),
    [
        ("It takes 12 ms.", ["12 ms"]),
        ("It is 3.5 times as fast,\nand needs 40 GiB.", ["3.5 times", "40 GiB"]),
        ("It takes {{ took:.0f }} ms.", []),
        ("It takes 12 ms. <!-- source: a data sheet -->", []),
        ("It takes 12 ms. <!-- source: -->", ["12 ms"]),
        ("<!-- arithmetic: elsewhere -->\n\nIt takes 12 ms.", ["12 ms"]),
        ("<quiz>\nIt takes 12 ms. Why?\n</quiz>", []),
        ("Say `sleep 12 s`, or lesson 12.", []),
    ],
)
def test_what_counts_as_typed(prose: str, found: list[str]) -> None:
    assert [text.partition(":")[0] for text in typed(prose)] == found
