"""Drives ex30_roofline: kernels are counted at drawn sizes, then placed under ceilings.

The learner's counts stand beside those of the jaxprs of the file's own kernels. Sizes and
element types are drawn or varied, so that no count is right for one size alone. `place` gets
this machine's ceilings, with the file's kernels timed beside them in this very run, and then
ceilings drawn over some orders of magnitude. What is right follows from the figures by plain
arithmetic, so nothing judged here depends on how fast the machine is.
"""

import math
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from grader.checks.ex30_roofline.facts import BYTES, FLOPS, Case, Count
from grader.probes import roofline
from grader.probes.observe import Misused, Observe, named, unpack

Figures = tuple[float, float, float, float, float]
"""The arguments of `place`: FLOPs, bytes, seconds, and the peaks in FLOP/s and bytes/s."""
KEYS = ("intensity", "attainable", "bound", "share")
"""The keys of what `place` returns."""
DTYPES = (("float32", 4), ("bfloat16", 2), ("float16", 2), ("int8", 1))
"""Element types of the counted kernels, and the bytes of one element."""
POINTS = ((0.05, 0.5, 0.5), (0.4, 0.3, 4.0), (2.5, 1.6, -1.5), (30.0, 0.7, 2.0))
"""About where the drawn cases lie: the intensity, as a multiple of the ridge's; the share, which
is above 1 where a ceiling was measured too low; and the ridge, as a power of 10. The ridges differ
so much that no single intensity separates kernels bound by memory from those bound by compute."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Keep the learner's counts, and the places under measured and under drawn ceilings."""
    counts = []
    for dtype, size in DTYPES:
        counts.append(_matmul(submission, rng, dtype, size))
        counts.append(_poly(submission, rng, dtype, size))
    with observe.unwatched():
        cases = _measured(submission)
    cases += [_drawn(submission, rng, point) for point in POINTS]
    observe.fact("counts", msgspec.to_builtins(counts))
    observe.fact("cases", msgspec.to_builtins(cases))


def _matmul(submission: ModuleType, rng: Any, dtype: str, size: int) -> Count:
    """The counts of `matmul` at drawn sizes; `size` is the bytes of one element."""
    m, k, n = (int(side) for side in rng.choice(900, 3, replace=False) + 100)
    x, y = jax.ShapeDtypeStruct((m, k), dtype), jax.ShapeDtypeStruct((k, n), dtype)
    given = submission.matmul_cost(m, k, n, size)
    return _count("matmul", f"matmul_cost({m}, {k}, {n}, {size})", given, submission.matmul, x, y)


def _poly(submission: ModuleType, rng: Any, dtype: str, size: int) -> Count:
    """The counts of `poly` at a drawn length and degree; `size` is the bytes of one element."""
    n, degree = int(rng.integers(10_000, 90_000)), int(rng.integers(3, 60))
    given = submission.poly_cost(n, degree, size)
    x, call = jax.ShapeDtypeStruct((n,), dtype), f"poly_cost({n}, {degree}, {size})"
    return _count("poly", call, given, lambda x: submission.poly(x, degree), x)


def _count(name: str, call: str, given: Any, kernel: Any, *args: Any) -> Count:
    """What the learner says of a kernel, beside what its jaxpr holds."""
    flops, nbytes = unpack(given, 2, f"`{name}_cost` returns (flops, nbytes)")
    closed = jax.make_jaxpr(kernel)(*args)
    said = {FLOPS: _number(flops, f"{name}_cost"), BYTES: _number(nbytes, f"{name}_cost")}
    counted = {FLOPS: roofline.count_flops(closed.jaxpr), BYTES: roofline.count_bytes(closed)}
    return Count(name, call, said, counted)


def _number(value: Any, function: str) -> float | str:
    """A finite number as it is; nan and inf as text, because JSON has no number for them.

    Raises `Misused` for text, None, complex numbers and arrays of several values.
    """
    plain = value if type(value) in (int, float) else np.asarray(value)
    if type(plain) is np.ndarray:
        if plain.ndim or plain.dtype.kind not in "iuf":
            kind = f"the text `{value!r}`" if type(value) is str else named(value)
            raise Misused(f"`{function}` returns numbers", f"it returned {kind} for a number")
        plain = plain.item()
    number = float(plain)
    return number if math.isfinite(number) else str(number)


def _drawn(submission: ModuleType, rng: Any, point: tuple[float, float, float]) -> Case:
    """A kernel and ceilings that are drawn near one of `POINTS`."""
    multiple, share = (part * rng.uniform(0.8, 1.25) for part in point[:2])
    peak, ridge = 10 ** rng.uniform(10, 15), 10 ** (point[2] + rng.uniform(-1, 1))
    nbytes = 10 ** rng.uniform(5, 9)
    flops, bandwidth = nbytes * ridge * multiple, peak / ridge
    seconds = max(flops / peak, nbytes / bandwidth) / share
    return _placed(submission, (flops, nbytes, seconds, peak, bandwidth), measured=False)


def _measured(submission: ModuleType) -> list[Case]:
    """The file's kernels, timed here, under ceilings measured here."""
    side, length = (512, 1 << 22) if jax.default_backend() == "cpu" else (8192, 1 << 28)
    square, line = jnp.ones((side, side), jnp.float32), jnp.ones(length, jnp.float32)
    kernels = [
        roofline.Kernel(2.0 * side**3, 12.0 * side**2, submission.matmul, (square, square)),
        roofline.Kernel(2.0 * length, 8.0 * length, lambda x: submission.poly(x, 1), (line,)),
    ]
    spans, peaks = roofline.measure(kernels)
    figures = [(k.flops, k.nbytes, span, *peaks) for k, span in zip(kernels, spans, strict=True)]
    return [_placed(submission, one, measured=True) for one in figures]


def _placed(submission: ModuleType, figures: Figures, *, measured: bool) -> Case:
    """The learner's place for `figures`. Raises `Misused` where it is no dict of the right keys."""
    answer = submission.place(*figures)
    if not isinstance(answer, dict) or set(answer) != set(KEYS):
        keys = ", ".join(sorted(map(str, answer))) if isinstance(answer, dict) else ""
        got = f"a dict with the keys {keys}" if keys else named(answer)
        raise Misused(f"`place` returns a dict with the keys {', '.join(KEYS)}", f"it is {got}")
    numbers = {key: _number(answer[key], "place") for key in KEYS if key != "bound"}
    bound = answer["bound"]
    if type(bound) is not str:
        raise Misused('`place` gives "bound" as a str', f"it is {named(bound)}")
    return Case(*figures, measured=measured, answer=numbers | {"bound": bound})
