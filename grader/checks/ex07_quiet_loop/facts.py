"""What both halves know of the watched runs, and how long a batch takes in the timed ones."""

from typing import Any

RUNS = "runs"
"""The fact that lists, for each watched run, its steps."""
CALLS = "calls of step"
"""The fact that lists, for each watched run, how often `step` was called."""
MISSED = "batches without a step"
"""The fact that lists, for each watched run, the numbers of the batches with which `step` was not
called, from 0."""
ALTERED = "steps with other params"
"""The fact that lists, for each watched run, the first step, from 0, that got other params than the
step before returned, if there is one."""
AHEAD = "batches taken ahead"
"""The fact that lists, for each watched run, the most batches that were taken and had no step."""
HIDES = "hidden errors"
"""The fact that lists what raised, of `step` and `batches`, while `train` returned all the same."""
WAITED = "held steps that the host waited for"
"""The fact that lists steps, from 0, for which the host waited in the run that holds its steps."""
NOT_FED_BACK = "what `step` returns where each step begins with the first params"
"""A known mistake: what the losses would be."""
PREPARING = 0.75
"""How long the host prepares a batch in the timed runs, in steps of the device."""


def phase(steps: Any) -> str:
    """The phase of a watched run. No two runs have the same number of steps."""
    return f"{steps} steps"


def last(steps: Any) -> str:
    """The params that the last step of a watched run returned."""
    return f"params that step returned last in {steps}"


def gave(steps: Any) -> str:
    """The losses that `step` returned in a watched run, as floats."""
    return f"losses that step returned in {steps}"
