"""The runs and the programs of ex22_pmap_to_jit, as they were drawn."""

import msgspec

FEATURES, TARGETS = 32, 8
"""Columns of the inputs and of the targets; on some meshes there are a few more."""
RUNS, WIDTH = "runs", "width of the program that is timed"
"""The facts that list each `Run`, and say the width of `TIMED`."""
TIMED = "step"
"""The program that is timed, and compiled for a target."""


ODD = (
    "NaN among the targets of one row",
    "NaN among the inputs of one row",
    "targets so far away that the loss is infinite",
)
"""What is odd in each of three more steps of a run."""
ODD_RUN = "the run of the odd steps"
"""The fact that says which one it is, from 0."""


class Run(msgspec.Struct):
    """Steps on one mesh."""

    devices: int
    width: int
    features: int
    targets: int
    rows: int
    steps: int
    """The last of them has targets that are far away."""
    fewer: int = 0
    """How many rows the batch of the last step has, if it has fewer."""


def shapes(
    width: int, features: int = FEATURES, targets: int = TARGETS
) -> dict[str, tuple[int, ...]]:
    """The shapes of the params of a network of this width; all are float32."""
    return {"w1": (features, width), "b1": (width,), "w2": (width, targets)}


def earlier(run: int) -> int:
    """The number that what `place` made before a run has, of arrays of the same sizes.

    It has one digit, as that of a run: no name begins with another one.
    """
    return 5 + run


def placed_params(run: int) -> str:
    """The name of what `place` made of the params, in run `run`, from 0."""
    return f"params of run {run}"


def placed_batch(run: int) -> str:
    """The name of what `place` made of the batch, in run `run`, from 0."""
    return f"batch of run {run}"


def params_after(run: int, step: int) -> str:
    """The name of the params that step `step`, from 1, of a run returned."""
    return f"params after step {step} of run {run}"


def loss_of(run: int, step: int) -> str:
    """The name of the loss that step `step`, from 1, of a run returned."""
    return f"loss of step {step} of run {run}"


def odd_params(odd: str) -> str:
    """The name of the params that a step returned with what is odd, in words of `ODD`."""
    return f"params after a step with {odd}"


def odd_loss(odd: str) -> str:
    """The name of the loss that this step returned."""
    return f"loss of a step with {odd}"


def batch_donated(run: int) -> str:
    """The name of the fact that says whether the step of a run may write over its batch."""
    return f"batch donated in run {run}"


def program_of(run: int) -> str:
    """The name of the program of the step that a run took, which is compiled and run apart."""
    return f"step of run {run}"


def programs(run: int) -> str:
    """The name of the fact that says what programs of `place` hold and exchange, in bytes."""
    return f"programs of run {run}"


def left(run: int) -> str:
    """The name of the fact that says how many bytes of other arrays `place` left alive.

    Where nothing else stays, it counts the arrays of NumPy's that the earlier call of `place` got.
    """
    return f"left beside the batch of run {run}"
