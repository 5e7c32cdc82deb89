"""The figures of the table: medians with their spread, ratios, proportions, and a row.

What is measured comes from `commands`, `sessions`, `margins` and `verdicts`.
"""

import math
import statistics
from collections.abc import Callable, Sequence

import msgspec

Seconds = Callable[[], float]
"""Does the work once and returns its wall time in seconds."""


class Spread(msgspec.Struct, frozen=True):
    """Median, least and greatest of `runs` measurements."""

    median: float
    low: float
    high: float
    runs: int

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


class Row(msgspec.Struct, frozen=True):
    """One line of the table: what was run, what came out, and whether that keeps the limit."""

    title: str
    command: str
    figures: str
    limit: str
    holds: bool
    spreads: dict[str, Spread] = {}
    """The figures as numbers: seconds, or ratios where the name says so."""
    counts: dict[str, int] = {}


def spread(values: Sequence[float]) -> Spread:
    """Summarise at least one measurement."""
    return Spread(statistics.median(values), min(values), max(values), len(values))


def interleaved(rounds: int, *runs: Seconds) -> list[list[float]]:
    """Time each of `runs` once a round; return one list of times for each.

    So a machine that slows down slows all of them alike. Every second round goes in reverse
    order, so that none is always the first.
    """
    times: list[list[float]] = [[] for _ in runs]
    order = list(range(len(runs)))
    for _ in range(rounds):
        for index in order:
            times[index].append(runs[index]())
        order.reverse()
    return times


def ratios(above: Sequence[float], below: Sequence[float]) -> Spread:
    """The ratios `above / below` of each round, summarised."""
    return spread([a / b for a, b in zip(above, below, strict=True)])


def interval(count: int, of: int) -> tuple[float, float]:
    """Wilson's 95 % interval of the proportion `count / of`."""
    if of == 0:
        return 0.0, 1.0
    z = statistics.NormalDist().inv_cdf(0.975)
    share, shrink = count / of, 1 + z * z / of
    middle = (share + z * z / (2 * of)) / shrink
    half = z * math.sqrt(share * (1 - share) / of + (z / (2 * of)) ** 2) / shrink
    return max(0.0, middle - half), min(1.0, middle + half)


def proportion(count: int, of: int) -> str:
    """`1 of 500, 0.20 % (0.04 to 1.12 %)`."""
    low, high = interval(count, of)
    share = 100 * count / of if of else 0.0
    return f"{count} of {of}, {share:.2f} % ({100 * low:.2f} to {100 * high:.2f} %)"
