"""Serves one `MeasureJob`: every program of the submission and of the reference.

The worker calls it in a process that never saw the learner's Python, and sends the
answer to the grader. What to measure, and on which inputs, comes with the job.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from grader.messages import MeasureJob, Measurements
from grader.probes.describe import describe
from grader.program.export import export_program
from grader.program.loading import Refused, load
from grader.program.measuring import Built, examine
from grader.program.pairs import compare
from grader.program.placing import runnable
from grader.record import Measured, Timing


@dataclass
class _Side:
    """One program: what was measured and, unless it was refused, the program."""

    measured: Measured
    built: Built | None = None


def measurements(job: MeasureJob) -> Measurements:
    """Measure all programs of a job, and time the one it names."""
    theirs = {name: _side(job, name, blob) for name, blob in job.reference_programs.items()}
    mine = {name: _side(job, name, blob) for name, blob in job.programs.items()}
    timing = _timing(job, mine.get(job.timed), theirs.get(job.timed))
    return Measurements(_measured(mine), _measured(theirs), timing)


def _measured(sides: Mapping[str, _Side]) -> dict[str, Measured]:
    return {name: side.measured for name, side in sides.items()}


def _side(job: MeasureJob, name: str, blob: bytes) -> _Side:
    sets = job.inputs.get(name, [])
    side = _Side(Measured(name))
    try:
        side.built = examine(load(blob), side.measured, sets[0] if sets else None)
    except Refused as reason:
        reason.note(side.measured)
    return side


def _timing(job: MeasureJob, mine: _Side | None, theirs: _Side | None) -> dict[str, Timing]:
    sets = job.inputs.get(job.timed, [])
    if not (mine and mine.built and theirs and theirs.built and sets and all(map(runnable, sets))):
        return {}
    try:
        rng = random.Random(job.seed)
        return {job.timed: compare(mine.built, theirs.built, sets, k=job.at_most, rng=rng)}
    except Refused as reason:
        reason.note(mine.measured)
        return {}


def warm_up() -> None:
    """Export and measure a small program, so that JAX has loaded what the first one needs."""
    values = (jax.device_put(np.ones((2, 2), np.float32)),)
    small = export_program("small", jax.jit(lambda x: jnp.tanh(x @ x)), values)
    inputs = {"small": [describe(values)[0]]}
    measurements(MeasureJob({"small": small.blob}, {}, inputs))
