"""The runs of ex11_fewer_launches: what each launched, and how long its program was.

A run is named by its number of steps, and by its number among the runs with so many.
"""

import msgspec

FIRST, AGAIN, GOING_ON = "first", "again", "going on"
"""The phases: the first run with a number of steps, and each later one with that number. A run of
another number of pendulums is a first one again. The last phase is that of a run which begins with
the state that an earlier one returned."""
AT_REST, LOST = "all speeds are 0", "an angle and a speed are NaN"
"""How some runs begin."""
COMMITTED, WEAK = "committed to its device", "weakly typed"
GIVEN, RETURNED = "the caller's", "what a run returned:"
"""The words for arrays that a later run may delete."""

OPERATIONS = 5
"""The operations of a step."""
BY_OLD_SPEED = "what comes of an angle that moves by the speed before the step"
"""What is said of a step in which the angle gets the old speed."""
FEW = 5
"""With fewer steps, one mistake gives the numbers of another."""
UNROLLED, WHOLE = 100, 400
"""Half as many steps may stand in the program of any run, and in that of a long one."""


class Run(msgspec.Struct, omit_defaults=True):
    """One run: its launches, and of a first one also what it compiled."""

    steps: int
    number: int
    phase: str
    pendulums: int = 0
    launches: int = 0
    functions: dict[str, int] = {}
    """How often each function was called from outside all others, most often first."""
    operations: int = 0
    """The arithmetic in the text of the programs that it compiled."""
    told: bool = False
    """Whether a program that it compiled gives numbers to Python, by a callback."""
    deleted: list[str] = []
    """The arguments that it deletes."""
    came_back: str = ""
    """How the state that it goes on from came back, other than a caller makes it: COMMITTED, WEAK,
    or ""."""
    began: str = ""
    """How it begins, if not as the others: AT_REST, LOST, or ""."""
    later: dict[str, list[str]] = {}
    """What a later run deletes, though it does not delete it itself: GIVEN or RETURNED -> names."""

    @property
    def is_unrolled(self) -> bool:
        """Whether its program holds the run's steps one by one: more than half of their operations.

        A loop that is unrolled by 32 holds 63 copies of the step at most, and fewer in most runs.
        """
        return self.operations >= OPERATIONS * min(max(self.steps, UNROLLED), WHOLE) / 2


def state_after(steps: int, number: int) -> str:
    """The name of the state that the run with this number, of all with so many steps, returns."""
    return f"state after {steps} steps in run {number}"


def phase_of(phase: str, number: int) -> str:
    """The phase of the run with this number of all runs, from 1; it begins with the run's own."""
    return f"{phase} {number}"
