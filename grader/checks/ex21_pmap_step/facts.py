"""The runs and the programs of ex21_pmap_step as they were drawn, and names of what they gave."""

import msgspec

RUNS = "runs"
"""The fact that lists each `Run`."""
FEW_ROWS, MANY_ROWS = "update of few rows", "update of many rows"
"""Two programs, of networks with as many params, that differ in how many rows each device has, and
in how long a row is."""
STEPS = "steps"
"""The phase in which the steps of all runs are taken."""
PARAMS = 480
"""The bytes of their params."""
TWICE = "update of twice the params"
"""A program for as many rows as the first one's, of a network with twice as many params."""
ODD = (
    "NaN among the targets of one device",
    "NaN among the inputs of one device",
    "targets so far away that the loss is infinite",
)
"""What is odd in each of three more steps of a run."""
ODD_RUN = "the run of the odd steps"
"""The fact that says which one it is, from 0."""
NEW_PARAMS = "the loss of the params after the step"
"""What a value of the reference's side holds, in words. Its name begins with that of the losses."""


class Run(msgspec.Struct):
    """Steps on one list of devices."""

    order: list[int]
    """The ids of the devices, in the order of the list `devices`."""
    steps: int
    """The last of them has targets that are far away."""


def copies(run: int) -> str:
    """The name of what `replicate` returned in run `run`, from 0."""
    return f"copies of run {run}"


def slices(run: int) -> str:
    """The name of the fact that says on which devices the slices of those copies lie."""
    return f"slices of run {run}"


def left(run: int) -> str:
    """The name of the fact that says how many bytes of other arrays `replicate` left alive."""
    return f"left beside the copies of run {run}"


def exchanged(run: int) -> str:
    """The name of the fact that lists each `Collective` of the programs that a run's steps ran."""
    return f"exchanged in run {run}"


def programs(run: int) -> str:
    """The name of the fact that says what programs of `replicate` hold and exchange, in bytes."""
    return f"programs of run {run}"


def start(run: int) -> str:
    """The name of the copies that the steps of a run begin with."""
    return f"start of run {run}"


def batch(run: int) -> str:
    """The name of (inputs, targets) of the first step of a run, as the reference's side keeps."""
    return f"batch of step 1 of run {run}"


def odd_params(odd: str) -> str:
    """The name of the params after the step with what is odd, in words of `ODD`."""
    return f"params after a step with {odd}"


def odd_losses(odd: str) -> str:
    """The name of the losses of that step."""
    return f"losses of a step with {odd}"


def params(run: int, step: int) -> str:
    """The name of the params after step `step`, from 1, of a run."""
    return f"params after step {step} of run {run}"


def losses(run: int, step: int) -> str:
    """The name of the losses of step `step`, from 1, of a run."""
    return f"losses of step {step} of run {run}"
