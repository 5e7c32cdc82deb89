"""Drives ex30_roofline: kernels are counted at drawn sizes, then placed under ceilings.

The learner's counts stand beside those of the jaxprs of the file's own kernels. `place` gets this
machine's ceilings, with the file's kernels timed beside them in this very run, and then drawn
cases. What is right follows from the figures by plain arithmetic, so nothing judged here depends on
how fast the machine is.

Drawn: for elements of 8, 4, 2 and 1 bytes, of 3, 5, 6 or 7, and of 9 to 64, both drawn, too, the
sides of two matrices (1 to 100,000), the length of an array (1 to 10,000,000) and the degree (1 to
300), small ones as often as large ones; the sides of more products, small and large, in which two
sides are equal, or all three, or some are 1, or all, each of two sizes of elements; round sizes, as
people measure; arrays of one element and single rounds; the ceilings over some orders of magnitude;
the intensities from within 1 / 200,000 of the ridge to a ten-thousandth and ten thousand times of
it, on both sides, without a gap, and exactly that of the ridge; and the shares (a billionth to 10),
of which half are above 1. One case comes three times, the last two one after the other, and each
dict is emptied before the next call. Some cases are like another one but for one figure, each of
the five, on both sides of the ridge; so are some large sizes of each kernel. Where neither is near
the ridge, FLOPs and bytes may be ints, as counts are; in one case all figures are ints below 200.
Where the file names numbers, kernels are counted whose sides, lengths, degrees or elements' bytes
are such a number, or one more, as far as MOST_... say; and cases are placed of which one figure,
the intensity or the share is larger than each of them.
"""

import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from grader.checks.ex30_roofline.facts import BYTES, FLOPS, Case, Count
from grader.probes import roofline
from grader.probes.observe import Misused, Observe, unpack
from grader.probes.observe import named as in_words
from grader.stages.drawn import beside, far, named

Figures = tuple[float, float, float, float, float]
"""The arguments of `place`: FLOPs, bytes, seconds, and the peaks in FLOP/s and bytes/s."""
KEYS = ("intensity", "attainable", "bound", "share")
"""The keys of what `place` returns."""
DTYPES = (("complex64", 8), ("float32", 4), ("bfloat16", 2), ("int8", 1))
"""Element types of the counted kernels, and the bytes of one element."""
OTHERS = (3, 5, 6, 7), range(9, 65)
"""The bytes of other elements, one of each. JAX has no such types here: their arrays are counted as
arrays of single bytes, and their bytes multiplied."""
KINDS = len(DTYPES) + len(OTHERS)
SIDE, LENGTH, DEGREE = 100_000, 10_000_000, 300
"""The largest side of a matrix, length of an array, and degree."""
MOST_SIZE, MOST_SQUARE, MOST_DEGREE, MOST_BYTES = 1 << 40, 160_000, 2000, 1 << 12
"""Up to where sizes are those that the file names: a side of one matrix or a length, all sides of
two square matrices, a degree, and the bytes of an element."""
MOST_NAMED, MOST_FIGURE, MOST_RATIO = 50, 1e15, 1e9
"""So many of these numbers are taken; and up to where a figure goes, an intensity or a share."""
NEARER = (1e-6, 1e-5)
"""A distance from the ridge that the file names in between is reached from below, too."""
POWERS = (4, 27)
"""From which power of 2 on, and below which one, the length of an array is drawn."""
DISTANCES = (1e-6, 4.0, 24)
"""How far the drawn intensities lie from the ridge, as powers of 10: below it and above it, one in
each of so many spans from the first to the second. The first ones lie as near to it as float32
still tells apart."""
WHOLE = 2, 200
"""From where on, and below what, the figures are drawn that are all ints."""
NEAR = 0.05
"""So near to the ridge, rounding to whole numbers could lead to its other side."""
SHARES, RIDGES = ((-9.0, -0.1), (0.1, 1.0)), (-2.0, 4.0)
"""The drawn shares and ridges, as powers of 10. A share is above 1 where a ceiling was measured too
low: in half of the cases on each side of the ridge."""
FAR = {-1: (2.0, 4.0), 1: (-2.0, 0.0)}
"""The ridge of the kernel nearest to it, below it and above it: no single intensity separates
kernels bound by memory from those bound by compute."""


AGAIN = 6
"""So many kernels are placed again, under the ceilings of another one."""
OTHER = 1.5, 4.0
"""By how much a figure is larger that alone is another one, from and below."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Keep the learner's counts, and the places under measured and under drawn ceilings."""
    counts = []
    elements = (*DTYPES, *(("int8", int(rng.choice(sizes))) for sizes in OTHERS))
    sizes = zip(elements, _sides(rng), _sizes(rng, LENGTH), _sizes(rng, DEGREE), strict=True)
    for (dtype, size), sides, n, degree in sizes:
        counts.append(_matmul(submission, dtype, size, *sides))
        counts.append(_poly(submission, dtype, size, n, degree))
    for sides in _special_sides(rng):
        for element in (elements[int(rng.integers(len(DTYPES)))], elements[-1]):
            counts.append(_matmul(submission, *element, *sides))
    length, power = int(rng.integers(2, LENGTH)), 1 << int(rng.integers(*POWERS))
    degree, other = map(int, rng.integers(2, DEGREE, 2))
    for n, rounds in ((1, degree), (power, other), (length, 1), (1, 1)):
        for index in rng.permutation(len(elements))[: 2 if rounds == 1 else 1]:
            counts.append(_poly(submission, *elements[int(index)], n, rounds))
    counts += _like_another(submission, beside(rng))
    counts += _named_counts(submission, rng)
    with observe.unwatched():
        measured = _measured(submission)
    drawn = [_drawn(rng, *point.tolist()) for point in rng.permutation(_points(rng))]
    drawn += [(*drawn[index][:3], *drawn[-1 - index][3:]) for index in range(AGAIN)]
    drawn += _far_cases(rng)
    for one in (_at_the_ridge(rng), _of_ints(rng)):
        drawn.insert(int(rng.integers(len(drawn))), one)
    index, own = int(rng.integers(len(drawn))), beside(rng)
    drawn += [like for some in _on_each_side(own, drawn) for like in _but_for_one_figure(own, some)]
    answers = [submission.place(*figures) for figures in (*measured, *drawn)]
    # Read only now: a dict may have been filled again.
    cases = [_case(*one, measured=True) for one in zip(measured, answers, strict=False)]
    cases += [_case(*one) for one in zip(drawn, answers[len(measured) :], strict=True)]
    answer = answers[len(measured) + index]
    for _ in range(2):  # the second call comes right after one with the same figures
        answer.clear()
        answer = submission.place(*drawn[index])
        cases.append(_case(drawn[index], answer, again=True))
    observe.fact("counts", msgspec.to_builtins(counts))
    observe.fact("cases", msgspec.to_builtins(cases))


def _matmul(submission: ModuleType, dtype: str, size: int, m: int, k: int, n: int) -> Count:
    """The counts of `matmul` for (m, k) and (k, n); `size` is the bytes of one element."""
    x, y = jax.ShapeDtypeStruct((m, k), dtype), jax.ShapeDtypeStruct((k, n), dtype)
    given = submission.matmul_cost(m, k, n, size)
    call = f"matmul_cost({m}, {k}, {n}, {size})"
    return _count("matmul", call, size, given, submission.matmul, x, y)


def _poly(submission: ModuleType, dtype: str, size: int, n: int, degree: int) -> Count:
    """The counts of `poly` for (n,) and a degree; `size` is the bytes of one element."""
    given = submission.poly_cost(n, degree, size)
    x, call = jax.ShapeDtypeStruct((n,), dtype), f"poly_cost({n}, {degree}, {size})"
    return _count("poly", call, size, given, lambda x: submission.poly(x, degree), x)


def _sizes(rng: Any, most: int) -> list[int]:
    """A size for each kind of element, from equal parts of the powers of 10 up to `most`."""
    parts = rng.permutation(KINDS) + rng.uniform(size=KINDS)
    return [round(float(most ** (power / KINDS))) for power in parts]


def _sides(rng: Any) -> list[tuple[int, ...]]:
    """(m, k, n), all different, for each kind of element."""
    while True:
        sides = list(zip(*(_sizes(rng, SIDE) for _ in range(3)), strict=True))
        if all(len(set(one)) == len(one) for one in sides):
            return sides


def _special_sides(rng: Any) -> Iterator[tuple[int, ...]]:
    """(m, k, n) of square matrices, with each two of the three sides equal, and with sides of 1.

    One square has a side that is a multiple of 1024, one is a single number.
    """
    yield (1024 * int(rng.integers(1, 17)),) * 3
    yield (1,) * 3
    for most in (SIDE // 100, SIDE):
        one, other, square = map(int, rng.choice(np.arange(2, most), 3, replace=False))
        yield (square,) * 3
        yield from ((1, one, other), (one, 1, other), (one, other, 1))
        for same, apart in ((one, other), (1, one), (one, 1)):
            yield from ((apart, same, same), (same, apart, same), (same, same, apart))


def _like_another(submission: ModuleType, rng: Any) -> Iterator[Count]:
    """The counts of each kernel for large sizes, and for sizes of which one alone is another."""
    sides = rng.integers(SIDE // 2, SIDE, 3).tolist()
    length, degree = map(int, rng.integers(2, (LENGTH, DEGREE)))
    for index in range(len(sides) + 1):
        more = [side + (number == index) for number, side in enumerate(sides, 1)]
        yield _matmul(submission, "float32", 4, *more)
    for n, rounds in ((length, degree), (length + 1, degree), (length, degree + 1)):
        yield _poly(submission, "float32", 4, n, rounds)


def _named_counts(submission: ModuleType, rng: Any) -> Iterator[Count]:
    """The counts for sizes that the file names, and for one more; none where it names none."""
    whole = [int(number) for number in named(rng) if 1 <= number < MOST_SIZE]
    some = rng.permutation(whole)[:MOST_NAMED].tolist() if whole else []
    for size in (number + more for number in some for more in (0, 1)):
        element = DTYPES[int(rng.integers(len(DTYPES)))]
        one, other = map(int, rng.integers(2, 9, 2))
        for sides in ((size, one, other), (one, size, other), (one, other, size)):
            yield _matmul(submission, *element, *sides)
        yield _poly(submission, *element, size, one)
        if size < MOST_SQUARE:
            yield _matmul(submission, *element, size, size, size)
        if size < MOST_DEGREE:
            yield _poly(submission, *element, one, size)
        if size < MOST_BYTES:
            yield _matmul(submission, "int8", size, one, other, one)
            yield _poly(submission, "int8", size, other, one)


def _far_cases(rng: Any) -> Iterator[Figures]:
    """Drawn kernels of which a figure, or a ratio of two, is larger than all that the file names.

    Or the intensity is nearer to the ridge, below it. There is none where the file names none.
    """
    points = iter(np.array(_points(beside(rng))).tolist())
    if large := far(rng, MOST_FIGURE):
        for index in range(5):
            own = [*_drawn(rng, *next(points))]
            own[index] = large
            yield own[0], own[1], own[2], own[3], own[4]
    if large := far(rng, MOST_RATIO):
        distance, power, _ = next(points)
        yield _drawn(rng, distance, math.log10(large), 0)
        yield _drawn(rng, distance, power, math.log10(large) - distance)
    for number in named(rng):
        if NEARER[0] <= number < NEARER[1]:
            yield _drawn(rng, math.log10(1 - number * rng.uniform(0.5, 0.9)), -0.5, 1)


def _on_each_side(rng: Any, cases: list[Figures]) -> list[Figures]:
    """One of the cases on each side of the ridge."""
    sides = list[Figures](), list[Figures]()
    for one in cases:
        flops, nbytes, _, peak, bandwidth = one
        sides[flops / nbytes < peak / bandwidth].append(one)
    return [some[int(rng.integers(len(some)))] for some in sides]


def _but_for_one_figure(rng: Any, figures: Figures) -> Iterator[Figures]:
    """The cases that are like one, but for one figure: each of the five once, in a drawn order."""
    for index in rng.permutation(len(figures)):
        own = [*figures]
        own[index] *= float(rng.uniform(*OTHER))
        yield own[0], own[1], own[2], own[3], own[4]


def _count(name: str, call: str, size: int, given: Any, kernel: Any, *args: Any) -> Count:
    """What the learner says of a kernel, beside its jaxpr; an element has `size` bytes."""
    flops, nbytes = unpack(given, 2, f"`{name}_cost` returns (flops, nbytes)")
    closed = jax.make_jaxpr(kernel)(*args)
    said = {FLOPS: _number(flops, f"{name}_cost"), BYTES: _number(nbytes, f"{name}_cost")}
    times = size // args[0].dtype.itemsize
    nbytes = times * roofline.count_bytes(closed)
    counted = {FLOPS: roofline.count_flops(closed.jaxpr), BYTES: nbytes}
    return Count(name, call, said, counted)


def _number(value: Any, function: str) -> float | str:
    """A finite number as it is; nan and inf as text, because JSON has no number for them.

    Raises `Misused` for text, None, complex numbers and arrays of several values.
    """
    plain = value if type(value) in (int, float) else np.asarray(value)
    if type(plain) is np.ndarray:
        if plain.ndim or plain.dtype.kind not in "iuf":
            kind = f"the text `{value!r}`" if type(value) is str else in_words(value)
            raise Misused(f"`{function}` returns numbers", f"it returned {kind} for a number")
        plain = plain.item()
    number = float(plain)
    return number if math.isfinite(number) else str(number)


def _points(rng: Any) -> list[tuple[float, float, float]]:
    """Distances from the ridge, shares and ridges, as powers of 10: both shares on both sides."""
    points = []
    edges = np.geomspace(*DISTANCES[:2], DISTANCES[2] + 1)
    for side in (-1, 1):
        spans = rng.permutation(SHARES * (DISTANCES[2] // len(SHARES)))
        distances = side * rng.uniform(edges[:-1], edges[1:])
        ridges = rng.uniform(*RIDGES, len(distances))
        ridges[0] = rng.uniform(*FAR[side])
        points += list(zip(distances, rng.uniform(*spans.T), ridges, strict=True))
    return points


def _drawn(rng: Any, distance: float, power: float, at: float) -> Figures:
    """A drawn kernel under drawn ceilings; the powers are as in `_points`."""
    multiple, share = 10**distance, 10**power
    peak, ridge = 10 ** rng.uniform(10, 15), 10**at
    nbytes = 10 ** rng.uniform(5, 9)
    flops, bandwidth = nbytes * ridge * multiple, peak / ridge
    seconds = max(flops / peak, nbytes / bandwidth) / share
    if abs(distance) > NEAR and rng.integers(2):
        flops, nbytes = round(flops), round(nbytes)
    if abs(distance) > NEAR and rng.integers(2):
        peak, bandwidth = round(peak), round(bandwidth)
    return flops, nbytes, seconds, peak, bandwidth


def _at_the_ridge(rng: Any) -> Figures:
    """A drawn kernel whose intensity is exactly that of the ridge, however it is computed."""
    ridge = float(rng.integers(2, 200))
    nbytes, bandwidth = (2.0 ** int(rng.integers(*span)) for span in ((16, 30), (30, 42)))
    seconds = nbytes / bandwidth * float(rng.uniform(1, 9))
    return nbytes * ridge, nbytes, seconds, bandwidth * ridge, bandwidth


def _of_ints(rng: Any) -> Figures:
    """A drawn kernel whose figures are ints, the seconds and the ceilings too, far from the ridge.

    None of them is a multiple of another that it is divided by.
    """
    while True:
        flops, nbytes, seconds, peak, bandwidth = map(int, rng.integers(*WHOLE, 5))
        far = abs(math.log10(flops * bandwidth / nbytes / peak)) > NEAR
        if far and flops % seconds and flops % nbytes and peak % bandwidth:
            return flops, nbytes, seconds, peak, bandwidth


def _measured(submission: ModuleType) -> list[Figures]:
    """The file's kernels, timed here, under ceilings measured here."""
    side, length = (512, 1 << 22) if jax.default_backend() == "cpu" else (8192, 1 << 28)
    square, line = jnp.ones((side, side), jnp.float32), jnp.ones(length, jnp.float32)
    kernels = [
        roofline.Kernel(2 * side**3, 12 * side**2, submission.matmul, (square, square)),
        roofline.Kernel(2 * length, 8 * length, lambda x: submission.poly(x, 1), (line,)),
    ]
    spans, peaks = roofline.measure(kernels)
    return [(k.flops, k.nbytes, span, *peaks) for k, span in zip(kernels, spans, strict=True)]


def _place(key: str) -> int:
    """Where a key stands among those that are asked for; at the end if it is not."""
    return KEYS.index(key) if key in KEYS else len(KEYS)


def _case(figures: Figures, answer: Any, *, measured: bool = False, again: bool = False) -> Case:
    """The learner's place for `figures`. Raises `Misused` where it is no dict of the right keys.

    With `again`, a dict that an earlier call returned for these figures was emptied before.
    """
    if not isinstance(answer, dict) or set(answer) != set(KEYS):
        keys = sorted(map(str, answer), key=_place) if isinstance(answer, dict) else []
        lacking = [f"`{key}`" for key in KEYS if key not in keys]
        without = f", without {' and '.join(lacking)}" if lacking else ""
        got = f"a dict with the keys {', '.join(keys)}{without}" if keys else in_words(answer)
        promise = f"`place` returns a dict with the keys {', '.join(KEYS)}"
        if again:
            promise += ", a new one at each call"
            got += ", which the caller had of an earlier call with these figures, and has emptied"
        raise Misused(promise, f"it is {got}")
    numbers = {key: _number(answer[key], "place") for key in KEYS if key != "bound"}
    bound = answer["bound"]
    if not isinstance(bound, str):
        raise Misused('`place` gives "bound" as a str', f"it is {in_words(bound)}")
    plain = str.__str__(bound)  # of a StrEnum, too, and whatever its class says of itself
    return Case(*figures, measured=measured, answer=numbers | {"bound": plain})
