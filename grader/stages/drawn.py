"""Draws what a submission may take for granted, and reaches the numbers that its file names.

No number is exactly 0, it may think, and no error large: but biases begin with zeros, and so do an
optimizer's averages. A row may be blank. A model that has diverged holds numbers that are none. And
what happens only from the two hundredth step on, for more than a thousand rows, or for numbers
above a million, is seen where a run is as long, an array as large, and a number as far from 0.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class Draw(np.random.Generator):
    """NumPy's generator, which knows the numbers that the submission names and its model does not.

    The reference gets the same ones, so both meet the same inputs.
    """

    def __init__(self, bits: Any, named: Sequence[float] = ()) -> None:
        super().__init__(bits)
        self.named = tuple(named)

    def spawn(self, n_children: int) -> list["Draw"]:
        """Generators that are made from this one, and know the same numbers."""
        return [Draw(one.bit_generator, self.named) for one in super().spawn(n_children)]


def draw(seed: int, named: Sequence[float] = ()) -> Draw:
    """A generator that gives what `numpy.random.default_rng(seed)` gives."""
    return Draw(np.random.PCG64(seed), named)


MORE = 3
"""What begins at a step that a file names is seen two steps later, if not before."""


def beyond(rng: Any, usual: int, most: int, *, each: float = 0) -> int:
    """`usual`, or a number larger by MORE or more than all that the file names, up to `most`.

    A number n of the file's stands for n, and where a row has `each` numbers of four bytes, for as
    many rows as have n numbers, or n bytes. Nothing is drawn where the file names none.
    """
    meant = _meant(rng, range(usual, most - MORE), each)
    if not meant:
        return usual
    least = meant[-1] + MORE
    return int(rng.integers(least, min(least + least // 16, most) + 1))


def one_of(rng: Any, usual: int, possible: range, *, each: float = 0) -> int:
    """`usual`, or every second time one of the numbers that the file names, if they are possible.

    For `each`, and for what is drawn, see `beyond`.
    """
    meant = _meant(rng, possible, each)
    return int(rng.choice(meant)) if meant and rng.integers(2) else usual


def among(rng: Any, span: Sequence[int], *, each: float = 0) -> int:
    """A number from `span[0]` on and below `span[1]`; every second time one that the file names."""
    return one_of(rng, int(rng.integers(*span)), range(*span), each=each)


def _meant(rng: Any, possible: range, each: float) -> list[int]:
    """Which of the numbers may be meant by those that the file names, in order."""
    parts = {number / part for number in named(rng) for part in (1, each, 4 * each) if part}
    whole = {around for part in parts for around in (math.floor(part), math.ceil(part))}
    return sorted(number for number in whole if number in possible)


def named(rng: Any) -> tuple[float, ...]:
    """The numbers that the file names, without their signs."""
    return rng.named if isinstance(rng, Draw) else ()


def far(rng: Any, most: float) -> float:
    """A number further from 0 than all that the file names, up to `most`; 0.0 if there is none."""
    reached = [number for number in named(rng) if number < most]
    return min(most, max(reached) * rng.uniform(1, 2)) if reached else 0.0


ODD = (np.nan, np.inf, -np.inf, -0.0, 1e-30)
"""Floats that a careless copy loses."""
ZEROS = 0.1
"""The share of the numbers that are 0."""


def some_zeros(rng: Any, array: Any) -> Any:
    """A NumPy array like `array`, in which some numbers are exactly 0, one at least."""
    zero = rng.random(array.shape) < ZEROS
    zero.flat[int(rng.integers(array.size))] = True
    return np.where(zero, array.dtype.type(0), array)


def some_odd(rng: Any, *arrays: Any) -> None:
    """Write ODD into NumPy arrays of floats, and the ends of their range into those of integers.

    The places are drawn. At most half of an array is written, so a single number stays. Into
    floats go two numbers, too, that are further from 0 than all that the file names.
    """
    for array in arrays:
        odd: tuple[float, ...] = ODD
        if jnp.issubdtype(array.dtype, np.floating):
            large = far(rng, float(jnp.finfo(array.dtype).max))  # type: ignore[no-untyped-call]
            odd = (*odd, large, -large) if large else odd
        elif jnp.issubdtype(array.dtype, np.integer):
            odd = (np.iinfo(array.dtype).min, np.iinfo(array.dtype).max)
        if array.dtype != bool:
            places = rng.permutation(array.size)[: min(len(odd), array.size // 2)]
            array.flat[places] = rng.permutation(odd)[: len(places)]


def some_blank_rows(rng: Any, *arrays: Any) -> None:
    """Write 0 into some rows of NumPy arrays, one row at least, the same rows of each."""
    blank = rng.random(arrays[0].shape[:-1]) < ZEROS
    blank.flat[int(rng.integers(blank.size))] = True
    for array in arrays:
        array[blank] = 0


def beside(rng: Any) -> Any:
    """A generator of its own, made from `rng`, which goes on as before."""
    return Draw(rng.bit_generator.jumped(), named(rng))


def some_by_columns(rng: Any, tree: Any) -> Any:
    """A tree of NumPy arrays, of whose matrices some lie column by column in memory.

    Of these, half are a part of a larger one that was transposed: they lie with gaps.
    """
    apart = beside(rng)

    def drawn(array: Any) -> Any:
        if array.ndim != 2 or not rng.integers(2):
            return array
        return with_gaps(array, (1, 0)) if apart.integers(2) else np.asfortranarray(array)

    return jax.tree.map(drawn, tree)


def with_gaps(array: Any, order: Sequence[int]) -> Any:
    """An array of the same numbers, which is a part of a larger one that was transposed.

    Its axes lie in memory in this `order`, from the outermost on.
    """
    *outer, inner = (array.shape[axis] for axis in order)
    larger = np.zeros((*outer, inner + 1), array.dtype)
    part = larger[..., :-1].transpose(np.argsort(order))
    part[...] = array
    return part


def three_axes(devices: Any) -> Any:
    """A NumPy array of devices, in the form of a mesh of three axes: 8 of them are 2 by 2 by 2."""
    first = next(n for n in (2, 3, len(devices)) if len(devices) % n == 0)
    rest = len(devices) // first
    second = next(n for n in (2, 3, rest) if rest % n == 0)
    return np.reshape(devices, (first, second, -1))


OVERFLOWING = 1e20
"""How far targets are from 0 if the square of an error is infinite, and its gradient is not."""


def odd_batches(rng: Any, batch: Any) -> tuple[Any, Any, Any]:
    """Three batches like (inputs, targets) on devices, whose loss is no number, or infinite.

    In the first, the targets of a drawn row are NaN, and in the second, its inputs. In the third,
    targets are so far away that the loss is infinite, but not the gradient.
    """
    lost = (with_lost_row(rng, batch, part) for part in (-1, 0))
    return *lost, with_targets(batch, OVERFLOWING)


def with_lost_row(rng: Any, batch: Any, part: int = -1) -> Any:
    """The batch, (inputs, targets) on devices, in which a drawn row of one of the two is NaN.

    They are placed as they were. What is no such batch stays as it is.
    """
    leaves, form = jax.tree.leaves(batch), jax.tree.structure(batch)
    if not (leaves and isinstance(leaves[part], jax.Array)):
        return batch
    array = np.array(leaves[part])
    array[int(rng.integers(len(array)))] = np.nan
    leaves[part] = jax.device_put(array, _where(leaves[part]))
    return jax.tree.unflatten(form, leaves)


def copied(tree: Any) -> Any:
    """A tree of copies, placed as its arrays are. A step may delete what it is given."""
    return with_rows(tree, None)


def _where(array: Any) -> Any:
    """The sharding of an array that was placed; None for one that may go anywhere."""
    return array.sharding if array.committed else None


def with_targets(batch: Any, far: float) -> Any:
    """The batch, (inputs, targets) on devices, with targets that are at most `far` away from 0.

    They are placed as they were. What is no such batch stays as it is.
    """
    leaves, form = jax.tree.leaves(batch), jax.tree.structure(batch)
    if not (leaves and isinstance(leaves[-1], jax.Array)):
        return batch
    targets = np.asarray(leaves[-1])
    drawn = np.float32(far / max(float(abs(targets).max(initial=0)), 1e-9)) * targets
    placed = jax.device_put(drawn, _where(leaves[-1]))
    return jax.tree.unflatten(form, [*leaves[:-1], placed])


def with_rows(tree: Any, count: int | None) -> Any:
    """A tree of copies of the first rows of its arrays on devices, so many, placed as these are.

    None is for all of them. What is no such array stays as it is.
    """

    def cut(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array):
            return leaf
        array = np.array(leaf)
        return jax.device_put(array if count is None else array[:count], _where(leaf))

    return jax.tree.map(cut, tree)
