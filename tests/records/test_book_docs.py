"""The page about the device tells every field and every event of a book, and no other."""

import re
from typing import Any, get_args

import msgspec
import pytest
from conftest import ROOT

from grader.records import book

PAGE = (ROOT / "docs" / "reference" / "device.md").read_text("utf-8")


def told(heading: str, number: int = 0) -> set[str]:
    """The names in the first column of a section's table."""
    section = PAGE.split(f"\n### {heading}\n", 1)[1].split("\n### ", 1)[0]
    tables = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    rows = tables[number].splitlines()[2:]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("The first line", book.Opening),
        ("An entry", book.Entry),
        ("The last line", book.Closing),
    ],
)
def test_every_field_is_told(heading: str, kind: Any) -> None:
    fields = {field.name for field in msgspec.structs.fields(kind)}
    assert told(heading) == fields | {"event"}


def test_every_event_is_told() -> None:
    assert told("An entry", 1) == set(get_args(book.EntryKind))


def test_the_page_tells_the_version() -> None:
    assert f"| `version` | {book.BOOK_VERSION};" in PAGE
