"""A book is read as far as it goes, and what is wrong with it is said."""

import os
from pathlib import Path

import pytest

from grader.device.front.writing import Writer
from grader.records import book
from grader.records.book import BOOK_VERSION, Compute, Count, Entry, Link, NotABook, Opening, Usage

OPENING = Opening(
    version=BOOK_VERSION, grader="1", jaxlib="2", began=3.0, devices=1, kind="next door", memory=9
)


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    """A book with two entries."""
    path = tmp_path / "book.jsonl"
    writer = Writer(os.open(path, os.O_WRONLY | os.O_CREAT), OPENING)
    writer.write(Entry("h2d", 0.5, end=1.0, bytes=4, device=0))
    writer.write(Entry("h2d", 1.5, end=2.0, bytes=6, device=0))
    writer.close(3.0, [Usage(0, 10)])
    writer.write(Entry("d2h", 4.0))  # too late
    return path.read_bytes()


def test_a_whole_book_adds_up(whole: bytes) -> None:
    found = book.parse(whole, "it")
    assert found.problem == ""
    assert found.opening == OPENING
    assert [each.bytes for each in found.entries] == [4, 6]
    assert found.closing is not None
    assert found.closing.counts == {"h2d": Count(2, 10)}
    assert found.closing.memory == [Usage(0, 10)]


def test_a_book_that_was_cut_off_says_so(whole: bytes) -> None:
    lines = whole.splitlines(keepends=True)
    cut = book.parse(b"".join(lines[:-1]), "it")
    assert (cut.problem, len(cut.entries)) == ("the book was cut off after 2 entries", 2)
    torn = book.parse(b"".join(lines[:-1])[:-5], "it")
    assert torn.problem == "the book was cut off after 1 entries, in the middle of a line"


def test_a_book_that_was_changed_says_so(whole: bytes) -> None:
    lines = whole.splitlines(keepends=True)
    without = book.parse(b"".join([lines[0], *lines[2:]]), "it")
    assert "do not add up" in without.problem
    assert "goes on after its last line" in book.parse(whole + b"more", "it").problem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "it has no whole line"),
        (b"{}\n", "it, line 1"),
        (b"no json\n", "it, line 1"),
    ],
)
def test_what_is_no_book_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(NotABook, match=words):
        book.parse(text, "it")


def test_a_book_of_another_version_is_refused(whole: bytes) -> None:
    other = whole.replace(b'"version":%d' % BOOK_VERSION, b'"version":99')
    with pytest.raises(NotABook, match="a book of version 99"):
        book.parse(other, "it")


def test_a_broken_entry_is_named_by_its_line(whole: bytes) -> None:
    with pytest.raises(NotABook, match="it, line 3"):
        book.parse(whole.replace(b'"bytes":6', b'"bytes":"six"'), "it")


def test_modelled_times() -> None:
    assert Link().seconds(1 << 30) == 0.0
    assert Link(100.0, 0.5).seconds(200) == 2.5
    assert Compute().seconds(1e12, 1e12) == 0.0
    assert Compute(flops=10.0, bandwidth=5.0).seconds(20, 20) == 4.0
    assert Compute(flops=10.0).seconds(20, 20) == 2.0
