"""Numbers in prose: measured ones are filled in, others carry a mark that says what they are.

A number with a unit of time, size, rate or share in the prose of a lesson, of a document's page or
of the home page is either a figure (`{{ name }}`), or its paragraph holds a mark:
`<!-- arithmetic: why -->` or `<!-- source: which -->`. Where the mark names experiments
(`<!-- gpu: G2 -->`), the number stands among the figures that a GPU gave for them. Questions are
free: their numbers are made up to be thought about.
"""

import re
from pathlib import Path

import pytest
from conftest import ROOT

import gpu_statements
import lesson

UNITS = (
    "ms|s|seconds|minutes|µs|MiB|GiB|KiB|MB|GB|TB|bytes|B|GB/s|TB/s|TFLOP/s|GFLOP/s|%|percent|times"
)
NUMBER = re.compile(rf"(?<![\w.{{`])\d[\d,.]* ?(?:{UNITS})(?![\w/])")
DIGITS = re.compile(r"\d(?:[\d,.]*\d)?")
GPU = re.compile(r"<!-- gpu: (.+?) -->")
MARK = re.compile(r"<!-- (?:arithmetic|source): \S.* -->")
NO_PROSE = re.compile(
    r"(?ms)<quiz>.*?</quiz>|^```.*?^```|\{\{.*?\}\}|`[^`]*`|\]\([^)]*\)|^---\n.*?^---\n"
)
LESSONS = sorted((ROOT / "docs" / "lessons").glob("[0-9]*.py"))
PAGES = [ROOT / "docs" / "index.md", *sorted((ROOT / "docs" / "documents").glob("*.md"))]


MEASURED = gpu_statements.measured(ROOT)


def typed(prose: str) -> list[str]:
    """The numbers of a text that are typed, not marked and not measured, with their paragraph."""
    paragraphs = NO_PROSE.sub("", prose).split("\n\n")
    return [
        f"{number[0]}: {paragraph.strip()}"
        for paragraph in paragraphs
        if not MARK.search(paragraph)
        for number in NUMBER.finditer(paragraph)
        if DIGITS.match(number[0])[0] not in by_experiments(paragraph)  # type: ignore[index]
    ]


def by_experiments(paragraph: str) -> set[str]:
    """All numbers in the figures of the experiments that a paragraph names."""
    named = {name for mark in GPU.findall(paragraph) for name in mark.split(", ")}
    given = [one.figures for name in named & MEASURED.keys() for one in MEASURED[name]]
    texts = [text for figures in given for both in figures.items() for text in both]
    return {number for text in texts for number in DIGITS.findall(text)}


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


def test_a_number_of_an_experiment_is_one_that_a_gpu_gave() -> None:
    assert "537" in by_experiments("537 MiB <!-- gpu: G2 -->")
    assert typed("537 MiB. <!-- gpu: G2 -->") == []
    assert len(typed("538 MiB. <!-- gpu: G2 -->\n\n537 MiB. <!-- gpu: G3 -->")) == 2


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
