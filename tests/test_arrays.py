"""The comparison of two described pytrees: what differs, in which words; hostile bytes."""

import io
import pickle
from typing import Any

import numpy as np
import pytest

from grader.arrays import compare, dump, figures, load
from grader.checking import Failure
from grader.record import Leaf

FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3)


def leaf(value: Any, path: str = "", **changed: Any) -> Leaf:
    """A leaf as a worker describes it: "jax" for NumPy arrays, "python" for the rest."""
    plain = np.asarray(str(value) if value is None else value)
    is_array = isinstance(value, np.ndarray | np.generic)
    fields: dict[str, Any] = {
        "kind": "jax" if is_array else "python",
        "type": "jax.Array" if is_array else type(value).__name__,
        "shape": plain.shape,
        "dtype": str(plain.dtype),
        "platform": "cpu",
        "devices": (0,),
        "data": dump(plain),
    }
    return Leaf(path, **fields | changed)


def listed(*values: Any) -> list[Leaf]:
    """The leaves of a list."""
    return [leaf(value, f"[{index}]") for index, value in enumerate(values)]


def keyed(**values: Any) -> list[Leaf]:
    """The leaves of a dict."""
    return [leaf(value, f"['{key}']") for key, value in values.items()]


def difference(mine: list[Leaf], theirs: list[Leaf], *, rtol: float = 1e-5) -> Failure | None:
    """Compare under the name `x`; the structures as texts are made up from the paths."""
    trees = (f"PyTreeDef({[one.path for one in leaves]})" for leaves in (mine, theirs))
    mine_tree, their_tree = trees
    return compare("x", mine, theirs, mine_tree, their_tree, rtol=rtol, atol=1e-8)


def words(mine: list[Leaf], theirs: list[Leaf]) -> tuple[str, str]:
    """Expected and observed of a difference."""
    failure = difference(mine, theirs)
    assert failure is not None
    return failure.expected, failure.observed


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (FLOATS, FLOATS * (1 + 1e-7)),
        (np.float32(1), np.float32(1)),
        (np.array([np.nan, 1], np.float32), np.array([np.nan, 1], np.float32)),
        (np.array([True, False]), np.array([True, False])),
        (np.array([1 + 2j], np.complex64), np.array([1 + 2j], np.complex64)),
        (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)),
        (1.0, np.float32(1.0)),
        (None, None),
        ("adam", "adam"),
    ],
)
def test_equal_enough(mine: Any, theirs: Any) -> None:
    assert difference([leaf(mine)], [leaf(theirs)]) is None


def test_lists_of_different_length_are_told_by_their_lengths() -> None:
    assert words(listed(1.0), listed(1.0, 2.0, 3.0)) == ("`x` has 3 values", "1 value")
    assert words([], listed(1.0)) == ("`x` has 1 value", "0 values")


def test_trees_are_told_by_their_paths() -> None:
    both = keyed(w=1.0, b=2.0)
    assert words(keyed(w=1.0), both) == ("`x` has 2 values", "1 value, none at `['b']`")
    assert words(keyed(w=1.0, c=2.0), both) == (
        "`x` has 2 values",
        "2 values, none at `['b']`, but one at `['c']`",
    )
    many = keyed(**{f"w{index}": 1.0 for index in range(9)})
    assert words([], many)[1].endswith("`['w4']` and 4 more")


def test_a_single_value_is_no_list_of_one() -> None:
    failure = compare(
        "x", [leaf(1.0)], listed(1.0), "PyTreeDef(*)", "PyTreeDef([*])", rtol=0, atol=0
    )
    assert failure == Failure("`x` is a tree `[*]`", "a single value")


@pytest.mark.parametrize(
    ("mine", "theirs", "expected", "observed"),
    [
        (FLOATS.T, FLOATS, "`x` has shape (2, 3)", "shape (3, 2), cpu:0"),
        (FLOATS.astype("f2"), FLOATS, "`x` has dtype float32", "dtype float16"),
        (None, 1.0, "`x` is a Python float", "None"),
        ("1.0", 1.0, "`x` is a Python float", "a Python str"),
        (np.float32(1), None, "`x` is None", "an array float32[]"),
        ("a", "b", "`x` is 'b'", "'a'"),
        (1.5, 2.5, "`x` is 2.5", "1.5"),
        (
            FLOATS + np.array([0, 0, 1], np.float32),
            FLOATS,
            "`x` at [0, 2] is 2",
            "3, and 2 of 6 values differ",
        ),
        (FLOATS * np.nan, FLOATS, "`x` at [0, 0] is 0", "6 NaN of 6 values"),
        (np.float32("nan"), np.float32(1), "`x` is 1", "NaN"),
        (
            np.array([False]),
            np.array([True]),
            "`x` at [0] is True",
            "False, and 1 of 1 values differ",
        ),
    ],
)
def test_what_differs(mine: Any, theirs: Any, expected: str, observed: str) -> None:
    assert words([leaf(mine)], [leaf(theirs)]) == (expected, observed)


def test_the_first_leaf_that_differs_is_named() -> None:
    assert words(listed(1.0, 5.0, 6.0), listed(1.0, 2.0, 3.0)) == ("`x[1]` is 2", "5")


def test_a_nan_that_belongs_there_is_not_counted() -> None:
    mine, theirs = np.array([np.nan, 1], np.float32), np.array([np.nan, 2], np.float32)
    assert words([leaf(mine)], [leaf(theirs)]) == (
        "`x` at [1] is 2",
        "1, and 1 of 2 values differ",
    )


def test_numbers_are_shown_to_the_digit_that_differs() -> None:
    assert figures(1.0, 2.0) == ("1", "2")
    assert figures(1.0000001, 1.0000002) == ("1.0000001", "1.0000002")
    assert figures(12345678, 12345679) == ("12345678", "12345679")
    assert figures(1 + 2j, 1 + 3j) == ("1+2j", "1+3j")


def test_an_array_on_another_kind_of_host_is_compared_by_values() -> None:
    """Where an array lives is the business of the checks of placement."""
    assert difference([leaf(FLOATS, kind="numpy")], [leaf(FLOATS)]) is None


def test_objects_are_named_and_never_compared() -> None:
    other = Leaf("", "other", "AlwaysEqual")
    assert words([other], [leaf(FLOATS)]) == (
        "`x` is an array float32[2, 3]",
        "an object of type `AlwaysEqual`",
    )


def test_deleted_and_unkept_values() -> None:
    deleted = leaf(FLOATS, deleted=True, data=None)
    assert words([deleted], [leaf(FLOATS)]) == (
        "`x` can be read",
        "its buffer was donated or deleted",
    )
    assert words([leaf(FLOATS, data=None)], [leaf(FLOATS)])[1] == "its values could not be read"


def test_bfloat16_is_compared_as_it_is_kept() -> None:
    """Workers widen it to float32 for `.npy`; its name stays."""
    mine = leaf(FLOATS, dtype="bfloat16")
    assert difference([mine], [mine]) is None
    assert words([mine], [leaf(FLOATS)]) == ("`x` has dtype float32", "dtype bfloat16")


def test_bytes_come_back() -> None:
    assert (load(dump(FLOATS)) == FLOATS).all()


def _archive() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, FLOATS)
    return buffer.getvalue()


def _claims_too_much() -> bytes:
    return dump(np.zeros(3, np.uint8)).replace(b"(3,)", b"(9999999999999,)").ljust(200)


@pytest.mark.parametrize(
    "raw",
    [b"", b"\x93NUMPY", pickle.dumps(FLOATS), _archive(), _claims_too_much(), dump(FLOATS)[:-1]],
    ids=["empty", "cut", "pickle", "archive", "huge", "short"],
)
def test_hostile_bytes_are_a_failure_of_the_learner(raw: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (NumPy's own texts)
        load(raw)
    assert words([leaf(FLOATS, data=raw)], [leaf(FLOATS)])[1].startswith("unreadable values")


def test_values_of_another_shape_than_claimed() -> None:
    lying = leaf(FLOATS, data=dump(FLOATS.ravel()))
    assert words([lying], [leaf(FLOATS)]) == ("`x` has shape (2, 3)", "values of shape (6,)")
