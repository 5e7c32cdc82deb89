"""What was returned beside the reference's: kinds of nodes, and which device holds which part."""

import msgspec
import numpy as np
import pytest
from made_up import record

from grader.judging.arrays import dump
from grader.judging.checking import Failure
from grader.judging.results import differing_leaf, finite, other_parts, zeros_of_other_sign
from grader.records.record import Leaf, Observed, Outcome

ROWS = Leaf("", "jax", "jax.Array", (4, 2), parts={0: ((0, 2), (0, 2)), 1: ((2, 4), (0, 2))})


def test_the_same_parts() -> None:
    again = msgspec.json.decode(msgspec.json.encode(ROWS), type=Leaf)
    assert other_parts(again, ROWS) == ""


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            {0: ((2, 4), (0, 2)), 1: ((0, 2), (0, 2))},
            "device 0 holds [2:4, 0:2], not [0:2, 0:2]",
        ),
        ({0: ((0, 2), (0, 2))}, "device 1 holds nothing, not [2:4, 0:2]"),
        ({0: ((0, 2), (0, 2)), 1: ()}, "device 1 holds [], not [2:4, 0:2]"),
        ({}, "device 0 holds nothing, not [0:2, 0:2]"),
    ],
)
def test_parts_that_are_exchanged_or_gone(
    parts: dict[int, tuple[tuple[int, int], ...]], said: str
) -> None:
    assert other_parts(msgspec.structs.replace(ROWS, parts=parts), ROWS) == said


@pytest.mark.parametrize(("mine", "same"), [([1, -0.0], True), ([1, 0.0], False)])
def test_zeros_keep_their_signs(mine: list[float], same: bool) -> None:
    sides = [
        Observed(
            Outcome("finished"),
            {"w": [Leaf("", "jax", "jax.Array", (2,), "float32", data=dump(np.array(x, "f")))]},
        )
        for x in (mine, [1, -0.0])
    ]
    failure = zeros_of_other_sign(record(sides[0], reference=sides[1]), "w")
    assert (failure is None) == same


@pytest.mark.parametrize(
    ("mine", "said"),
    [([1, np.inf], ""), ([2, np.nan], ""), ([1, 3e38], "3e+38")],
)
def test_what_is_infinite_may_be_no_number_and_not_finite(mine: list[float], said: str) -> None:
    sides = [
        Observed(
            Outcome("finished"),
            {"w": [Leaf("", "jax", "jax.Array", (2,), "float32", data=dump(np.array(x, "f")))]},
        )
        for x in (mine, [1, np.inf])
    ]
    failure = finite(record(sides[0], reference=sides[1]), "w")
    assert (failure.observed if failure else "") == said


def observed(forms: list[str], path: str = "['w']") -> Observed:
    """A tree `params` of one leaf, made of these kinds of nodes."""
    leaves = [Leaf(path, "python", "float", data=b"1")]
    made = Observed(Outcome("finished"), {"params": leaves}, {"params": "PyTreeDef(*)"})
    made.forms = {"params": forms} if forms else {}
    return made


def compared(mine: Observed, theirs: Observed) -> Failure | None:
    """The failure of a submission's tree beside the reference's."""
    return differing_leaf(record(mine, reference=theirs), "params", rtol=0, atol=0)


def test_a_node_of_another_kind_is_a_failure_although_its_paths_are_the_same() -> None:
    theirs = observed(["mapping", "*"])
    assert compared(observed(["mapping", "*"]), theirs) is None
    failure = compared(observed(["submission.Lazy", "*"]), theirs)
    assert failure is not None
    assert failure.expected == "`params` holds a dict"
    assert failure.observed == "submission.Lazy stands there"


def test_a_tuple_in_place_of_a_dict_is_told_by_what_the_whole_is() -> None:
    failure = compared(observed(["sequence", "*"], "[0]"), observed(["mapping", "*"]))
    assert failure is not None
    assert failure.expected == "`params` is a dict of `w`"
    assert failure.observed == "it is a list or tuple"


def test_a_tuple_inside_is_told_by_where_its_value_stands() -> None:
    mine = observed(["mapping", "sequence", "*"], "['w'][0]")
    failure = compared(mine, observed(["mapping", "mapping", "*"], "['w']['b']"))
    assert failure is not None
    assert failure.expected == "`params` has `['w']['b']`"
    assert failure.observed == "`['w'][0]` stands in its place: a list or tuple, not a dict"


def test_a_tree_of_another_shape_is_described_by_its_paths() -> None:
    failure = compared(observed(["*"], ""), observed(["mapping", "*"]))
    assert failure is not None
    assert failure.observed == "it is a Python float"


def test_a_record_from_before_there_were_kinds_is_compared_by_paths() -> None:
    assert compared(observed([]), observed([])) is None
