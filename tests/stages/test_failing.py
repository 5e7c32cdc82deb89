"""An error that is raised on purpose, and whether a loop hides it."""

from collections.abc import Iterator
from typing import Any

import pytest

from grader.stages.failing import Failed, failing_at_second, hidden, returns


def honest(step: Any, batches: Iterator[Any]) -> list[Any]:
    return [step(batch) for batch in batches]


def skips_failed_steps(step: Any, batches: Iterator[Any]) -> list[Any]:
    done = []
    for batch in batches:
        try:
            done.append(step(batch))
        except FloatingPointError:
            continue
    return done


def ends_with_the_batches(step: Any, batches: Iterator[Any]) -> list[Any]:
    done = []
    while True:
        try:
            batch = next(batches)
        except (OSError, StopIteration):
            return done
        done.append(step(batch))


@pytest.mark.parametrize(
    ("train", "found"),
    [(honest, []), (skips_failed_steps, ["step"]), (ends_with_the_batches, ["batches"])],
)
def test_what_a_loop_hides_is_named(train: Any, found: list[str]) -> None:
    assert hidden(train, abs, [1, 2, 3]) == found


def test_the_second_call_alone_fails() -> None:
    step = failing_at_second(abs)
    assert step(-1) == 1
    with pytest.raises(Failed):
        step(-2)
    assert step(-3) == 3


@pytest.mark.parametrize("handler", [FloatingPointError, OSError, RuntimeError, ValueError])
def test_each_usual_handler_catches_it(handler: type[Exception]) -> None:
    def run() -> None:
        try:
            raise Failed
        except handler:
            return

    assert returns(run)
