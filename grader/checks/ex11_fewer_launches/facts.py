"""The runs of ex11_fewer_launches: what each launched, or how long its program was.

A run is named by its number of steps; no two have the same.
"""

import msgspec


class Run(msgspec.Struct):
    """The second of two runs with this number of steps, and the programs that it launched."""

    steps: int
    launches: int
    functions: list[str]
    """The names of the launched functions, sorted."""


class Length(msgspec.Struct):
    """The first run with this number of steps, and the text of the programs it compiled."""

    steps: int
    lines: int


def state_after(steps: int) -> str:
    """The name of the state that the run with this number of steps returns."""
    return f"state after {steps} steps"


def deleted_after(steps: int) -> str:
    """The name of the list of arguments that this run deletes."""
    return f"deleted after {steps}"
