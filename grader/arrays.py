"""Arrays in records: `.npy` bytes in, comparison out.

NumPy only, and imported late: the CLI starts without it. Expected values come from the
reference's worker, observed ones from the learner's; neither is trusted to load.
"""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from grader.checking import Failure
from grader.record import Leaf
from grader.words import plural, where

MAX_PATHS = 5

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def load(data: bytes) -> "NDArray[np.generic]":
    """Read one `.npy`; never unpickles, never opens an archive.

    Raises:
      ValueError: not a plain array, or its header promises more than can be had.
    """
    from numpy.lib import format as npy

    try:
        array: NDArray[np.generic] = npy.read_array(io.BytesIO(data), allow_pickle=False)
    except (EOFError, MemoryError, OverflowError, TypeError) as error:
        raise ValueError(str(error)) from error
    return array


def dump(array: "NDArray[np.generic]") -> bytes:
    """Write one plain array as `.npy`."""
    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def compare(
    name: str,
    mine: Sequence[Leaf],
    theirs: Sequence[Leaf],
    my_tree: str,
    their_tree: str,
    *,
    rtol: float,
    atol: float,
) -> Failure | None:
    """The first difference between two described pytrees, None when there is none."""
    if [leaf.path for leaf in mine] != [leaf.path for leaf in theirs]:
        return _structure_failure(name, mine, theirs, my_tree, their_tree)
    for leaf, want in zip(mine, theirs, strict=True):
        failure = _compare_leaf(f"`{name}{leaf.path}`", leaf, want, rtol, atol)
        if failure:
            return failure
    return None


def _structure_failure(
    name: str, mine: Sequence[Leaf], theirs: Sequence[Leaf], my_tree: str, their_tree: str
) -> Failure:
    """Say it by numbers where both are one list or tuple, else by paths."""
    if _is_flat(mine) and _is_flat(theirs):
        return Failure(f"`{name}` has {plural(len(theirs), 'value')}", plural(len(mine), "value"))
    got, want = [leaf.path for leaf in mine], [leaf.path for leaf in theirs]
    missing = [path for path in want if path not in got]
    surplus = [path for path in got if path not in want]
    if not (missing or surplus) or "" in (*missing, *surplus):
        return Failure(f"`{name}` is a {_tree(their_tree)}", f"a {_tree(my_tree)}")
    observed = plural(len(got), "value")
    observed += f", none at {_paths(missing)}" if missing else ""
    observed += f", but one at {_paths(surplus)}" if surplus else ""
    return Failure(f"`{name}` has {plural(len(want), 'value')}", observed)


def _is_flat(leaves: Sequence[Leaf]) -> bool:
    return [leaf.path for leaf in leaves] == [f"[{index}]" for index in range(len(leaves))]


def _paths(paths: Sequence[str]) -> str:
    shown = ", ".join(f"`{path}`" for path in paths[:MAX_PATHS])
    return shown + (f" and {len(paths) - MAX_PATHS} more" if len(paths) > MAX_PATHS else "")


def _tree(text: str) -> str:
    """The structure without JAX's word for it: a single value, or `{'a': *, 'b': *}`."""
    inner = text.removeprefix("PyTreeDef(").removesuffix(")")
    return "single value" if inner == "*" else f"tree `{inner}`"


def _compare_leaf(name: str, leaf: Leaf, want: Leaf, rtol: float, atol: float) -> Failure | None:
    if leaf.kind == "other" or _is_word(leaf) != _is_word(want):
        return Failure(f"{name} is {_what(want)}", _what(leaf))
    if leaf.deleted:
        return Failure(f"{name} can be read", "its buffer was donated or deleted")
    if leaf.shape != want.shape:
        return Failure(f"{name} has shape {want.shape}", f"shape {leaf.shape}, {where(leaf)}")
    if leaf.kind != "python" and want.kind != "python" and leaf.dtype != want.dtype:
        return Failure(f"{name} has dtype {want.dtype}", f"dtype {leaf.dtype}")
    return _compare_values(name, leaf, want, rtol, atol)


def _is_word(leaf: Leaf) -> bool:
    """A text or None: no number to compare with."""
    return leaf.kind == "python" and leaf.type in ("str", "NoneType")


def _what(leaf: Leaf) -> str:
    if leaf.kind == "other":
        return f"an object of type `{leaf.type}`"
    if leaf.kind == "python":
        return "None" if leaf.type == "NoneType" else f"a Python {leaf.type}"
    return f"an array {leaf.dtype}{list(leaf.shape)}"


def _compare_values(name: str, leaf: Leaf, want: Leaf, rtol: float, atol: float) -> Failure | None:
    import numpy as np

    if leaf.data is None or want.data is None:
        return Failure(f"{name} has values", "its values could not be read")
    try:
        got, expected = load(leaf.data), load(want.data)
    except ValueError as error:
        return Failure(f"{name} is a plain array", f"unreadable values ({error})")
    if got.shape != want.shape:
        return Failure(f"{name} has shape {want.shape}", f"values of shape {got.shape}")
    if got.dtype.kind not in "biufc" or expected.dtype.kind not in "biufc":
        same = bool(np.array_equal(got, expected))
        return None if same else Failure(f"{name} is {expected.tolist()!r}", repr(got.tolist()))
    close = np.isclose(got, expected, rtol=rtol, atol=atol, equal_nan=True)
    return None if close.all() else _value_failure(name, got, expected, ~close)


def _value_failure(
    name: str,
    got: "NDArray[np.generic]",
    expected: "NDArray[np.generic]",
    wrong: "NDArray[np.bool_]",
) -> Failure:
    import numpy as np

    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = f"{name} at [{', '.join(map(str, index))}]" if index else name
    wanted, observed = figures(expected[index].item(), got[index].item())
    if nan := int((np.isnan(got) & wrong).sum()):
        observed = f"{nan} NaN of {plural(wrong.size, 'value')}" if index else "NaN"
    elif index:
        observed += f", and {int(wrong.sum())} of {wrong.size} values differ"
    return Failure(f"{place} is {wanted}", observed)


def figures(expected: complex, observed: complex) -> tuple[str, str]:
    """Two numbers as short texts that differ."""
    if isinstance(expected, int) and isinstance(observed, int):  # bool too
        return str(expected), str(observed)
    for digits in range(6, 17):
        texts = f"{expected:.{digits}g}", f"{observed:.{digits}g}"
        if texts[0] != texts[1]:
            return texts
    return repr(expected), repr(observed)
