"""Exceptions and structures in plain words."""

import pytest

from grader.judging.said import MAX_LINES, in_words, without_treedefs


def test_an_exception_that_says_what_is_wrong_is_left_as_it_is() -> None:
    assert in_words("ValueError: no batch is good enough") == "ValueError: no batch is good enough"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("ValueError: Non-hashable static arguments are used: [[1\n2]]", "`static_argnums` is not"),
        (
            "TypeError: scan body function carry input and carry output must have equal types:",
            "the body of a loop",
        ),
        ("RuntimeError: Array has been deleted with shape=float32[4].", "donated or deleted"),
        ("TypeError: 'NoneType' object is not iterable", "a value is None"),
        (
            "ValueError: Received incompatible devices for jitted computation. Got x",
            "on different devices",
        ),
    ],
)
def test_others_get_plain_words_first(message: str, words: str) -> None:
    first, *rest = in_words(message).splitlines()
    assert words in first
    assert rest == message.splitlines()


def test_of_a_long_exception_the_beginning_is_repeated() -> None:
    lines = in_words("ValueError: Non-hashable static arguments\n" + "1.5\n" * 60).splitlines()
    assert len(lines) == MAX_LINES + 2
    assert lines[-1] == "..."


def test_a_structure_is_written_as_python_would() -> None:
    adam = "CustomNode(namedtuple[Adam], [*, {'w': *}])"
    text = f"a tree, PyTreeDef({{'a': ({adam}, CustomNode(namedtuple[Empty], []))}}), and more"
    assert without_treedefs(text) == "a tree, {'a': (Adam(*, {'w': *}), Empty())}, and more"
    assert without_treedefs("PyTreeDef(*") == "*"
