"""What each run was given, and how its arrays came to the calls of `step` and `error_of`."""

from typing import Literal

import msgspec

NAMES = ("params", "stats", "batch")
"""The arguments of `step` and `error_of`, each a dict of arrays."""
RUNS = "runs"
"""The fact that holds a list of `Run`."""
HIDES = "hidden errors"
"""The fact that lists what raised, of `step` and `batches`, while `train` returned all the same."""

SLIPS = (
    "the error of each batch after its step",
    "what the params that `train` was given make of each batch",
)
"""Known mistakes: what the errors would be."""

How = Literal["numpy", "anew", "again"]
"""How an array came that no call had got before: as a NumPy array, in a buffer of its own, or
in a buffer that another array had before it."""


class Run(msgspec.Struct):
    """What one run was given, and what its calls got."""

    batches: int
    arrays: dict[str, int]
    """How many arrays there are in each of NAMES."""
    nbytes: dict[str, int]
    """How many bytes the arrays in each of NAMES have together, those of all batches in "batch"."""
    steps: int = 0
    """How often `step` was called."""
    changed: list[str] = []
    """What of params, stats and batches the caller no longer has as it was: `stats['mean']`."""
    late: int = 0
    """How often a step was called before the error of its batch was measured."""
    other: list[int] = []
    """The first call of `step` that got another batch than its own, and that batch; from 0."""
    ahead: int = 0
    """How many batches after a step's own had been taken when it began, at most."""
    placed: int = 0
    """How many batches after a step's own lay on the device when it began, at most.

    By their bytes, whatever their form: those beyond what lay there in the last step."""
    through_host: int = 0
    """How many programs that were compiled in this run keep arrays in host memory."""
    constants: list[int] = []
    """The bytes of each array that was made a constant of a program in this run."""
    came: dict[str, dict[str, list[tuple[How, int]]]] = {}
    """Argument, of NAMES -> key of an array -> each array that no call had got before under that
    key: how it came, and the learner's line, or 0 if that is unknown."""

    @property
    def phase(self) -> str:
        """The phase of the run."""
        return f"{self.batches} batches"

    @property
    def results(self) -> tuple[str, str]:
        """The names of what the run returned: its errors and its params."""
        return f"errors of {self.batches}", f"params after {self.batches}"

    @property
    def gave(self) -> tuple[str, str]:
        """The names of what the calls returned: all errors; the params of the last step."""
        return f"errors that calls returned in {self.batches}", f"last params in {self.batches}"

    @property
    def first_call(self) -> str:
        """The name of what the first call of `step` or `error_of` got."""
        return f"first arguments of {self.batches}"

    @property
    def fewest(self) -> int:
        """How many copies to the device a run must make."""
        return self.batches * self.arrays["batch"] + self.arrays["params"] + self.arrays["stats"]

    @property
    def bytes_of_all(self) -> int:
        """The bytes of all that a run must copy."""
        return sum(self.nbytes.values())

    def fewest_of_each(self, name: str) -> int:
        """How often a run must copy each array of `name`, of NAMES."""
        return self.batches if name == "batch" else 1
