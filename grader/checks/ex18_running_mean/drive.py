"""Drives ex18_running_mean: exports the mean, and notes what a known mistake would make of it.

The size of `x` and the number of updates are drawn. There are always more than 1000 updates,
and never exactly 1000, so that a mean over the first 1000, or a division by 1000, gives other
numbers. The rates differ, so that the order of the updates counts. The program is exported once
more for eight times as many updates: memory that grows with them shows between the two.
"""

from types import ModuleType
from typing import Any

import jax

from grader.checks.ex18_running_mean.facts import LONG, NAME
from grader.probes.observe import Observe


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Export the mean; keep `x` and the last state, by which the checks recognise mistakes."""
    size = int(rng.integers(24, 41))
    updates = int(rng.integers(1020, 1090))
    x = 20 * rng.standard_normal((size, size))
    rates = rng.uniform(0.01, 0.05, updates)
    arguments = [jax.device_put(value.astype("float32")) for value in (x, rates)]
    mean = submission.mean_of_updates
    if not observe.jitted(NAME, mean):
        return
    observe.fact("array bytes", arguments[0].nbytes)
    observe.fact("updates", updates)
    observe.value("x", arguments[0])
    with observe.unwatched():
        last, _ = jax.lax.scan(lambda x, rate: (submission.update(x, rate), None), *arguments)
        observe.value("last state", last)
    observe.program(NAME, mean, *arguments)
    more = jax.device_put(rng.uniform(0.01, 0.05, 8 * updates).astype("float32"))
    observe.program(LONG, mean, arguments[0], more)
