"""Measures every program of a submission and of the reference, and times one of them.

A worker calls this module in a process that never saw the learner's Python. What to measure,
and on which inputs, comes from the grader. How it is measured is in `grader.program.measuring`
and `grader.program.pairs`.
"""

import os
import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from grader.probes.describe import describe
from grader.program.export import export_program
from grader.program.loading import Refused
from grader.program.measuring import Built, Lowered, build, examine, lower
from grader.program.pairs import compare
from grader.program.placing import runnable
from grader.records.record import Leaf, Measured, Timing

Programs = Mapping[str, bytes]
"""Name -> the exported program, as `export_program` serialised it."""


Inputs = Mapping[str, list[list[Leaf]]]
"""Name -> sets of flat inputs, with values."""


@dataclass
class _Side:
    """One program: what was measured and, unless it was refused, the program.

    Where a step refuses it, the steps after that do nothing.
    """

    measured: Measured
    blob: bytes
    lowered: Lowered | None = None
    built: Built | None = None

    def lower(self) -> None:
        """Load it."""
        try:
            self.lowered = lower(self.blob, self.measured)
        except Refused as reason:
            reason.note(self.measured)

    def build(self) -> None:
        """Compile it."""
        try:
            self.built = build(self.lowered) if self.lowered else None
        except Refused as reason:
            reason.note(self.measured)

    def run(self, sets: Sequence[list[Leaf]]) -> None:
        """Read what was compiled, and run it on the first of the sets of inputs."""
        try:
            if self.built:
                examine(self.built, self.measured, sets[0] if sets else None)
        except Refused as reason:
            self.built = None
            reason.note(self.measured)


def measurements(
    submission: Programs,
    reference: Programs,
    inputs: Inputs,
    *,
    timed: str = "",
    at_most: float = 0.0,
    seed: int = 0,
) -> tuple[dict[str, Measured], dict[str, Measured], dict[str, Timing]]:
    """Measure all programs of both sides, and time the one that `timed` names, if any.

    It may take at most `at_most` times as long as the reference program of that name; `seed`
    draws the order of the windows. Returns what became of each program of either side, by
    name, and the timing by the name of the program that was timed.
    """
    theirs = {name: _Side(Measured(name), blob) for name, blob in reference.items()}
    mine = {name: _Side(Measured(name), blob) for name, blob in submission.items()}
    _examine([*theirs.values(), *mine.values()], inputs)
    timing = {}
    if timed in mine and timed in theirs:
        sets, rng = inputs.get(timed, []), random.Random(seed)
        found = _timing(mine[timed], theirs[timed], sets, at_most, rng)
        timing = {timed: found} if found else {}
    return _measured(mine), _measured(theirs), timing


def _measured(sides: Mapping[str, _Side]) -> dict[str, Measured]:
    return {name: side.measured for name, side in sides.items()}


def _examine(sides: Sequence[_Side], inputs: Inputs) -> None:
    """Compile all programs, as many at a time as there are processors; then run one by one."""
    for side in sides:
        side.lower()
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for _ in pool.map(_Side.build, sides):
            pass
    for side in sides:
        side.run(inputs.get(side.measured.name, []))


def _timing(
    mine: _Side, theirs: _Side, sets: list[list[Leaf]], at_most: float, rng: random.Random
) -> Timing | None:
    """The comparison of two programs, or None where one of them cannot be run."""
    if not (mine.built and theirs.built and sets and all(map(runnable, sets))):
        return None
    try:
        return compare(mine.built, theirs.built, sets, k=at_most, rng=rng)
    except Refused as reason:
        reason.note(mine.measured)
        return None


def warm_up() -> None:
    """Export and measure a small program, so that JAX has loaded what the first one needs."""
    values = (jax.device_put(np.ones((2, 2), np.float32)),)
    small = export_program("small", jax.jit(lambda x: jnp.tanh(x @ x)), values)
    measurements({"small": small.blob}, {}, {"small": [describe(values)[0]]})
