"""The batches of ex19_shard_batch: their names, their sizes, and the names of their arrays."""

import math

import msgspec

BATCHES = (
    "the full batch",
    "the ragged batch",
    "the batch with a single row",
    'the batch on a mesh whose second axis is "data"',
    'the batch on a mesh whose first axis is "data"',
    "the batch on some of the devices",
)
"""What the drive calls its batches. Each has a fact, a phase and a value of that name."""
UNDER_JIT = {name: f"loss under jit of {name}" for name in BATCHES[1:3]}
"""The batches whose loss is taken under jit, too, and the names of these values."""
SQUARE = BATCHES[3]
"""The batch whose inputs have as many columns as its targets."""
REPEATED = BATCHES[1]
"""The batch that is followed by another one of its shape, on the same mesh."""
AGAIN = f"{REPEATED}, with other numbers"
"""That other one."""
MARKED = f"loss of {REPEATED}, with other own rows"
"""The value that is the loss of that batch where the mask marks another number of rows."""
MISSING = {
    (key, number): f"loss of {REPEATED}, with {number} in its {key}"
    for key in ("targets", "inputs")
    for number in (math.nan, math.inf)
}
"""The values that are losses of such a batch: NaN, or infinite."""
SPLIT = (*BATCHES, AGAIN)
"""All batches that `shard_batch` gets. The loss is taken of the others."""
ARRAYS = ("inputs", "targets", "mask")
"""What `shard_batch` returns, in order."""


class Batch(msgspec.Struct, frozen=True):
    """The sizes of one batch, and of the mesh over which it is split."""

    parts: int
    """The length of the axis "data"."""
    rows: int
    """The batch's own rows."""
    devices: int
    """How many devices the mesh has."""
    first: bool = False
    """Whether "data" is the first of three axes, and not the second of two."""

    @property
    def full(self) -> int:
        """The rows with the fewest added rows that make all parts equal."""
        return self.rows + -self.rows % self.parts


def uneven_of(name: str) -> str:
    """The fact that holds the shape of an array which JAX could not split, for a batch."""
    return f"an array that cannot be split, of {name}"


def constants_of(name: str) -> str:
    """The fact that says how many bytes the constants of all programs have, for a batch."""
    return f"constants, of {name}"


def told_of(name: str) -> str:
    """The fact that says how many numbers of the rows stand in programs, for a batch."""
    return f"numbers of the rows in programs, of {name}"


def changed_of(name: str) -> str:
    """The fact that lists which of the caller's arrays were others after the call, for a batch."""
    return f"what is no longer as it was, of {name}"
