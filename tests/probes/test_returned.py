"""Where in the learner's file a value was returned."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from grader.probes.returned import returned

SOURCE = """\
def outer(x):
    if x:
        return inner(x)
    other()


def inner(x):
    return [x]


def other():
    return 0


def raises(x):
    raise ValueError('no list')
"""


@pytest.fixture
def learner() -> dict[str, Callable[..., Any]]:
    found: dict[str, Any] = {}
    exec(compile(SOURCE, "learner.py", "exec"), found)
    return found


def test_the_line_is_that_of_the_last_return_or_of_the_first(
    learner: dict[str, Callable[..., Any]],
) -> None:
    assert returned(lambda: learner["outer"](1), "learner.py") == ([1], 3)
    assert returned(lambda: learner["outer"](1), "learner.py", []) == ([1], 8)
    assert returned(lambda: learner["outer"](1), "another.py") == ([1], 0)


def test_without_a_return_it_is_the_last_line_that_ran(
    learner: dict[str, Callable[..., Any]],
) -> None:
    assert returned(lambda: learner["outer"](0), "learner.py", []) == (None, 4)


def test_what_is_raised_gets_out_and_nobody_looks_on_after_it(
    learner: dict[str, Callable[..., Any]],
) -> None:
    with pytest.raises(ValueError, match="no list"):
        returned(lambda: learner["raises"](0), "learner.py")
    assert sys.getprofile() is None
