"""What each process of a program of two does with a submission, and what it tells of it.

`grader.probes.processes` runs `part()`, which joins, builds a global array and takes its mean.
"""

from types import ModuleType
from typing import Any

import msgspec

from grader.record import Leaf


class Told(msgspec.Struct):
    """What a process tells; the last of it may be missing."""

    doing: str = ""
    processes: int = 0
    index: int = -1
    devices: int = 0
    met: bool = False
    """Whether somebody listens at the address where they were to meet."""
    batch: list[Leaf] = []
    programs: list[str] = []
    own: list[list[list[float]]] = []
    """The values of this process's shards, in the order of their rows."""
    mean: float | str = ""
    """Or what it is, if no finite float."""


class Process(msgspec.Struct):
    """A process as the drive kept it: `grader.probes.processes.Ran`."""

    end: str
    message: str = ""
    line: int | None = None
    told: Told = msgspec.field(default_factory=Told)


def part(submission: ModuleType, index: int, address: str, given: Any, say: Any) -> None:
    """What one process does. It is sent as code: it uses nothing else of this module."""
    import contextlib
    import socket

    import jax
    import msgspec
    import numpy as np

    from grader.probes.describe import describe

    say("doing", "join")
    submission.join(address, given["count"], index)
    say("processes", jax.process_count())
    say("index", jax.process_index())
    say("devices", jax.device_count())
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=5):
        say("met", True)
    compiled: list[str] = []

    def hear(event: str, duration_secs: float, **about: str | int) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(str(about.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(hear)
    mesh = submission.data_mesh()
    say("doing", "global_batch")
    batch = submission.global_batch(mesh, np.array(given["rows"], np.float32))
    say("programs", compiled)
    leaves, _ = describe(batch, data=False)
    say("batch", msgspec.to_builtins(leaves))
    if [(leaf.kind, len(leaf.shape)) for leaf in leaves] == [("jax", 2)]:
        shards = sorted(batch.addressable_shards, key=lambda shard: shard.index[0].start or 0)
        say("own", [np.asarray(shard.data).tolist() for shard in shards])
    say("doing", "mean")
    mean = submission.mean(batch)
    name = str(mean) if type(mean) is float else type(mean).__name__
    say("mean", mean if type(mean) is float and np.isfinite(mean) else name)
