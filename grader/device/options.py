"""How a device next door is started: devices, memory, links, compute. Data, and no more."""

from pathlib import Path

import msgspec

from grader.records.book import Compute, Link
from grader.records.record import Target

KIND = "next door"
"""The `device_kind` that JAX shows. The platform's name is `cpu`: others lose solvers."""


class Options(msgspec.Struct, frozen=True):
    """A device as it is asked for. The defaults model no time, and no memory that is small."""

    devices: int = 8
    memory: int | None = None
    """Bytes of one device; None for a share of this machine's memory."""
    preallocate: bool = False
    """Whether a client takes its fraction at once, as `XLA_PYTHON_CLIENT_PREALLOCATE`."""
    fraction: float = 1.0
    """What a client may take of a device's memory, as `XLA_CLIENT_MEM_FRACTION`.

    A client's own environment has the last word on both.
    """
    host_link: Link = Link()
    """Between host and device, each way."""
    device_link: Link = Link()
    """Between two devices, each way."""
    compute: Compute = Compute()
    kind: str = KIND
    like: str = ""
    """The machine whose figures these are, or ""."""
    book: Path | None = None
    """Where the book is written; None for a file in the device's own folder."""


def like(target: Target, host_bandwidth: float, flops: float, slower: float = 1000.0) -> Options:
    """A device whose bandwidths and speed are a target's, each divided by `slower`.

    `host_bandwidth` is bytes a second between one device and the host, one way; `flops` is
    what one device does in a second. Memory is divided, too: every ratio holds.
    """
    return Options(
        devices=target.devices,
        memory=int(target.memory_bytes / slower),
        host_link=Link(host_bandwidth / slower),
        device_link=Link(target.node_bandwidth / slower),
        compute=Compute(flops / slower, target.memory_bandwidth / slower),
        like=target.name,
    )
