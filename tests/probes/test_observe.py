"""What a drive says of a learner's values that are not of the form it needs."""

import numpy as np
import pytest

from grader.probes.observe import Misused, from_last, lacking

OLD = {"b": np.zeros(3), "w": np.zeros((2, 3))}
PROMISE = "`step` returns (params, loss)"


def said(new: object) -> str:
    """What is said where a step cannot go on with `new`."""
    with pytest.raises(Misused) as raised, from_last("params", OLD, new, PROMISE):
        raise ValueError("Incompatible shapes")
    assert raised.value.expected == PROMISE
    return raised.value.observed


def test_a_step_that_cannot_go_on_is_told_by_what_it_was_given() -> None:
    assert said(np.zeros(3)) == "the first value that it returned is not a tree like `params`"
    assert said(OLD | {"b": np.zeros((8, 3))}) == (
        "the new `params['b']` has shape (8, 3), and the old one (3,)"
    )


def test_an_error_of_a_step_that_was_given_what_it_needs_is_its_own() -> None:
    with pytest.raises(ValueError, match="Incompatible"), from_last("params", OLD, OLD, PROMISE):
        raise ValueError("Incompatible shapes")
    with from_last("params", OLD, np.zeros(3), PROMISE):
        pass  # nothing is said of a form that does no harm


def test_the_first_array_without_a_value_is_named() -> None:
    assert lacking("state", OLD, {"b": 1, "w": None}) == ", without one for `state['w']`"
    assert lacking("state", OLD, {"b": 1, "w": 2}) == ""
