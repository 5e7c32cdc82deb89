"""ex30_roofline: what a kernel does and moves, and the ceiling that it is under.

The work is counted in the jaxprs of the file's own kernels. The ceilings are drawn at
random, and measured in this very run; what follows from them is plain arithmetic.
"""

import math
from types import ModuleType
from typing import Any

import msgspec

from grader.checking import Exercise, Failure, Misused, Observe, Result, unpack
from grader.evidence import definition, seen
from grader.record import Record

Figures = tuple[float, float, float, float, float]
CLOSE = 1e-6
KEYS = ("intensity", "attainable", "bound", "share")
DTYPES = (("float32", 4), ("bfloat16", 2), ("float16", 2))
POINTS = ((0.05, 0.5, 0.5), (0.4, 0.3, 4.0), (2.5, 1.6, -1.5), (30.0, 0.7, 2.0))
"""Times the ridge's intensity; the share, above 1 under a ceiling measured too low; and the
ridge's power of 10, so that no single intensity parts what memory and compute bound."""


class Count(msgspec.Struct):
    """One kernel at one size: what the learner counted, and what its jaxpr holds."""

    kernel: str
    call: str
    said: dict[str, float | str]
    counted: dict[str, int]


class Case(msgspec.Struct):
    """A kernel's figures, and where the learner placed it."""

    flops: float
    nbytes: float
    seconds: float
    peak_flops: float
    peak_bandwidth: float
    measured: bool
    answer: dict[str, float | str]

    @property
    def intensity(self) -> float:
        """FLOPs per byte."""
        return self.flops / self.nbytes

    @property
    def attainable(self) -> float:
        """FLOP/s under both ceilings."""
        return min(self.peak_flops, self.intensity * self.peak_bandwidth)

    @property
    def bound(self) -> str:
        """The ceiling that is met first."""
        return "compute" if self.attainable == self.peak_flops else "memory"


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Have kernels counted, then placed: under the ceilings of this run, and under drawn ones."""
    counts = [count(submission, rng, *kind) for kind in DTYPES for count in (_matmul, _poly)]
    with observe.unwatched():
        cases = _measured(submission)
    cases += [_drawn(submission, rng, point) for point in POINTS]
    observe.fact("counts", msgspec.to_builtins(counts))
    observe.fact("cases", msgspec.to_builtins(cases))


def _matmul(submission: ModuleType, rng: Any, dtype: str, size: int) -> Count:
    import jax

    m, k, n = (int(side) for side in rng.choice(900, 3, replace=False) + 100)
    x, y = jax.ShapeDtypeStruct((m, k), dtype), jax.ShapeDtypeStruct((k, n), dtype)
    given = submission.matmul_cost(m, k, n, size)
    return _count("matmul", f"matmul_cost({m}, {k}, {n}, {size})", given, submission.matmul, x, y)


def _poly(submission: ModuleType, rng: Any, dtype: str, size: int) -> Count:
    import jax

    n, degree = int(rng.integers(10_000, 90_000)), int(rng.integers(3, 9))
    given = submission.poly_cost(n, degree, size)
    x, call = jax.ShapeDtypeStruct((n,), dtype), f"poly_cost({n}, {degree}, {size})"
    return _count("poly", call, given, lambda x: submission.poly(x, degree), x)


def _count(name: str, call: str, given: Any, kernel: Any, *args: Any) -> Count:
    """What the learner says of a kernel beside what its jaxpr says."""
    import jax

    from grader.probes import roofline

    flops, nbytes = unpack(given, 2, f"`{name}_cost` returns (flops, nbytes)")
    closed = jax.make_jaxpr(kernel)(*args)
    said = {"FLOPs": _number(flops, f"{name}_cost"), "bytes": _number(nbytes, f"{name}_cost")}
    work = {"FLOPs": roofline.count_flops(closed.jaxpr), "bytes": roofline.count_bytes(closed)}
    return Count(name, call, said, work)


def _number(value: Any, function: str) -> float | str:
    """A number, or the name of what JSON has no number for: nan, inf."""
    try:
        return number if math.isfinite(number := float(value)) else str(number)
    except (TypeError, ValueError):
        promise = f"`{function}` gives numbers"
        raise Misused(promise, f"a value of type `{type(value).__name__}`") from None


def _drawn(submission: ModuleType, rng: Any, point: tuple[float, float, float]) -> Case:
    """A kernel of about the given ratio and share, under ceilings of about the given ridge."""
    ratio, share = (part * rng.uniform(0.8, 1.25) for part in point[:2])
    peak, ridge = 10 ** rng.uniform(10, 15), 10 ** (point[2] + rng.uniform(-1, 1))
    nbytes = 10 ** rng.uniform(5, 9)
    flops, bandwidth = nbytes * ridge * ratio, peak / ridge
    seconds = max(flops / peak, nbytes / bandwidth) / share
    return _placed(submission, (flops, nbytes, seconds, peak, bandwidth), measured=False)


def _measured(submission: ModuleType) -> list[Case]:
    """The file's kernels, timed here, under ceilings measured here."""
    import jax
    import jax.numpy as jnp

    from grader.probes import roofline

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
    answer = submission.place(*figures)
    if not isinstance(answer, dict) or set(answer) != set(KEYS):
        keys = sorted(map(str, answer)) if isinstance(answer, dict) else type(answer).__name__
        raise Misused(f"`place` returns a dict with the keys {', '.join(KEYS)}", f"{keys}")
    numbers = {key: _number(answer[key], "place") for key in KEYS if key != "bound"}
    return Case(*figures, measured=measured, answer=numbers | {"bound": str(answer["bound"])})


EXERCISE = Exercise(
    title="Place a kernel under the roofline",
    lesson="lessons/17-measure-before-you-tune",
    anchor="count-first",
    edits=("matmul_cost", "poly_cost", "place"),
    drive=drive,
    hints=(
        "Count what a kernel must do and must move, before you ask how fast it is.",
        "A product of (m, k) and (k, n) has m * n results, of k multiplications and k additions "
        "each. Every array is read or written once.",
        "intensity = flops / nbytes; attainable = min(peak_flops, intensity * peak_bandwidth); "
        "what the minimum is, is the bound.",
    ),
)


def _counts(record: Record, kernel: str) -> list[Count]:
    found = msgspec.convert(seen(record).facts.get("counts", []), list[Count])
    return [count for count in found if count.kernel == kernel]


def _cases(record: Record) -> list[Case]:
    return msgspec.convert(seen(record).facts.get("cases", []), list[Case])


def _miscount(record: Record, kernel: str, what: str, why: str) -> Failure | None:
    """The first size at which the learner's count is not the jaxpr's."""
    for count in _counts(record, kernel):
        got, want = float(count.said[what]), count.counted[what]
        if not math.isclose(got, want, rel_tol=CLOSE):
            return Failure(
                f"`{count.call}` counts {want:,} {what}, {why}",
                f"{got:,.10g}, which is {got / want:.3g} x as many",
                definition(record, f"{kernel}_cost"),
            )
    return None


@EXERCISE.check(
    ground="observed", hints=("A multiplication and an addition are two operations, anywhere.",)
)
def counts_matmul_flops(record: Record) -> Result:
    """`matmul_cost` counts every multiplication and every addition."""
    return _miscount(record, "matmul", "FLOPs", "a multiplication and an addition for each term")


@EXERCISE.check(
    ground="observed",
    hints=("Three arrays: two are read, one is written. An element has `itemsize` bytes.",),
)
def counts_matmul_bytes(record: Record) -> Result:
    """`matmul_cost` counts each array's bytes once, the result's too."""
    return _miscount(record, "matmul", "bytes", "three arrays, each read or written once")


@EXERCISE.check(
    ground="observed", hints=("Each of `degree` rounds multiplies once and adds once.",)
)
def counts_poly_flops(record: Record) -> Result:
    """`poly_cost` counts every round's multiplication and addition."""
    return _miscount(record, "poly", "FLOPs", "two for each element and round")


@EXERCISE.check(
    ground="observed",
    hints=(
        "jit makes one kernel of all rounds. What lies between two rounds never leaves the chip.",
        "One array is read, one is written, however many rounds there are.",
    ),
    anchor="fused-work-moves-nothing",
)
def counts_poly_bytes(record: Record) -> Result:
    """`poly_cost` counts what a fused kernel moves: one array in, one out."""
    return _miscount(record, "poly", "bytes", "an array read and an array written")


def _differs(record: Record, key: str, why: str) -> Failure | None:
    """The first case whose `key` is another number than it should be."""
    for case in _cases(record):
        want, got = _want(case, key), float(case.answer[key])
        if not math.isclose(got, want, rel_tol=CLOSE):
            expected = f"{_given(case)} {key} is {want:.6g}, {why}"
            return Failure(expected, f"{got:.6g}", definition(record, "place"))
    return None


def _want(case: Case, key: str) -> float:
    if key == "share":
        return case.flops / case.seconds / case.attainable
    return case.intensity if key == "intensity" else case.attainable


def _given(case: Case) -> str:
    """The figures of a case, in words."""
    whose = "this machine's, measured in this run" if case.measured else "drawn at random"
    return (
        f"{case.flops:.3g} FLOPs, {case.nbytes:.3g} bytes, {case.seconds:.3g} s, under "
        f"{case.peak_flops:.3g} FLOP/s and {case.peak_bandwidth:.3g} bytes/s ({whose}):"
    )


@EXERCISE.check(ground="observed", hints=("How often is a byte used, once it has arrived?",))
def intensity_is_flops_per_byte(record: Record) -> Result:
    """The arithmetic intensity is FLOPs per byte."""
    return _differs(record, "intensity", "FLOPs / bytes")


@EXERCISE.check(
    ground="observed",
    after=("intensity_is_flops_per_byte",),
    hints=(
        "Bytes arrive at peak_bandwidth, each feeds `intensity` FLOPs. And no more than "
        "peak_flops can be done with them.",
    ),
    anchor="two-ceilings",
)
def attainable_is_under_both_ceilings(record: Record) -> Result:
    """The attainable FLOP/s are the lower of two ceilings."""
    return _differs(record, "attainable", "the lower of the two ceilings")


@EXERCISE.check(
    ground="observed",
    after=("intensity_is_flops_per_byte",),
    hints=(
        "No intensity is high or low by itself. Where do this machine's two ceilings meet?",
        "They meet at peak_flops / peak_bandwidth FLOPs per byte, the ridge.",
    ),
    anchor="two-ceilings",
)
def bound_is_the_lower_ceiling(record: Record) -> Result:
    """The bound names the ceiling that is met first: "memory" or "compute"."""
    for case in _cases(record):
        if case.answer["bound"] != case.bound:
            ridge = case.peak_flops / case.peak_bandwidth
            expected = f"{_given(case)} bound is {case.bound!r}: the intensity is "
            expected += f"{case.intensity:.3g}, the ceilings meet at {ridge:.3g}"
            return Failure(expected, repr(case.answer["bound"]), definition(record, "place"))
    return None


@EXERCISE.check(
    ground="observed",
    after=("attainable_is_under_both_ceilings",),
    hints=(
        "A kernel bound by memory can be perfect, and far from peak_flops.",
        "A share above 1 says that a ceiling was measured too low. Cut off at 1, it says nothing.",
    ),
    anchor="how-near-to-the-roof",
)
def share_is_of_the_attainable(record: Record) -> Result:
    """The share is the FLOP/s reached, of those attainable."""
    return _differs(record, "share", "FLOPs / seconds / attainable")
