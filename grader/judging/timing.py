"""Compares two running times on a shared machine: a sequential paired sign test.

Question: does the submission take at most `k` times the baseline? A pair is one window
of each side, sized to be equally long when the answer is "exactly k"; the shorter
window wins. Both windows then meet the same noise, so at the threshold a pair is a
fair coin, and `e_value` tells when the coin is no longer believable.

The windows come from the caller, which takes the time outside the learner's process,
waits for every output, and checks the outputs. No JAX and no process lives here, and
nothing that the learner's process measured is used.

Source of the test: the mixture likelihood ratio of Robbins and Darling, read as an
e-value (Ramdas and others, "Game-theoretic statistics and safe anytime-valid
inference", Statistical Science 2023).
"""

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Literal, Protocol

from msgspec.structs import replace

from grader.records.record import Timing

MINIMUM_MARGIN = 1.25
"""Nearer to 1 than this, a control is close to a coin flip and proves nothing."""
FAR, FEW_PAIRS = 10.0, 3
"""Where time is up, so many pairs decide, if each was lost by this factor."""


class Window(Protocol):
    """Runs the work `calls` times and returns the wall time of all of it, in seconds."""

    def __call__(self, calls: int, /) -> float:
        """The time is positive and finite, and ends when the last output is ready."""
        ...


Clock = Callable[[], float]


@dataclass(frozen=True)
class Calls:
    """How many calls one window of each side makes."""

    submission: int
    baseline: int


@dataclass(frozen=True)
class Pair:
    """One window of each side, in seconds."""

    submission: float
    baseline: float


def e_value(successes: int, failures: int) -> Fraction:
    """Evidence against "a success has probability at most 1/2", valid at any time.

    The likelihood ratio of p against 1/2, averaged over p uniform on (1/2, 1):
    sum_{i<=s} C(n+1, i) / ((n+1) C(n, s)) for s successes of n. Under the null its
    expectation is at most 1 whenever one stops, so it ever reaches 1/alpha with
    probability at most alpha (Ville's inequality).
    """
    n = successes + failures
    tail = sum(math.comb(n + 1, i) for i in range(successes + 1))
    return Fraction(tail, (n + 1) * math.comb(n, successes))


def decide(wins: int, losses: int, alpha: float) -> Literal["pass", "fail"] | None:
    """The verdict that the pairs so far allow; each side errs with probability alpha."""
    # The e-value of the side that trails is never above 1.
    if e_value(max(wins, losses), min(wins, losses)) < 1 / alpha:
        return None
    return "pass" if wins > losses else "fail"


def equal_windows(k: float, baseline_calls: int, *, tolerance: float = 0.005) -> Calls:
    """Whole calls with baseline / submission within `tolerance` of `k`.

    Of all such counts, those nearest to `baseline_calls`. One always exists: rounding
    moves the ratio by at most half a call.

    Raises:
      ValueError: `k` or `baseline_calls` is not positive.
    """
    if not (k > 0 and baseline_calls > 0):
        raise ValueError(f"k = {k} and {baseline_calls} calls must be positive")
    wanted = max(1, round(baseline_calls / k))
    enough = wanted + math.ceil(1 / (k * tolerance))
    fitting = (n for n in range(1, enough + 1) if abs(round(k * n) / n - k) <= tolerance * k)
    submission = min(fitting, key=lambda n: abs(n - wanted))
    return Calls(submission, round(k * submission))


def calibrate(window: Window, target_seconds: float) -> int:
    """How many calls make a window of about `target_seconds`; at least 1."""
    window(1)  # the first call pays for caches
    calls = 1
    while (seconds := _quickest(window, calls, target_seconds)) < target_seconds / 2:
        calls *= min(16, max(2, int(target_seconds / seconds)))
    return max(1, round(calls * target_seconds / seconds))


def _quickest(window: Window, calls: int, enough: float) -> float:
    # Noise only adds time: the shorter of two is nearer the truth. A long one needs no repeat.
    seconds = _positive(window(calls))
    return seconds if seconds > enough else min(seconds, _positive(window(calls)))


def plan(submission: Window, baseline_calls: int, *, k: float, target_seconds: float) -> Calls:
    """Windows equal at the threshold, given how many baseline calls take `target_seconds`.

    A submission far slower than the threshold gets shorter windows, so that its failure
    does not take minutes: beyond twice the threshold, a window is twice as long as asked for, and
    the other side's is shorter in proportion. Noise of that size does not change the verdict.
    """
    submission(1)
    affordable = 2 * target_seconds / _quickest(submission, 1, target_seconds)
    return equal_windows(k, max(1, min(baseline_calls, round(k * affordable))))


def paired_test(
    submission: Window,
    baseline: Window,
    *,
    k: float,
    calls: Calls,
    rng: random.Random,
    clock: Clock = time.monotonic,
    alpha: float = 1e-3,
    max_pairs: int = 200,
    max_seconds: float = 20.0,
) -> Timing:
    """Test whether a call of the submission takes at most `k` times the baseline's.

    `calls` makes the windows equal at `k`. The order inside each pair is random, so
    that drift, caches and clock speed favour nobody. A tie (clocks are coarse on some
    machines) counts for neither side: it holds no evidence, and leaving it out keeps
    the other pairs a fair coin. It still uses up one of `max_pairs`.

    A submission may be so slow that time is up before the coin was thrown often enough. While each
    pair is lost by FAR, FEW_PAIRS are made all the same, and decide: noise that makes a window so
    much longer, each time, would not let the control pass.

    Returns "pass", "fail", or "undecided" with the reason. `ratio` and `spread` are
    the median and quartiles of submission / baseline time for one call.

    Raises:
      ValueError: a window took no time, or no finite time.
    """
    start = clock()
    pairs: list[Pair] = []
    wins = losses = 0
    verdict: Literal["pass", "fail"] | None = None
    while verdict is None and len(pairs) < max_pairs:
        if pairs and clock() - start >= max_seconds:
            is_far = all(pair.submission > FAR * pair.baseline for pair in pairs)
            if is_far and len(pairs) >= FEW_PAIRS:
                verdict = "fail"
            if verdict or not is_far:
                break
        pair = _pair(submission, baseline, calls, rng)
        pairs.append(pair)
        wins += pair.submission < pair.baseline
        losses += pair.submission > pair.baseline
        verdict = decide(wins, losses, alpha)
    median, spread = _ratios(pairs, calls)
    reason = "" if verdict else f"too close or too noisy after {len(pairs)} pairs"
    return Timing(verdict or "undecided", k, wins, losses, median, spread, reason=reason)


def _pair(submission: Window, baseline: Window, calls: Calls, rng: random.Random) -> Pair:
    if rng.random() < 0.5:
        mine = submission(calls.submission)
        theirs = baseline(calls.baseline)
    else:
        theirs = baseline(calls.baseline)
        mine = submission(calls.submission)
    return Pair(_positive(mine), _positive(theirs))


def _positive(seconds: float) -> float:
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"a window took {seconds} s")
    return seconds


def _ratios(pairs: Sequence[Pair], calls: Calls) -> tuple[float, tuple[float, float]]:
    scale = calls.baseline / calls.submission
    ratios = [scale * pair.submission / pair.baseline for pair in pairs]
    if len(ratios) == 1:
        return ratios[0], (ratios[0], ratios[0])
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return median, (low, high)


def repeated(window: Window, factor: int) -> Window:
    """A window whose every call is `factor` calls: the control if there is no naive version."""
    return lambda calls: window(factor * calls)


def compare(
    submission: Window,
    baseline: Window,
    *,
    k: float,
    rng: random.Random,
    baseline_calls: int,
    target_seconds: float = 0.010,
    clock: Clock = time.monotonic,
    max_seconds: float = 20.0,
) -> Timing:
    """`plan` and `paired_test`, tried once more if it stays undecided.

    The retry at most doubles the probability of a wrong verdict.
    """

    def attempt() -> Timing:
        calls = plan(submission, baseline_calls, k=k, target_seconds=target_seconds)
        return paired_test(
            submission, baseline, k=k, calls=calls, rng=rng, clock=clock, max_seconds=max_seconds
        )

    first = attempt()
    return attempt() if first.verdict == "undecided" else first


def with_controls(
    submission: Window,
    reference: Window,
    naive: Window,
    *,
    k: float,
    rng: random.Random,
    target_seconds: float = 0.010,
    clock: Clock = time.monotonic,
    max_seconds: float = 20.0,
) -> Timing:
    """Judge a submission on a machine that must also judge a known answer.

    For `k` > 1 the baseline is the reference ("at most k times the reference"), for
    `k` < 1 it is the naive version ("at most k times the naive time", at least 1/k
    times faster). A verdict stands only if this machine can also give the opposite one:
    after a pass the naive version must fail, after a fail the reference must pass. If
    it does not, the verdict is "unsuitable", and its reason names the control and its
    figures. A fail must also come out a second time, else it is "undecided". The rest is
    as in `compare`.

    Where an exercise has no naive version, `repeated(reference, ceil(k * k))` asks
    whether this machine can tell a program that much slower.

    Raises:
      ValueError: `k` lies within a factor of 1.25 of 1. There the reference is almost
        as slow as the threshold, and its control is a coin flip.
    """
    if 1 / MINIMUM_MARGIN < k < MINIMUM_MARGIN:
        raise ValueError(f"k = {k} is too near to 1: use k >= 1.25, or k <= 0.8 against naive")
    name, baseline = ("reference", reference) if k > 1 else ("naive version", naive)
    against = partial(
        compare,
        baseline=baseline,
        k=k,
        rng=rng,
        baseline_calls=calibrate(baseline, target_seconds),
        target_seconds=target_seconds,
        clock=clock,
        max_seconds=max_seconds,
    )
    judged = replace(against(submission), baseline=name)
    if judged.verdict == "undecided":
        return judged
    if judged.verdict == "pass":
        control, window, wanted = "naive version", naive, "fail"
    else:
        control, window, wanted = "reference", reference, "pass"
    known = replace(against(window), baseline=name)
    if known.verdict != wanted:
        return _unsuitable(known, control, wanted)
    return judged if judged.verdict == "pass" else _confirmed(judged, against(submission))


def _confirmed(first: Timing, second: Timing) -> Timing:
    """A fail stands only if a second comparison, some time later, fails too.

    Pairs that follow each other meet the same disturbance, so on a busy machine they are not the
    independent coins that the test takes them for.
    """
    if second.verdict == "fail":
        return first
    reason = (
        f"two comparisons disagree: {first.ratio:.2f} x the {first.baseline}'s time in the first, "
        f"{second.ratio:.2f} x in the second"
    )
    return replace(first, verdict="undecided", reason=reason)


def _unsuitable(timing: Timing, control: str, wanted: str) -> Timing:
    reason = (
        f"this machine cannot tell times apart now: the {control} must {wanted} at "
        f"{timing.k:g} x the {timing.baseline}, but the result was {timing.verdict}: shorter in "
        f"{timing.wins} of {timing.wins + timing.losses} pairs, median {timing.ratio:.2f} x "
        f"({timing.spread[0]:.2f} to {timing.spread[1]:.2f})"
    )
    return replace(timing, verdict="unsuitable", reason=reason)
