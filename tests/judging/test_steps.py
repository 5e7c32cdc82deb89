"""Steps of training beside the reference's: how far they go, and what may not vanish."""

import numpy as np
import pytest

from grader.judging.arrays import dump
from grader.judging.checking import Failure
from grader.judging.steps import other_change, other_moment, step_along
from grader.records.record import Leaf


def test_what_stands_across_a_step_makes_it_no_longer() -> None:
    def leaves(*values: float) -> list[Leaf]:
        return [Leaf("", "jax", "jax.Array", (2,), "float32", data=dump(np.array(values)))]

    assert step_along(leaves(1, 1), leaves(3, 1.5), leaves(3, 1)) == pytest.approx(1)
    assert step_along(leaves(1, 1), leaves(4, 1), leaves(3, 1)) == pytest.approx(1.5)


def leaf(*values: float) -> Leaf:
    return Leaf("['w']", "jax", "jax.Array", (3,), "float32", data=dump(np.array(values)))


def test_a_second_moment_that_vanishes_is_found_however_small_it_is() -> None:
    right = leaf(1.0, 4e-9, 1e-13)
    assert other_moment("state", [(leaf(1.00001, 4e-9, 0), right)], 2) is None
    found = other_moment("state", [(leaf(1.0, 0, 1e-13), right)], 2)
    assert found is not None
    assert found.expected == "the second moment `state['w']` at [1] is 4e-09"
    assert found.observed == "0, and 1 of 3 values differ"
    assert other_moment("state", [(leaf(1.0, float("nan"), 0), right)], 2)
    assert other_moment("state", [(leaf(1.00001, 4e-9, 0), right)], 1) is None
    assert other_moment("state", [(leaf(1.0001, 4e-9, 0), right)], 1)


def test_a_change_is_judged_by_the_largest_and_by_what_float32_rounds() -> None:
    old, right = leaf(1.0, 2.0, 0.0), leaf(0.9, 2.000001, 0.01)

    def other(*new: float, start: Leaf = old) -> Failure | None:
        return other_change(([start], [leaf(*new)]), ([old], [right]))

    assert other(0.900001, 2.0000005, 0.010001) is None
    assert other(0.9001, 2.000001, 0.01)
    assert other(0.900001, 2.000001, 0.010001, start=leaf(1.000001, 2, 1e-6)) is None
    small = other_change(([old], [old]), ([old], [leaf(1.000003, 2.0, 0.0)]))
    assert small is not None
    assert small.expected == "a step changes `params['w']` at [0] by 3e-06"
    assert other(0.9, float("nan"), 0.01)
