"""Arrays in records: `.npy` bytes in, comparison out.

NumPy only, and imported late: the CLI starts without it. Expected values come from the
reference's worker, observed ones from the learner's; neither is trusted to load.
"""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from grader.checking import Failure, where
from grader.record import Leaf

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def load(data: bytes) -> "NDArray[np.generic]":
    """Read one `.npy`; never unpickles.

    Raises:
      ValueError: not a plain array.
    """
    import numpy as np

    array: NDArray[np.generic] = np.load(io.BytesIO(data), allow_pickle=False)
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
        return Failure(f"`{name}` has the structure {their_tree}", f"the structure {my_tree}")
    for leaf, want in zip(mine, theirs, strict=True):
        failure = _compare_leaf(f"`{name}{leaf.path}`", leaf, want, rtol, atol)
        if failure:
            return failure
    return None


def _compare_leaf(name: str, leaf: Leaf, want: Leaf, rtol: float, atol: float) -> Failure | None:
    if leaf.kind == "other":
        return Failure(f"{name} is {_what(want)}", f"an object of type `{leaf.type}`")
    if leaf.deleted:
        return Failure(f"{name} can be read", "its buffer was donated or deleted")
    if leaf.shape != want.shape:
        return Failure(f"{name} has shape {want.shape}", f"shape {leaf.shape}, {where(leaf)}")
    if leaf.kind != "python" and want.kind != "python" and leaf.dtype != want.dtype:
        return Failure(f"{name} has dtype {want.dtype}", f"dtype {leaf.dtype}")
    return _compare_values(name, leaf, want, rtol, atol)


def _what(leaf: Leaf) -> str:
    return f"an array {leaf.dtype}{list(leaf.shape)}" if leaf.kind != "python" else leaf.type


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
    if close.all():
        return None
    return _value_failure(name, got, expected, ~close)


def _value_failure(
    name: str,
    got: "NDArray[np.generic]",
    expected: "NDArray[np.generic]",
    wrong: "NDArray[np.bool_]",
) -> Failure:
    import numpy as np

    index = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.ndim else ()
    place = f"{name}[{', '.join(map(str, index))}]" if index else name
    observed = f"{got[index]:.6g}, and {int(wrong.sum())} of {wrong.size} values differ"
    if got.dtype.kind in "fc" and bool(np.isnan(got).any()):
        observed = f"{int(np.isnan(got).sum())} NaN of {got.size} values"
    elif wrong.size == 1:
        observed = f"{got[index]:.6g}"
    return Failure(f"{place} is {expected[index]:.6g}", observed)
