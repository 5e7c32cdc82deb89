"""The runs of ex11_fewer_launches: what each launched, and how long its program was.

A run is named by its number of steps, and by its number among the runs with so many.
"""

import msgspec

FIRST, AGAIN = "first", "again"
"""The phases: the first run with a number of steps, and each later one with that number."""

OPERATIONS = 5
"""The operations of a step."""
UNROLLED = 100
"""So many steps may stand in the program of any run."""


class Run(msgspec.Struct, omit_defaults=True):
    """One run: its launches, and of a first one also what it compiled."""

    steps: int
    number: int
    phase: str
    launches: int = 0
    functions: dict[str, int] = {}
    """How often each function was called from outside all others, most often first."""
    operations: int = 0
    """The arithmetic in the text of the programs that it compiled."""
    told: bool = False
    """Whether a program that it compiled gives numbers to Python, by a callback."""
    deleted: list[str] = []
    """The arguments that it deletes."""

    @property
    def is_unrolled(self) -> bool:
        """Whether its program holds the run's steps one by one: more than half of their operations.

        A loop that is unrolled by 32 holds 63 copies of the step at most, and fewer in most runs.
        """
        return self.operations >= OPERATIONS * max(self.steps, UNROLLED) / 2


def state_after(steps: int, number: int) -> str:
    """The name of the state that the run with this number, of all with so many steps, returns."""
    return f"state after {steps} steps in run {number}"
