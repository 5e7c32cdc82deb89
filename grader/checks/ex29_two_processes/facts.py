"""What the processes of ex29_two_processes are given and tell, and how each of them ended."""

import msgspec

from grader.records.record import Leaf

HOST = "host"
"""The fact that says at which host the processes meet."""


class Given(msgspec.Struct):
    """One run: how many devices each process has, and the rows that each has read."""

    devices: int
    rows: list[list[list[list[float]]]]
    """The rows of each process: of its first batch, then of its second."""

    @property
    def count(self) -> int:
        """How many processes there are."""
        return len(self.rows)


class Round(msgspec.Struct):
    """What a process tells of one batch."""

    programs: list[str] = []
    """The programs that were compiled while `global_batch` ran, or that exchanged something."""
    changed: bool = False
    """Whether `global_batch` changed the rows that it was given."""
    batch: list[Leaf] = []
    """What `global_batch` returned, without values."""
    own: list[list[list[float]]] = []
    """The values of this process's shards, in the order of the mesh; none if there are many."""
    same: bool | None = None
    """Where there are many: whether the shards hold what the process was given."""
    exchanged: list[tuple[str, int, int | None]] = []
    """The programs that ran since the batch before, or since the process started: the name of each,
    how many bytes it exchanged between devices, each time that it ran, and the learner's line."""
    mean: float | str = ""
    """What `mean` returned; in words where it is no finite float."""
    deleted: bool = False
    """Whether what `global_batch` returned was gone then."""


class Told(msgspec.Struct):
    """What a process tells, in this order; one that ends early tells only the first part.

    The names of the fields are those that `joining.part` says.
    """

    doing: str = ""
    """The learner's function that was called last: `join`, `global_batch` or `mean`."""
    host: str = ""
    """The host at which JAX met the others."""
    visible: str = "all"
    """Which GPUs of its machine JAX would use."""
    processes: int = 0
    """How many processes JAX counts."""
    index: int = -1
    """The index that JAX gives this process."""
    devices: int = 0
    """How many devices JAX lists, of all processes."""
    met: bool = False
    """Whether a process listens at the address where both were to meet."""
    rounds: list[Round] = []
    """One for each batch."""
    joined: bool = False
    """Whether the process is still joined to the others at the end."""


class Process(msgspec.Struct):
    """How one process ended, as `grader.stages.hosts.Ran` has it, and what it told."""

    end: str
    message: str = ""
    line: int | None = None
    """The learner's line that raised, or that did not end."""
    told: Told = msgspec.field(default_factory=Told)
