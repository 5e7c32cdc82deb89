"""What was observed, as versioned data.

A `Record` is all that a check may look at: it is written by worker processes and
read as untrusted input (typed, size-capped by the reader). Nothing here knows JAX or
NumPy; arrays are `.npy` bytes. What was decided is in `grader.records.verdict`.
"""

from typing import Any, Literal

import msgspec

RECORD_VERSION = 1


class Leaf(msgspec.Struct, frozen=True, omit_defaults=True):
    """One leaf of a pytree, described without running any of its own methods.

    `kind` is "jax" for a concrete `jax.Array`, "numpy" for a plain ndarray or NumPy
    scalar, "python" for an exact bool, int, float, complex, str or None, "other" for
    everything else (which is never converted, compared or called).
    """

    path: str
    kind: Literal["jax", "numpy", "python", "other"]
    type: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    platform: str = ""
    devices: tuple[int, ...] = ()
    committed: bool | None = None
    memory_kind: str | None = None
    spec: str | None = None
    shard_shape: tuple[int, ...] | None = None
    replicated: bool | None = None
    parts: dict[int, tuple[tuple[int, int], ...]] = {}
    """Of an array on several devices: device -> the start and stop of its part, by axis."""
    unlike: tuple[int, float] | None = None
    """A device whose copy of a part is not that of another device, and the largest difference.

    JAX believes an array that says it is replicated; nothing makes its copies equal. None where
    they are, to the last bit, or where the values were not kept."""
    deleted: bool = False
    buffer: int | None = None
    """Address of the device buffer; None when the array spans devices."""
    data: bytes | None = None
    """The values as `.npy` (bfloat16 widened to float32), or None if not kept."""


PINNED = "pinned_host"
"""The memory kind of host memory that a device copies to and from by itself."""
PREFETCHED = "after copy_to_host_async in an earlier step"
"""The detail of a read whose copy was started in an earlier step: the read does not wait."""
STARTED = "after copy_to_host_async in this step"
"""The detail of a read whose copy was started in the same step: it waits for that copy."""
READY = "of an array that is_ready said was there"
"""The detail of a read of what is known to be there: it waits for no step."""
UNWAITED = (PREFETCHED, READY)
"""The details of reads that do not wait for a step."""
POLLED = "is_ready"
"""The detail of a wait by asking an array again and again whether it is ready.

How many steps were waited for so hangs on how fast the machine was: it is in no message.
"""
EventKind = Literal[
    "h2d", "d2h", "d2d", "compile", "trace", "wait", "async_copy", "launch", "exchange"
]
"""An exchange is one collective of a program that ran; `detail` names it, "all-gather"."""


class Event(msgspec.Struct, omit_defaults=True):
    """`count` things of one kind at one place.

    `line` is a line of the learner's file, None when no frame of it was on the stack.
    `step` is the number of `Observe.mark()` calls before the event; `nbytes` is None
    where JAX does not say.
    """

    kind: EventKind
    phase: str
    step: int = 0
    line: int | None = None
    count: int = 1
    nbytes: int | None = None
    detail: str = ""


class Witnessed(msgspec.Struct, omit_defaults=True):
    """What a witness below Python says of one run: a device's book, or the runtime's trace.

    The grader fills in what the book of a device next door has, from outside. The trace is the
    runtime's own, read in the worker: its word adds to what the probes saw, and takes nothing
    away. Copies count once for each shard; `line` is the line after which the worker marked its
    place. `grader.judging.witness` lays either beside what the probes saw.
    """

    events: list[Event] = []
    problem: str = ""
    """Why it is no evidence, or ""."""
    by: Literal["book", "trace"] = "book"
    shared: list[str] = []
    """Phases in which several threads worked, if a trace says so: there, steps are not exact."""


class Program(msgspec.Struct, omit_defaults=True):
    """A jittable function as the worker exported it (`jax.export`, StableHLO)."""

    name: str
    blob: bytes = b""
    problem: str = ""
    """Why there is no blob, in words for the learner."""
    line: int | None = None
    """The learner's line that could not be traced, if one is known."""


class Frame(msgspec.Struct, omit_defaults=True):
    """One frame of a traceback that lies in the learner's file."""

    line: int
    function: str
    text: str
    column: int = 0
    """Where the expression that was evaluated begins, in characters from 1; 0 if unknown."""
    end: int = 0
    """The column after its end, if that is on the same line; else 0."""


OutcomeKind = Literal[
    "finished", "raised", "exited", "killed", "timeout", "flooded", "garbled", "unusable", "broken"
]


class Outcome(msgspec.Struct, omit_defaults=True):
    """How a worker process ended, as its parent saw it."""

    kind: OutcomeKind
    message: str = ""
    frames: list[Frame] = []
    output: str = ""
    """The tail of what the learner's code printed."""
    seconds: float = 0.0
    promise: str = ""
    """What the exercise asks of the code, if the code did not keep it."""


class Observed(msgspec.Struct, omit_defaults=True):
    """All that one worker saw while it drove one file."""

    outcome: Outcome
    values: dict[str, list[Leaf]] = {}
    """Named pytrees, flattened."""
    trees: dict[str, str] = {}
    """The tree structure of each named pytree, as text."""
    forms: dict[str, list[str]] = {}
    """What each node of a named pytree is: "sequence", "mapping", a class, or "*" for a leaf."""
    facts: dict[str, Any] = {}
    """Named plain JSON values."""
    events: list[Event] = []
    programs: dict[str, Program] = {}
    inputs: dict[str, list[list[Leaf]]] = {}
    """Program name -> sets of flat arguments, with values."""
    missing_probes: dict[str, str] = {}
    """Probe name -> why it could not be installed or proved."""
    targeted: dict[str, Program] = {}
    """Programs exported for a target's platform, if one was asked for."""
    witnessed: Witnessed | None = None
    """The counts of the second witness, if there is one. What a worker says here is taken as a
    trace's, and replaced where this ran on a device next door."""
    ran: list[tuple[int, int]] = []
    """Where the pieces of the file begin that ran: lines from 1, columns in bytes from 0."""


class Collective(msgspec.Struct):
    """One collective of a compiled program; `nbytes` is the size of its result."""

    op: str
    nbytes: int
    count: int = 1
    runs: int = 1
    """How often each is run; 0 in a loop whose length the compiler does not know."""

    @property
    def total(self) -> int:
        """Bytes of all its results; 0 in a loop whose length the compiler does not know."""
        return self.nbytes * self.count * self.runs


class Memory(msgspec.Struct):
    """`Compiled.memory_analysis()`, bytes on one device."""

    arguments: int
    outputs: int
    temporaries: int
    aliased: int
    peak: int
    host_arguments: int = 0
    host_outputs: int = 0
    host_temporaries: int = 0


class Timing(msgspec.Struct, omit_defaults=True):
    """A sequential paired comparison; see `grader.judging.timing`."""

    verdict: Literal["pass", "fail", "undecided", "unsuitable"]
    k: float
    wins: int
    losses: int
    ratio: float
    """Median of submission time / baseline time over the pairs."""
    spread: tuple[float, float]
    """Lower and upper quartile of that ratio."""
    baseline: str = "reference"
    reason: str = ""

    @property
    def pairs(self) -> int:
        """Pairs that were decided."""
        return self.wins + self.losses


class Signature(msgspec.Struct, frozen=True):
    """Flat arguments and results of an exported program, as text."""

    arguments: tuple[str, ...]
    results: tuple[str, ...]
    in_tree: str
    out_tree: str
    devices: int


class Measured(msgspec.Struct, omit_defaults=True):
    """What a process that never saw the learner's Python made of a program."""

    name: str
    problem: str = ""
    """Why it could not be loaded, compiled or run, in words for the learner."""
    refused: list[str] = []
    """Operations outside the allow-list."""
    signature: Signature | None = None
    in_shardings: list[str] = []
    out_shardings: list[str] = []
    out_memory_kinds: list[str] = []
    donated: list[int] = []
    """Flat indices of donated arguments."""
    aliases: dict[str, int] = {}
    """Output index -> argument index, as compiled."""
    deleted: list[int] = []
    """Flat indices of the arguments that a run deleted."""
    reused: dict[str, int] = {}
    """Output index -> index of the argument in whose buffers it lay after a run."""
    collectives: list[Collective] = []
    operations: dict[str, int] = {}
    """Operation -> how often the exported program runs it."""
    host_copies: int = 0
    memory: Memory | None = None
    flops: float = 0.0
    """What the compiler counts: the body of a loop once."""
    work: int = 0
    """Operations on one device, a loop's as often as it runs; 0 where that is not known."""
    outputs: list[Leaf] = []
    timing: Timing | None = None


class Target(msgspec.Struct, frozen=True):
    """A machine to compile for, of `grader.program.targets`. Bandwidths are bytes a second."""

    name: str
    title: str
    """`8 x NVIDIA H200`."""
    device_kind: str
    nodes: int
    per_node: int
    """Devices of one node."""
    memory_bytes: int
    """Of one device."""
    memory_bandwidth: float
    """Of one device."""
    node_bandwidth: float
    """What one device can send to others of its node."""
    network_bandwidth: float
    """What one device can send to another node; 0 where there is one node."""
    sources: dict[str, str]
    """Field -> where its figure is from."""

    @property
    def devices(self) -> int:
        """Devices of all nodes."""
        return self.nodes * self.per_node


class Machine(msgspec.Struct, omit_defaults=True):
    """Where the evidence was taken."""

    platform: str
    device_kind: str
    devices: int
    simulated: bool
    jax: str
    python: str
    instead: str = ""
    """Why this is not the device next door that was asked for, or ""."""
    isolation: list[str] = []
    """What fenced the learner's process, or why a fence could not be set up."""

    @property
    def refused(self) -> list[str]:
        """The fences that could not be set up."""
        return [line for line in self.isolation if line.startswith("refused: ")]


class Made(msgspec.Struct, omit_defaults=True):
    """Who made a record, when and on what. Without it, nobody knows which rules a record fits."""

    grader: str
    """The grader's version."""
    checksum: str
    """Of the exercise: its drive, its checks and its solution."""
    date: str
    """When the grading began, as `2026-01-31T12:00:00Z`."""
    system: str
    """Kernel, architecture and processors: `Linux 6.1.0 x86_64, 2 processors`."""


class Finding(msgspec.Struct, omit_defaults=True):
    """Something wrong with the file itself, found without running it."""

    check: str
    line: int | None
    expected: str
    observed: str


class Record(msgspec.Struct, omit_defaults=True, tag_field="version", tag=RECORD_VERSION):
    """Everything one grading observed; judging it again runs nothing."""

    exercise: str
    path: str
    source: str
    seed: int
    findings: list[Finding] = []
    machine: Machine | None = None
    submission: Observed | None = None
    reference: Observed | None = None
    measured: dict[str, Measured] = {}
    reference_measured: dict[str, Measured] = {}
    timing: dict[str, Timing] = {}
    target: Target | None = None
    """The machine to compile for, if one was asked for."""
    target_problem: str = ""
    """Why nothing could be compiled for it here."""
    target_measured: dict[str, Measured] = {}
    target_reference_measured: dict[str, Measured] = {}
    unavailable: str = ""
    """Why nothing could be run at all (the exercise needs what this machine lacks)."""
    broken: str = ""
    """What broke in the grader itself."""
    made: Made | None = None
    """Who made this record; None where it does not say."""


class _Versioned(msgspec.Struct):
    """What every record has, of whatever version."""

    version: int = 0


def decode_record(raw: bytes) -> Record:
    """Decode a saved record.

    Raises:
      msgspec.DecodeError: the text is not a record, or one of another version.
    """
    version = msgspec.json.decode(raw, type=_Versioned).version
    if version != RECORD_VERSION:
        raise msgspec.ValidationError(
            f"record version {version}, this grader reads {RECORD_VERSION}"
        )
    return msgspec.json.decode(raw, type=Record)
