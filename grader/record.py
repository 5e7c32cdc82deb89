"""What was observed, as versioned data.

A `Record` is all that a check may look at: it is written by worker processes and
read as untrusted input (typed, size-capped by the reader). Nothing here knows JAX or
NumPy; arrays are `.npy` bytes. What was decided is in `grader.verdict`.
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
    deleted: bool = False
    buffer: int | None = None
    """Address of the device buffer; None when the array spans devices."""
    data: bytes | None = None
    """The values as `.npy` (bfloat16 widened to float32), or None if not kept."""


EventKind = Literal["h2d", "d2h", "d2d", "compile", "trace", "wait", "async_copy"]


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


class Program(msgspec.Struct, omit_defaults=True):
    """A jittable function as the worker exported it (`jax.export`, StableHLO)."""

    name: str
    blob: bytes = b""
    problem: str = ""
    """Why there is no blob, in words for the learner."""


class Frame(msgspec.Struct):
    """One frame of a traceback that lies in the learner's file."""

    line: int
    function: str
    text: str


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
    """The structure of each named pytree, as text."""
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


class Collective(msgspec.Struct):
    """One collective of a compiled program; `nbytes` is the size of its result."""

    op: str
    nbytes: int
    count: int = 1
    runs: int = 1
    """How often each is run; 0 in a loop whose length the compiler does not know."""


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
    """A sequential paired comparison; see `grader.timing`."""

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
    """Flat indices of arguments that a run deleted."""
    reused: dict[str, int] = {}
    """Output index -> index of the argument in whose buffers it lay after a run."""
    collectives: list[Collective] = []
    operations: dict[str, int] = {}
    """Operations as exported -> how often each stands there."""
    host_copies: int = 0
    memory: Memory | None = None
    flops: float = 0.0
    outputs: list[Leaf] = []
    timing: Timing | None = None


class Target(msgspec.Struct, frozen=True):
    """A machine to compile for; `grader.targets` has them. Bandwidths are bytes a second."""

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
    isolation: list[str] = []
    """What fenced the learner's process, or why a fence was not to be had."""

    @property
    def refused(self) -> list[str]:
        """The fences that were not to be had."""
        return [line for line in self.isolation if line.startswith("refused: ")]


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
    """Why nothing could be run at all (a need of the exercise this machine lacks)."""
    broken: str = ""
    """What broke in the grader itself."""


class _Versioned(msgspec.Struct):
    """What every record has, of whatever version."""

    version: int = 0


def decode_record(raw: bytes) -> Record:
    """Decode a saved record.

    Raises:
      msgspec.DecodeError: not a record, or of another version.
    """
    version = msgspec.json.decode(raw, type=_Versioned).version
    if version != RECORD_VERSION:
        raise msgspec.ValidationError(
            f"record version {version}, this grader reads {RECORD_VERSION}"
        )
    return msgspec.json.decode(raw, type=Record)
