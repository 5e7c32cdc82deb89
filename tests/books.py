"""Books for tests, written by hand: what a device with two parts would have noted."""

from typing import Any

from grader.records.book import Book, Closing, Entry, Link, Opening, Usage, count
from grader.records.record import Collective

MIB = 1 << 20


def opening(**more: Any) -> Opening:
    """A device as two devices with 1 GiB each."""
    about = {"devices": 2, "kind": "next door", "memory": 1 << 30, **more}
    return Opening(version=1, grader="0", jaxlib="0.12.0", began=0.0, **about)


def book(*entries: Entry, peaks: tuple[int, ...] = (0, 0), **more: Any) -> Book:
    """A whole book of these entries."""
    end = max((e.start if e.end is None else e.end for e in entries), default=0.0)
    closing = Closing(end, count(entries), [Usage(0, peak) for peak in peaks])
    return Book(opening(**more), list(entries), closing)


def copy(event: Any, start: float, end: float, device: int, size: int, **more: Any) -> Entry:
    """A copy of one shard."""
    about = {"dtype": "float32", "memory": "device", **more}
    return Entry(event, start, end, bytes=size, device=device, **about)


def training(**more: Any) -> Book:
    """Two steps on two devices, and a read that waits for the second."""
    all_reduce = [Collective("all-reduce", 4096, 2)]
    entries = [
        Entry("client", 0.0, client=1, detail="came"),
        Entry("compile", 1.0, 2.0, program="jit_step", client=1, collectives=all_reduce),
        *(copy("h2d", 2.0, 2.25, device, 512, client=1) for device in (0, 1)),
        Entry("alloc", 2.0, device=0, bytes=MIB, in_use=MIB),
        Entry("launch", 2.25, 3.0, bytes=4, devices=[0, 1], program="jit_step", client=1),
        Entry("launch", 3.0, 4.5, bytes=4, devices=[0, 1], program="jit_step", client=1),
        copy("d2h", 4.5, 5.0, 0, 4, client=1, asked=3.25),
        Entry("wait", 3.25, 5.0, client=1, count=2),
        Entry("free", 5.0, device=0, bytes=MIB, in_use=0),
    ]
    return book(*entries, peaks=(2 * MIB, MIB), host_link=Link(1e9), **more)
