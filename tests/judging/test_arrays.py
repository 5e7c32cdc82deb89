"""The comparison of two described pytrees: which difference is reported, and in which words."""

import io
import pickle
from typing import Any

import numpy as np
import pytest

from grader.judging.arrays import FORM, ONE_OBJECT, compare, drifted, dump, figures, label, load
from grader.judging.checking import Failure
from grader.records.record import Leaf

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
    """Compare under the name `x`; the tree structures are made up from the paths."""
    return compare("x", mine, theirs, tree(mine), tree(theirs), rtol=rtol, atol=1e-8)


def tree(leaves: list[Leaf]) -> str:
    """A structure that is another where the paths are others."""
    return f"PyTreeDef({[leaf.path for leaf in leaves]})"


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


def test_lists_of_different_lengths_are_reported_by_their_lengths() -> None:
    assert words(listed(1.0), listed(1.0, 2.0, 3.0)) == (
        "`x` has 3 values",
        "1 value: the last 2 are missing",
    )
    assert words([], listed(1.0)) == ("`x` has 1 value", "0 values")


def test_a_list_of_trees_says_which_of_its_entries_it_lacks() -> None:
    entries = [{"loss": 1.0 / n, "worst": 5.0 * n} for n in range(1, 5)]

    def of(some: list[dict[str, float]]) -> list[Leaf]:
        return [leaf(v, f"[{n}]['{key}']") for n, one in enumerate(some) for key, v in one.items()]

    lacking = words(of(entries[1:]), of(entries))
    assert lacking == ("`x` is 4 values", "it is 3 values: the first is missing")
    other = [entries[0] | {"worst": 7.0}, *entries[1:3]]
    assert words(of(other), of(entries))[1] == "it is 3 values", "only one of its parts says so"


def test_trees_are_reported_by_their_paths() -> None:
    both = keyed(w=1.0, b=2.0)
    lacking = ("`x` is a dict of `w`, `b`", "it is a dict of `w`, without `b`")
    assert words(keyed(w=1.0), both) == lacking
    nested = [leaf(1.0, "['w']['b']")]
    assert words([leaf(1.0, "['w']['c']")], nested) == (
        "`x` has `['w']['b']`",
        "it has no `['w']['b']`; it has `['w']['c']`, for which nobody asked",
    )
    pair = [leaf(1.0, "[0]['w']"), leaf(2.0, "[1].mu")]
    turned = [leaf(2.0, "[0].mu"), leaf(1.0, "[1]['w']")]
    assert words(turned, pair)[1] == "`[0]` and `[1]` are exchanged"
    assert words(listed(1.0, 2.0), [leaf(FLOATS)]) == (
        "`x` is one array float32[2, 3]",
        "it is 2 values",
    )
    assert words([leaf(1.0, "[0][0]"), leaf(2.0, "[0][1]")], listed(1.0)) == (
        "`x[0]` is a Python float",
        "it is 2 values",
    )
    many = keyed(**{f"w{index}": 1.0 for index in range(9)})
    assert words([], many)[1].endswith("`['w4']` and 4 more")


def test_a_value_has_the_name_that_python_would_give_it() -> None:
    assert label("losses of the first run", "[0]") == "`losses[0]` of the first run"
    assert label("params and state after 3 steps", "[1]['b']") == "`state['b']` after 3 steps"
    assert label("params after step 1 of run 0", "['b']") == "`params['b']` after step 1 of run 0"
    assert label("step(...)", "[1]") == "`step(...)[1]`"


def test_values_in_each_others_place_are_named() -> None:
    mine, theirs = keyed(a=FLOATS, b=FLOATS * 2), keyed(a=FLOATS * 2, b=FLOATS)
    assert words(mine, theirs)[1].endswith("`['a']` and `['b']` are exchanged")
    failure = difference(mine, theirs)
    assert failure is not None
    assert failure.hint == FORM, "a hint about numbers does not help"
    ones = FLOATS * 0 + 1
    assert words(keyed(a=ones, b=FLOATS * 0), keyed(a=FLOATS * 0, b=ones))[1].endswith("exchanged")
    assert words(keyed(a=ones, b=ones), keyed(a=FLOATS * 0, b=ones))[1].endswith("values differ")


def test_a_single_value_is_not_a_list_of_one() -> None:
    failure = compare(
        "x", [leaf(1.0)], listed(1.0), "PyTreeDef(*)", "PyTreeDef([*])", rtol=0, atol=0
    )
    assert failure == Failure("`x` is a list or tuple of 1 value", "it is a Python float", (), FORM)


@pytest.mark.parametrize(
    ("mine", "theirs", "expected", "observed"),
    [
        (FLOATS.T, FLOATS, "`x` has shape (2, 3)", "shape (3, 2), cpu:0: it is transposed"),
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
            "False",
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


def test_a_numpy_array_and_a_jax_array_are_compared_by_their_values() -> None:
    """Other checks judge where an array lives."""
    assert difference([leaf(FLOATS, kind="numpy")], [leaf(FLOATS)]) is None


def test_objects_are_named_and_never_compared() -> None:
    other = Leaf("", "other", "AlwaysEqual")
    assert words([other], [leaf(FLOATS)]) == (
        "`x` is an array float32[2, 3]",
        "an object of type `AlwaysEqual`",
    )


def test_values_that_were_deleted_or_not_kept() -> None:
    deleted = leaf(FLOATS, deleted=True, data=None)
    assert words([deleted], [leaf(FLOATS)]) == (
        "`x` can be read",
        "its buffer was donated or deleted",
    )
    assert words([leaf(FLOATS, data=None)], [leaf(FLOATS)])[1] == "its values could not be read"


def test_bfloat16_is_compared_in_the_float32_it_is_kept_in() -> None:
    """Workers widen it to float32 for `.npy`, and keep the name of the dtype."""
    mine = leaf(FLOATS, dtype="bfloat16")
    assert difference([mine], [mine]) is None
    assert words([mine], [leaf(FLOATS)]) == ("`x` has dtype float32", "dtype bfloat16")


def test_load_reads_what_dump_wrote() -> None:
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


def test_copies_that_differ_are_no_value_although_the_first_one_is_right() -> None:
    expected, observed = words([leaf(FLOATS, unlike=(3, 0.25))], [leaf(FLOATS)])
    assert expected == "`x` is the same on all devices that hold it"
    assert observed == "device 3 holds other numbers; they differ by up to 0.25"
    on_cpu, on_gpu = (leaf(FLOATS, unlike=(3, 1e-7), platform=name) for name in ("cpu", "gpu"))
    assert difference([on_gpu], [leaf(FLOATS)]) is None, "a GPU may round each in its own way"
    assert [drifted(one) for one in (on_cpu, on_gpu, leaf(FLOATS))] == [True, False, False]


def test_a_part_without_any_array_is_named() -> None:
    theirs = [*listed(FLOATS), leaf(FLOATS, "[1]['a']"), leaf(1.0, "[2]")]
    mine = [theirs[0], theirs[2]]
    assert words(mine, theirs) == (
        "`x[1]` is a dict of `a`",
        "it holds nothing: is it empty, or None?",
    )
    assert words(mine[:1], theirs)[1] != words(mine, theirs)[1], "too few parts"


def test_a_change_that_was_not_added_is_named() -> None:
    old, change = 10 * FLOATS, FLOATS - 2
    mine, theirs = keyed(w=change), keyed(w=old + change)
    given = [leaf(FLOATS), leaf(old)]
    found = compare("x", mine, theirs, "", "", rtol=1e-5, atol=1e-8, before=given)
    assert found is not None
    assert found.observed == "-1: it is the change alone, without what went in"
    other = compare("x", mine, theirs, "", "", rtol=1e-5, atol=1e-8, before=given[:1])
    assert other is not None
    assert "alone" not in other.observed


def test_one_object_put_in_a_list_each_time_is_named() -> None:
    def rows(*losses: float) -> list[Leaf]:
        named = enumerate(losses)
        return [
            leaf(x, f"[{n}]['{key}']") for n, loss in named for key, x in (("a", loss), ("b", 2.5))
        ]

    observed = words(rows(4.5, 4.5, 4.5), rows(6.5, 5.5, 4.5))[1]
    assert observed == f"4.5: {ONE_OBJECT}"
    assert ONE_OBJECT not in words(rows(4.5, 4.5, 3.5), rows(6.5, 5.5, 4.5))[1]
    constant = words(rows(4.5, 4.5, 4.5), rows(6.5, 6.5, 6.5))[1]
    assert ONE_OBJECT not in constant, "they should all be the same"
