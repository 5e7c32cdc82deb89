"""The staged surroundings of a training loop: every call is written down, in order."""

import contextlib
from typing import Any

import numpy as np
import pytest

from grader.judging.loops import indices
from grader.stages.loop import Book, odd_losses


class Marks:
    """Counts marks, as an observer does."""

    def __init__(self) -> None:
        self.count = 0

    def mark(self) -> None:
        self.count += 1


def test_a_book_knows_which_batch_is_which() -> None:
    marks: Any = Marks()
    batches = [(np.float32([[0.0]]), 7), (np.float32([1.0]), 8)]
    book = Book(marks, batches, lambda params, batch: (params, batch[1]), list)
    first = book.put(book.ask(0).result())
    assert book.step("params", first) == ("params", 7)
    book.step("params", batches[1])  # never put
    book.put((np.float32([1.5]), 8))  # not a batch that was read
    assert book.stopping(0)(0.5)
    assert book.calls == [
        ("ask", 0),
        ("wait", 0),
        ("put", 0),
        ("step", 0),
        ("step", -1),
        ("put", -1),
        ("stop", 0),
    ]
    assert marks.count == len(book.calls)
    assert indices(book.calls, "step") == [0, -1]
    assert list(book.reads()) == batches


def test_a_batch_is_known_by_its_arrays_and_an_argument_by_its_name() -> None:
    marks: Any = Marks()
    batches = [(np.float32([0.0]), np.float32([1.0])), (np.float32([2.0]), np.float32([3.0]))]
    book = Book(marks, batches, lambda params, batch: (params, batch[0]), tuple)
    read = book.ask(i=np.int64(1)).result()
    placed = book.put(batch=[read[0], read[1].copy()])
    book.step(batch=[placed[0], placed[1]], params="params")
    book.step("params", (placed[0], placed[1].copy()))  # one array is not what `put` returned
    assert book.calls == [("ask", 1), ("wait", 1), ("put", 1), ("step", 1), ("step", -1)]


@pytest.mark.parametrize("asked", [-1, 2, 1.0, "1"])
def test_a_batch_that_is_not_there_is_refused(asked: Any) -> None:
    marks: Any = Marks()
    book = Book(marks, [1, 2], lambda batch: batch, list)
    with pytest.raises((IndexError, TypeError)):
        book.ask(asked)


def test_a_step_without_its_batch_is_refused() -> None:
    marks: Any = Marks()
    book = Book(marks, [1], lambda params, batch: (params, batch), list)
    with pytest.raises(TypeError, match="missing a required argument: 'batch'"):
        book.step(params=1)


class Noting(Marks):
    """Keeps facts, too."""

    def __init__(self) -> None:
        super().__init__()
        self.facts: dict[str, Any] = {}

    def fact(self, name: str, value: Any) -> None:
        self.facts[name] = value

    def unwatched(self) -> Any:
        return contextlib.nullcontext()


def test_what_is_alive_is_counted_as_each_step_begins() -> None:
    marks: Any = Noting()
    counts = iter([100, 107, 103])
    book = Book(marks, [1, 2], lambda params, batch: (params, batch), list, lambda: next(counts))
    for batch in (1, 2):
        book.step("params", batch)
    book.keep("run")
    assert marks.facts["alive in run"] == [7, 3]


class Params:
    """What can be deleted, as an array of JAX."""

    def is_deleted(self) -> bool:
        return False


@pytest.mark.parametrize(("kept", "aged"), [(-1, []), (0, []), (1, [(3, 1), (4, 1)]), (3, [])])
def test_what_a_step_before_the_last_one_was_given_is_noted(
    kept: int, aged: list[tuple[int, int]]
) -> None:
    marks: Any = Noting()
    book = Book(marks, list(range(5)), lambda params, batch: ({"w": [Params()]}, 0.0), list)
    params, held = {"w": [Params()]}, []
    for step in range(5):
        held += [params] * (step == kept)
        params, _ = book.step(params, step)
    book.keep("run")
    assert marks.facts["aged in run"] == aged


def test_many_steps_have_odd_losses_and_several_in_a_row_are_none() -> None:
    for seed in range(20):
        steps = 16 + seed
        odd = odd_losses(np.random.default_rng(seed), steps)
        lost = [step for step, factor in odd.items() if np.isnan(factor)]
        assert 0 not in odd
        assert max(odd) < steps
        assert any(step + 1 in lost for step in lost)
    assert odd_losses(np.random.default_rng(0), 15) == {}


@pytest.mark.parametrize(("last", "kind"), [(0, bool), (1, np.bool_)])
def test_a_loop_is_told_to_stop_by_bools_of_both_kinds(last: int, kind: type) -> None:
    marks: Any = Marks()
    book = Book(marks, [(np.float32([0.0]), 7)], lambda params, batch: (params, batch[1]), list)
    book.step("params", book.put(book.ask(0).result()))
    answer = book.stopping(last)(0.5)
    assert type(answer) is kind
    assert bool(answer) is (last == 0)
