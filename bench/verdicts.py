"""How often a timing verdict is wrong, or missing, when the true ratio is known.

Each load is measured in a separate process (`python -m bench.verdicts`), which is pinned to two
CPUs and prints its gradings as JSON. So the rest of the benchmark needs no JAX. Both sides of a
comparison run the same compiled loop, whose cost is its trip count. So the true ratio is the
ratio of the trip counts, on any machine.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.burners import burning
from bench.figures import Row, proportion, spread
from grader.judging.timing import Window, calibrate, compare

ROOT = Path(__file__).resolve().parent.parent
CALL_SECONDS = 0.002
WINDOW_SECONDS = 0.010
UNDECIDABLE = 0.02
"""No true ratio is drawn nearer to the threshold than this: there, what a call costs besides
its loop would decide the side."""
THRESHOLDS = (1.5, 2.0, 0.5)


class Grading(msgspec.Struct, frozen=True):
    """One comparison: `true` and `measured` are ratios to the threshold."""

    true: float
    measured: float
    verdict: str
    pairs: int
    seconds: float

    @property
    def wrong(self) -> bool:
        """A pass above the threshold or a fail below it."""
        return self.verdict == ("pass" if self.true > 1 else "fail")

    @property
    def undecided(self) -> bool:
        """No verdict."""
        return self.verdict == "undecided"


def row(burners: int, gradings: int) -> Row:
    """Measure in another process, and compare what it found with the limits."""
    module = ["-m", "bench.verdicts", "--burners", str(burners), "--gradings", str(gradings)]
    words = [sys.executable, *module]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    found = msgspec.json.decode(done.stdout, type=list[Grading])
    return judged(found, burners, " ".join(["python", *module]))


def judged(found: list[Grading], burners: int, command: str) -> Row:
    """The row. Its limits: at most 0.2 % wrong, and at most 5 % undecided outside +-10 %."""
    wrong = sum(g.wrong for g in found)
    clear = [g for g in found if abs(g.true - 1) > 0.1]
    near = [g for g in clear if 0.8 < g.true < 1.25]
    undecided = sum(g.undecided for g in clear)
    undecided_near = sum(g.undecided for g in near)
    seconds = spread([g.seconds for g in found])
    bias = spread([g.measured / g.true for g in found])
    figures = (
        f"wrong {proportion(wrong, len(found))}; undecided {proportion(undecided, len(clear))}, "
        f"of these {undecided_near} of {len(near)} within 0.8x to 1.25x; {seconds} s each"
    )
    load = f"{burners} CPU burners on 2 cores" if burners else "quiet"
    return Row(
        title=f"timing verdicts, {load}",
        command=command,
        figures=figures,
        limit="wrong <= 0.2 %, undecided <= 5 % outside +-10 % of the threshold",
        holds=wrong <= 0.002 * len(found) and undecided <= 0.05 * len(clear),
        spreads={"seconds": seconds, "ratio measured / true": bias},
        counts={
            "gradings": len(found),
            "wrong": wrong,
            "outside": len(clear),
            "undecided outside": undecided,
            "undecided in all": sum(g.undecided for g in found),
        },
    )


def looped() -> Callable[[int], Window]:
    """A function from a trip count to a window of the compiled loop with that many trips."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def work(x: jax.Array, trips: int) -> jax.Array:
        y: jax.Array = jax.lax.fori_loop(0, trips, lambda _, y: jnp.tanh(y @ y * 0.01), x)
        return y

    inputs = [jax.random.normal(jax.random.key(i), (64, 64)) for i in range(8)]
    choice = random.Random()

    def side(trips: int) -> Window:
        def window(calls: int) -> float:
            start = time.perf_counter()
            # One wait for all calls, as in the grader's own windows. A wait for each call would
            # add the time of a wake-up, which on a busy machine has nothing to do with the loop.
            jax.block_until_ready([work(choice.choice(inputs), trips) for _ in range(calls)])
            return time.perf_counter() - start

        return window

    side(1)(1)  # compiles
    return side


def measure(
    gradings: int, rng: random.Random, side: Callable[[int], Window], trips: int
) -> list[Grading]:
    """Grade true ratios, drawn log-uniformly from 0.25 to 4 times the threshold."""
    found = []
    for number in range(1, gradings + 1):
        found.append(grade(side, trips, rng))
        if number % 50 == 0:
            print(f"  {number} of {gradings} gradings", file=sys.stderr)
    return found


def grade(side: Callable[[int], Window], trips: int, rng: random.Random) -> Grading:
    """Draw a threshold and a true ratio, and compare as the grader does, retry included.

    The controls are left out: they are comparisons of the same kind, far from the
    threshold, and would only dilute what is counted here.
    """
    k, wanted = rng.choice(THRESHOLDS), 1.0
    while abs(wanted - 1) < UNDECIDABLE:
        wanted = 4 ** rng.uniform(-1, 1)
    mine = round(wanted * k * trips)
    start = time.perf_counter()
    baseline = side(trips)
    calls = calibrate(baseline, WINDOW_SECONDS)
    timing = compare(
        side(mine), baseline, k=k, rng=rng, baseline_calls=calls, target_seconds=WINDOW_SECONDS
    )
    seconds = time.perf_counter() - start
    pairs = timing.wins + timing.losses
    return Grading(mine / (k * trips), timing.ratio / k, timing.verdict, pairs, seconds)


def main() -> None:
    """Print the gradings as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--burners", type=int, default=0)
    parser.add_argument("--gradings", type=int, default=500)
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    os.environ["JAX_PLATFORMS"] = "cpu"  # the loop runs on the CPU, whatever devices are here
    side = looped()
    # Calibrated before the noise starts. If the loop came out too short, the cost of a call would
    # outweigh it, and the ratio of trip counts would not be the true ratio.
    trips = calibrate(lambda count: side(count)(1), CALL_SECONDS)
    with burning(options.burners):
        found = measure(options.gradings, random.SystemRandom(), side, trips)
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
