"""Any exception is put in words, and none of them raises another."""

import pytest

from grader.records.raised import LONGEST, in_words, written


class Words(str):
    """A text that does not let itself be split."""

    __slots__ = ()

    def __str__(self) -> str:
        return self

    def split(self, *_: object, **__: object) -> list[str]:
        raise SystemExit


class Exits(SystemExit):
    """An exit whose code raises."""

    @property
    def code(self) -> object:  # type: ignore[override]
        raise ValueError


def noted() -> Exception:
    error = ValueError("a note follows")
    error.add_note(Words("note"))
    return error


UNSAID = "Python cannot print what it says"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("no"), "ValueError: no"),
        (ValueError(), "ValueError"),
        (ValueError("bad name: \ud83d"), r"ValueError: bad name: \ud83d"),
        (ValueError("x\n=== Source Location Trace: === y"), "ValueError: x"),
        (SystemExit(), "SystemExit: None"),
        (SystemExit("no\ud83d"), r"SystemExit: no\ud83d"),
        (SystemExit([]), "SystemExit: an object"),
        (SystemExit(10**5000), f"SystemExit: {UNSAID}"),
        (Exits(), f"Exits: {UNSAID}"),
        (SyntaxError("no", ("f", 1, 1, 5)), f"SyntaxError: {UNSAID}"),
        (noted(), f"ValueError: {UNSAID}"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_exception_in_words(error: BaseException, words: str) -> None:
    assert in_words(error) == words


@pytest.mark.parametrize("kind", [SystemExit, ValueError])
def test_a_long_one_is_cut(kind: type[BaseException]) -> None:
    assert len(in_words(kind("A" * 10_000_000))) == LONGEST


def test_a_text_that_is_written_down_is_one_of_characters() -> None:
    assert written("é\udcff") == r"é\udcff"
