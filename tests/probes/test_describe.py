"""Trees taken apart and described: exact types, keys and nodes that only look like others."""

import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from grader.probes.describe import DEEPEST, describe, flatten, leaves_of
from grader.probes.observe import Misused, unpack
from grader.probes.plain import plain
from grader.records.record import Leaf


class Text(str):
    """A text that is not exactly one, and shows itself as if it were."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{str(self)!r}"


class Float(np.float32):
    """A number that says it is NumPy's."""


Float.__module__ = "numpy"


class Shy(int):
    """A number with methods of its own."""

    def __index__(self) -> int:
        raise AssertionError("its own method was called")

    __int__ = __float__ = __index__  # type: ignore[assignment]


class Pair(NamedTuple):
    """A named tuple."""

    a: int
    b: int


@jax.tree_util.register_pytree_with_keys_class
class Node:
    """A node whose leaf has the path of a dict's."""

    def tree_flatten_with_keys(self) -> tuple[Any, None]:
        return ((jax.tree_util.DictKey("w"), 1.0),), None

    @classmethod
    def tree_unflatten(cls, _: None, __: Any) -> "Node":
        return cls()


TREES = (
    {"a": [1, (2, None)], "b": {"c": 3.0}},
    OrderedDict(x=1, y=[2]),
    [Pair(1, 2), {"a": Pair(3, 4)}],
    {0: "a", 1: "b"},
    np.ones(2),
    [],
)


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_paths_of_plain_trees_are_those_of_jax(tree: Any) -> None:
    found, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: x is None)
    paths = [path for path, _ in flatten(tree).leaves]
    assert paths == [jax.tree_util.keystr(path) for path, _ in found]


def test_a_key_that_only_looks_like_another_has_a_path_of_its_own() -> None:
    (path, _), *_ = flatten({Text("w"): 1}).leaves
    assert path == "[a key of type Text]"
    (path, _), *_ = flatten({np.int64(0): 1}).leaves
    assert path == "[a key of type int64]"


def test_nodes_are_told_apart_although_their_paths_are_the_same() -> None:
    mine, plain_dict = flatten(Node()), flatten({"w": 1.0})
    assert mine.leaves == plain_dict.leaves
    assert plain_dict.forms == ["mapping", "*"]
    assert mine.forms == [f"{__name__}.Node", "*"]
    assert flatten({0: 1}).leaves == flatten([1]).leaves
    assert flatten({0: 1}).forms != flatten([1]).forms


def test_lists_and_tuples_are_alike_and_so_are_dicts() -> None:
    assert flatten([1, 2]).forms == flatten((1, 2)).forms == ["sequence", "*", "*"]
    assert flatten({"a": 1}).forms == flatten(OrderedDict(a=1)).forms
    assert flatten(Pair(1, 2)).forms == [f"{__name__}.Pair", "*", "*"]


def test_a_class_that_its_module_does_not_hold_is_not_taken_for_its_namesake() -> None:
    class Pair(NamedTuple):
        a: int
        b: int

    Pair.__module__, Pair.__qualname__ = __name__, "Pair"
    assert flatten(Pair(1, 2)).forms[0] == "a class `Pair`"


def test_leaves_are_looked_into_only_if_their_types_are_exact() -> None:
    leaves, _ = describe([Float(1), Shy(1), Text("a"), np.float32(1), 1, "a", True])
    assert [leaf.kind for leaf in leaves] == ["other"] * 3 + ["numpy"] + ["python"] * 3


def test_flattening_happens_once() -> None:
    counts = []

    @jax.tree_util.register_pytree_node_class
    class Counting:
        def tree_flatten(self) -> tuple[Any, None]:
            counts.append(1)
            return (1.0,), None

        @classmethod
        def tree_unflatten(cls, _: None, __: Any) -> "Counting":
            return cls()

    flat = flatten(Counting())
    leaves_of(flat)
    leaves_of(flat)
    assert counts == [1]


def test_a_long_structure_is_cut_in_messages_only() -> None:
    flat = flatten([0] * 5000)
    assert len(flat.text) == 4000
    assert len(flat.forms) == 5001


def leaf_of(array: Any) -> Leaf:
    """An array as a leaf."""
    (leaf,), _ = describe(array)
    return leaf


def test_one_device_holds_everything() -> None:
    assert leaf_of(jnp.ones((4, 2))).parts == {}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": (1, [2.5, None, "x", True])}, {"a": [1, [2.5, None, "x", True]]}),
        ([np.int64(3), np.float32(0.5), np.bool_(True)], [3, 0.5, True]),
        (Pair(1, 2), [1, 2]),
        (1j, "an object of type `complex`"),
        ([Shy(1), Float(1)], ["an object of type `Shy`", "an object of type `Float`"]),
        ({"a": object()}, {"a": "an object of type `object`"}),
        ({object(): 1}, {"an object of type `object`": 1}),
        ([float("nan"), float("inf")], [None, None]),
        (np.ones(2), "an object of type `ndarray`"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_facts_become_plain(value: Any, expected: Any) -> None:
    written = msgspec.json.encode(plain(value))
    assert json.loads(written) == expected
    assert written == msgspec.json.encode(expected)


def circle() -> list[Any]:
    """A list that holds itself."""
    made: list[Any] = []
    made.append(made)
    return made


def in_others(made: Any, depth: int) -> Any:
    """A value in so many lists, tuples and dicts."""
    for level in range(depth):
        made = ([made], (made,), {"a": made}, OrderedDict(a=made), Pair(1, made))[level % 5]
    return made


def circle_of_a_tuple() -> Any:
    made: list[Any] = []
    made.append(Pair(1, {"a": made}))
    return made


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (circle, "a list in it contains itself"),
        (circle_of_a_tuple, "a list in it contains itself"),
        (lambda: in_others(1, 100_000), "more than 100 lists, tuples or dicts"),
    ],
)
def test_a_tree_without_end_is_not_given_to_jax(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(Misused, match=words):
        flatten(make())


class Posing:
    """An object that says it is a tuple."""

    __class__ = tuple  # type: ignore[assignment]


def test_one_of_some_depth_or_that_holds_a_thing_twice_is() -> None:
    one = [1.0]
    assert len(flatten([one, {"a": one}, Posing()]).leaves) == 3
    assert len(flatten(in_others(1.0, DEEPEST)).leaves) == 1 + DEEPEST // 5


@pytest.mark.parametrize("make", [circle, lambda: "\ud800"])
def test_facts_that_cannot_be_written_down_are_said_to_be_so(make: Callable[[], Any]) -> None:
    assert plain(make()).startswith("something that cannot be written down")


class Liar(list[int]):
    """A list that lies about what it holds."""

    def __iter__(self) -> Any:
        return iter((7, 8))

    def __len__(self) -> int:
        return 2


def test_a_tuple_is_unpacked_whatever_it_says_of_itself() -> None:
    assert unpack((1, 2), 2, "two") == (1, 2)
    assert unpack(Pair(1, 2), 2, "two") == (1, 2)
    assert unpack(Liar([3, 4]), 2, "two") == (3, 4)
    with pytest.raises(Misused, match="it returned 3 values, not 2"):
        unpack(Liar([3, 4, 5]), 2, "two")
    with pytest.raises(Misused, match="it returned a str"):
        unpack("ab", 2, "two")
