"""Says what would explain the difference between two values, in words, or nothing.

Pure functions of two arrays of numbers. An explanation is given only if it fits to rounding:
the wrong value follows from the right one by it. It is still a guess at the cause, so the words
are "as ... would be". NumPy is imported inside functions, so that the command line starts
without it.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

RTOL, ATOL = 2e-5, 1e-6
"""What rounding of float32 may do to a sum; the second is relative to the largest number."""
MAX_FACTOR, MAX_VALUES = 4096, 1 << 20
MAX_DIGITS = 5
"""To more digits after the point, few numbers are rounded."""
ALL_ZERO, ANOTHER_ORDER = "all of it is 0", "the same values in another order"
AT_ITS_INDEX = (
    "Each number stays at its index, however the array that was given lies in memory. Which line "
    "takes the numbers in another order?"
)
"""The hint for `ANOTHER_ORDER` where arrays were to be placed, and no more."""
IN_BFLOAT16 = "each value has no more digits than a bfloat16 holds"
OF_ALL = frozenset((ALL_ZERO,))
"""Explanations that say what every value is."""
_ONES = 1e-3
"""A factor this near to 1 is no factor."""


def explanation(got: "Array", wanted: "Array") -> str:
    """What would make `got` of `wanted`: "the other sign", "one value late", or ""."""
    import numpy as np

    if not (_is_number(got) and _is_number(wanted)) or max(got.size, wanted.size) > MAX_VALUES:
        return ""
    with np.errstate(all="ignore"):
        mine, right = got.astype(np.float64), wanted.astype(np.float64)
        if not (mine.size and right.size and np.isfinite(mine).all() and np.isfinite(right).all()):
            return ""
        alike = mine.shape == right.shape
        if mine.size == 1 and got.dtype.kind in "iu":
            return ""  # one whole number is a multiple of many
        if alike and close(mine, right):
            return ""
        ways = _of_one_shape(mine, right) if alike else _of_other_shapes(mine, right)
        return next((words for words, fits in ways if fits()), "")


_Way = tuple[str, Callable[[], bool]]


def _is_number(array: "Array") -> bool:
    return array.dtype.kind in "iuf" and array.dtype.itemsize <= 8


def close(a: Any, b: Any) -> bool:
    """Whether two arrays of one shape are equal up to rounding."""
    import numpy as np

    scale = float(np.abs(b).max(initial=0.0))
    return bool(a.shape == b.shape and np.allclose(a, b, rtol=RTOL, atol=ATOL * scale))


def _varies(array: Any) -> bool:
    """Whether it holds numbers that a change of order or place would show."""
    return bool(array.size > 1 and not close(array, array.ravel()[:1] + 0 * array))


def _of_one_shape(mine: Any, right: Any) -> Iterator[_Way]:
    import numpy as np

    anything = bool(np.abs(right).max() > 0)
    yield ALL_ZERO, lambda: mine.size > 1 and anything and not mine.any()
    yield "it has the other sign", lambda: anything and close(mine, -right)
    yield from _factors(mine, right, anything)
    yield "rounded as bfloat16 would round it", lambda: _rounded(mine, right)
    for words, rounded in (("rounded down", np.floor), ("rounded", np.round)):
        yield (
            f"{words} to whole numbers",
            # What is 0 is so for other reasons more often.
            lambda rounded=rounded: mine.any() and _is(mine, rounded(right), right),  # type: ignore[misc]
        )
    for digits in range(1, MAX_DIGITS + 1):
        yield (
            f"rounded at digit {digits} after the point",
            lambda digits=digits: _cut(mine, np.round(right, digits), right),  # type: ignore[misc]
        )
    if not _varies(right):
        return
    if more := _constant(mine, right):
        size = f"{abs(more):.0f}"
        yield f"each is {size} too {'large' if more > 0 else 'small'}", lambda: True
    if right.ndim == 2 and right.shape[0] == right.shape[1]:
        yield "it is transposed", lambda: close(mine, right.T)
    if right.ndim and len(right) > 1:
        yield "it is in reverse order", lambda: close(mine, right[::-1])
        yield (
            "the values stand one place too early",
            lambda: len(right) > 2 and close(mine[:-1], right[1:]),
        )
        yield (
            "the values stand one place too late",
            lambda: len(right) > 2 and close(mine[1:], right[:-1]),
        )
        yield "it holds the last one everywhere", lambda: close(mine, right[-1:] + 0 * right)
        yield "it holds the mean everywhere", lambda: close(mine, right.mean() + 0 * right)
        yield "each is a mean of all up to it", lambda: close(mine, _means(right))
        yield "each is a sum of all before it", lambda: close(mine, np.cumsum(right, axis=0))
        if len(right) > 2:
            yield "only the first is wrong", lambda: close(mine[1:], right[1:])
            yield "only the last is wrong", lambda: close(mine[:-1], right[:-1])
    yield (
        ANOTHER_ORDER,
        lambda: close(np.sort(mine, axis=None), np.sort(right, axis=None)),
    )
    yield IN_BFLOAT16, lambda: _in_bfloat16(mine) and not _in_bfloat16(right)


def _means(array: Any) -> Any:
    """The mean of all rows up to each."""
    import numpy as np

    counts = np.arange(1, len(array) + 1).reshape(-1, *[1] * (array.ndim - 1))
    return np.cumsum(array, axis=0) / counts


def _constant(mine: Any, right: Any) -> float:
    """The whole number that each is more than it should be, if all are whole numbers; else 0."""
    apart = (mine - right).ravel()
    whole = not (right % 1).any() and apart[0] % 1 == 0
    return float(apart[0]) if whole and (apart == apart[0]).all() else 0.0


def _factors(mine: Any, right: Any, anything: bool) -> Iterator[_Way]:
    """A factor that is a whole number, or one divided by a whole number."""
    import numpy as np

    if not anything or not mine.any():
        return
    factor = float(np.vdot(right, mine) / np.vdot(right, right))
    if abs(factor - 1) < _ONES or factor <= 0:
        return
    count, part = round(factor), round(1 / factor)
    if 2 <= count <= MAX_FACTOR:
        chosen = f"a factor of {count} or " * _is_round(count)
        words = f"{count} times as much, as {chosen}a sum over {count} in place of a mean would be"
        yield words, lambda: close(mine, count * right)
    if 2 <= part <= MAX_FACTOR:
        chosen = f"a factor of {1 / part:g} or " * _is_round(part)
        words = f"1/{part} of it, as {chosen}a mean over {part} in place of a sum would be"
        yield words, lambda: close(mine * part, right)
    if mine.size > 1:
        yield f"{factor:.4g} times as much everywhere", lambda: close(mine, factor * right)


def _is_round(count: int) -> bool:
    """Whether people write such a factor: 10, 100, 1000."""
    return count in (10, 100, 1000)


def _in_bfloat16(array: Any) -> bool:
    """Whether bfloat16 holds all values as they are; they must vary, and few be whole numbers."""
    import numpy as np

    exact = array.astype(np.float32)
    bits = exact.view(np.uint32) if (exact == array).all() else np.ones(1, np.uint32)
    fractions = bool(np.count_nonzero(array % 1) > array.size / 2)
    return not (bits & 0xFFFF).any() and _varies(array) and fractions


def _rounded(mine: Any, right: Any) -> bool:
    """Whether it is the right value, rounded to the eight bits of a bfloat16's fraction."""
    import numpy as np

    bits = np.asarray(right, np.float32).view(np.uint32).astype(np.uint64)
    nearest = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32)
    rounded = nearest.view(np.float32).astype(np.float64)
    return close(mine, rounded) and not close(rounded, right)


def _cut(mine: Any, rounded: Any, right: Any) -> bool:
    """Whether it is `rounded`, but for what a float32 cannot hold, and that is not `right`."""
    import numpy as np

    alike = np.array_equal(mine.astype(np.float32), rounded.astype(np.float32))
    return bool(mine.any() and alike and not close(rounded, right))


def _is(mine: Any, other: Any, right: Any) -> bool:
    """Whether it is exactly `other`, which is not the right value."""
    import numpy as np

    return bool(np.array_equal(mine, other) and not close(other, right))


def _of_other_shapes(mine: Any, right: Any) -> Iterator[_Way]:
    import numpy as np

    if mine.ndim == right.ndim == 2 and mine.shape == right.shape[::-1]:
        yield "it is transposed", lambda: close(mine.T, right)
    if mine.ndim == right.ndim and mine.shape[1:] == right.shape[1:] and right.ndim:
        short, long = len(mine), len(right)
        if short < long:
            lost = f"{long - short} are" if long - short > 1 else "is"
            yield f"the last {lost} missing", lambda: close(mine, right[:short])
            yield f"the first {lost} missing", lambda: close(mine, right[-short:])
        else:
            more = f"{short - long} more" if short - long > 1 else "one more"
            yield f"{more} at its end", lambda: close(mine[:long], right)
            yield f"{more} at its beginning", lambda: close(mine[-long:], right)
    yield (
        "the same values in another shape",
        lambda: mine.size == right.size and close(mine.ravel(), right.ravel()),
    )
    if not mine.any():
        return  # zeros are their own sum and mean
    for axis in range(mine.ndim):
        if np.delete(mine.shape, axis).tolist() == list(right.shape):
            yield (
                f"the right values, {mine.shape[axis]} times along axis {axis}",
                lambda axis=axis: close(
                    mine, np.broadcast_to(np.expand_dims(right, axis), mine.shape)
                ),  # type: ignore[misc]
            )
            yield f"not summed over axis {axis}", lambda axis=axis: close(mine.sum(axis), right)  # type: ignore[misc]
            yield (
                f"no mean was taken over axis {axis}",
                lambda axis=axis: close(mine.mean(axis), right),  # type: ignore[misc]
            )
    for axis in range(right.ndim):
        if np.delete(right.shape, axis).tolist() == list(mine.shape):
            yield f"summed over axis {axis}", lambda axis=axis: close(right.sum(axis), mine)  # type: ignore[misc]
            yield (
                f"its mean over axis {axis}",
                lambda axis=axis: close(right.mean(axis), mine),  # type: ignore[misc]
            )
