"""What the grader says to a fork server, and what it and its workers say to each other.

A fork server takes `Request`, `Stay`, `Keep` and `Take`, one packet each. The rest are
length-prefixed JSON frames. The grader sends a `Setup`, then one `Job`; a worker answers each
with one frame. A `PaceJob` goes on with `Turn`s. Replies are untrusted: they are size-capped by
the reader (`grader.running.process`) and typed here. Code that gets past the source policy
could find the descriptor and answer in its worker's place. Then it can forge observed
evidence, but not expected values, exported programs or times.
"""

import os
import struct
from collections.abc import Sequence
from typing import Literal

import msgspec

from grader.records.record import Leaf, Machine, Measured, Observed, Target, Timing

MAX_FRAME = 1 << 26
BROKE = 70
"""Exit code of a worker whose own code, not the learner's, raised; its stack says what."""
WORKER = "grader.worker.serve"
"""What a worker runs. It imports JAX: it is named here, and imported in fork servers alone."""
_HEADER = struct.Struct("<Q")
Use = Literal["", "read", "add"]
"""What a worker does with programs that another compiled; "" is to use none."""


class Request(msgspec.Struct, tag="fork"):
    """What a worker process needs before it exists."""

    environment: dict[str, str]
    hidden: list[bytes]
    """Folders, as the system names them: a name may be no UTF-8."""
    memory: int
    fenced: bool = True
    modules: list[str] = []
    """What must have been imported before the fork."""
    compiled: Use = ""
    """What it does with the server's folder of compiled programs (`grader.running.compiled`)."""
    door: str = ""
    """The folder of the device next door whose client the worker is, if it is one's."""


class Stay(msgspec.Struct, tag="stay"):
    """Asks a fork server to stay for other commands; answered by "+" if it does, else "-"."""

    folder: bytes
    name: str
    """How others find it there (see `grader.running.kept`)."""
    leader: int
    """The process with which it ends, if nothing ends it before."""


class Keep(msgspec.Struct, tag="keep"):
    """Hands over workers that stand by for a later command, in place of those kept before.

    With it come `LINES` descriptors for each: the grader's ends of its input, result, output,
    stack and control socket, and a file with its `Left`. The server looks at none of them.
    """


class Take(msgspec.Struct, tag="take"):
    """Asks for all workers that stand by; answered by "+" and their descriptors."""


class Live(msgspec.Struct, tag="live"):
    """Asks whether the server lives; answered by "+"."""


Asked = Request | Stay | Keep | Take | Live
"""What a fork server may be asked."""
DOORS = ("socket", "bridge")
"""The sockets in the folder of a device next door."""
LINES = 6
MOST_LEFT = 3
"""How many workers stand by at most."""


class Ended(msgspec.Struct):
    """How a worker ended: exit code, or signal number."""

    code: int = 0
    signal: int = 0
    fences: list[str] = []


class Setup(msgspec.Struct):
    """What to start before any learner's code is known."""

    platform: str
    """"cpu", "gpu", "next-door", or "target": the CPU, to compile for what is not here."""
    devices: int
    """CPU devices to simulate, or GPUs needed."""
    observe: bool = True
    """Install and prove the probes."""
    timeout: float = 60.0
    """Seconds after which the worker prints where it is stuck."""
    warm: bool = False
    """Measure a small program of one's own first, while nobody waits."""


class Ready(msgspec.Struct):
    """The answer to `Setup`."""

    machine: Machine | None = None
    problem: str = ""


class DriveJob(msgspec.Struct, tag="drive"):
    """Run a file under observation; answered by `Observed`."""

    drive: str
    """The module that drives the exercise."""
    path: str
    source: str
    seed: int
    target: bool = False
    """Export what is to be compiled for a target."""
    reference: bool = False
    """The file is the reference solution."""
    named: tuple[float, ...] = ()
    """Numbers that the submission names and its model does not."""


class Left(msgspec.Struct):
    """What a worker that stands by was started with, and what it was told."""

    request: Request
    setup: Setup
    job: DriveJob | None = None
    """The reference's, on a seed that nobody has used yet; None if it has no job yet."""


class MeasureJob(msgspec.Struct, tag="measure"):
    """Load, check, compile, run and time programs; answered by `Measurements`."""

    programs: dict[str, bytes]
    reference_programs: dict[str, bytes]
    inputs: dict[str, list[list[Leaf]]]
    """Program name -> sets of flat inputs, with values."""
    timed: str = ""
    at_most: float = 0.0
    seed: int = 0


class Measurements(msgspec.Struct):
    """The answer to a `MeasureJob`."""

    submission: dict[str, Measured]
    reference: dict[str, Measured]
    timing: dict[str, Timing] = {}


class TargetJob(msgspec.Struct, tag="target"):
    """Load and check programs, and compile them for a target; answered by `Targeted`."""

    target: Target
    programs: dict[str, bytes]


class Targeted(msgspec.Struct):
    """The answer to a `TargetJob`."""

    programs: dict[str, Measured] = {}
    problem: str = ""
    """Why nothing can be compiled for the target here, whatever the program."""


class PaceJob(msgspec.Struct, tag="pace"):
    """Load a file and run windows of its loop on request; answered by `Done`."""

    drive: str
    """The module that drives the exercise."""
    path: str
    source: str
    naive: str = ""
    """The function in whose place the drive's naive version is put, if any."""
    seed: int = 0
    """Of what all windows of a comparison have alike."""


class Turn(msgspec.Struct):
    """One request of a `PaceJob`, answered by `Done`.

    "measure" asks for the unit, "prepare" makes the inputs of a window, "go" runs it.
    """

    act: Literal["measure", "prepare", "go"]
    seed: int = 0
    steps: int = 0
    unit: float = 0.0


class Done(msgspec.Struct):
    """The answer to a `PaceJob` and to each `Turn`."""

    values: Sequence[float | None] = ()
    """None stands for NaN and for infinities, which JSON does not have."""
    problem: Observed | None = None


Job = DriveJob | MeasureJob | TargetJob | PaceJob


def frame(message: msgspec.Struct) -> bytes:
    """One message as it stands on the wire."""
    body = msgspec.json.encode(message)
    return _HEADER.pack(len(body)) + body


def frame_length(header: bytes) -> int:
    """Length of the body that follows eight bytes of header."""
    length: int = _HEADER.unpack(header)[0]
    return length


def read_frame(fd: int) -> bytes:
    """Read one frame, blocking; empty when the other side has closed."""
    header = _read_exactly(fd, _HEADER.size)
    return _read_exactly(fd, frame_length(header)) if header else b""


def _read_exactly(fd: int, size: int) -> bytes:
    parts = []
    while size:
        chunk = os.read(fd, min(size, 1 << 20))
        if not chunk:
            return b""
        parts.append(chunk)
        size -= len(chunk)
    return b"".join(parts)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, blocking."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
