"""What a drive says of a learner's values that are not of the form it needs."""

import numpy as np
import pytest

from grader.probes.observe import Misused, from_last, lacking, same_tree

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


def test_a_tree_of_another_structure_is_told_by_its_first_part_that_is_something_else() -> None:
    def said(tree: object) -> tuple[str, str]:
        with pytest.raises(Misused) as raised:
            same_tree(PROMISE, "params", OLD, tree)
        return raised.value.expected, raised.value.observed

    same_tree(PROMISE, "params", OLD, {"w": 1, "b": 2})
    assert said({"b": 1}) == (PROMISE, "it has no `params['w']`")
    assert said(OLD | {"c": 1}) == (PROMISE, "it has `params['c']`")
    alone = "it is a list of the 2 arrays of `params`, without the tree around them"
    assert said([1, 2]) == (PROMISE, alone)
    assert said([1]) == (PROMISE, "`params` is a list, where a dict is expected")
    assert said(OLD | {"b": None}) == (PROMISE, "`params['b']` is None, where an array is expected")
    with pytest.raises(Misused) as raised:
        same_tree(PROMISE, "pair", (1, {"a": (2, 3)}), (1, {"a": [2, 3]}))
    assert raised.value.observed == "`pair[1]['a']` is a list, where a tuple is expected"
