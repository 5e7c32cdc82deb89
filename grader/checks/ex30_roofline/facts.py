"""The figures that ex30_roofline judges: counts of two kernels, and cases that `place` got."""

import msgspec

FLOPS, BYTES = "FLOPs", "bytes"
"""What is counted of a kernel: the keys of `Count.said` and `Count.counted`."""


class Count(msgspec.Struct):
    """One kernel at one size: what the learner counted, and what its jaxpr holds."""

    kernel: str
    """`matmul` or `poly`."""
    call: str
    """The call that the learner's counts came from, as text."""
    said: dict[str, float | str]
    """The learner's counts; nan and inf are text."""
    counted: dict[str, int]


class Case(msgspec.Struct):
    """A kernel's figures under two ceilings, and where the learner placed it."""

    flops: float
    nbytes: float
    seconds: float
    peak_flops: float
    """The one ceiling, in FLOP/s."""
    peak_bandwidth: float
    """The other ceiling, in bytes/s."""
    measured: bool
    """Whether figures and ceilings were measured in this run, and not drawn."""
    answer: dict[str, float | str]
    """What `place` returned; nan and inf are text."""

    @property
    def intensity(self) -> float:
        """FLOPs per byte."""
        return self.flops / self.nbytes

    @property
    def attainable(self) -> float:
        """The most FLOP/s under both ceilings."""
        return min(self.peak_flops, self.intensity * self.peak_bandwidth)

    @property
    def bound(self) -> str:
        """The lower ceiling: `compute` or `memory`."""
        return "compute" if self.attainable == self.peak_flops else "memory"

    @property
    def share(self) -> float:
        """The FLOP/s that the kernel reaches, divided by those attainable."""
        return self.flops / self.seconds / self.attainable
