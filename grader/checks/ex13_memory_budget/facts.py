"""The processes of ex13_memory_budget: the shells they start from, and what became of each."""

from collections.abc import Mapping
from typing import Any

import msgspec

OLD, NEW = "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION"
"""The two names of the variable for the share."""
PREALLOCATE, ALLOCATOR = "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_ALLOCATOR"
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable that hides GPUs from a process."""
COLLECTIVES = "XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB"
"""The variable for memory of another kind, which `start` may leave as it is, or remove."""
PLATFORMS, FLAGS = "JAX_PLATFORMS", "XLA_FLAGS"
"""Variables of JAX and XLA that decide which GPU there is, as those of other names may."""
UNIFIED = "TF_FORCE_UNIFIED_MEMORY"
"""The variable that lets a pool reach into the host's memory."""
GPU = "the GPU"
"""What `grader.stages.allocating` calls the staged GPU, as an answer of `start`."""
STARTED = "started"
"""The fact that lists the staged processes, each a `Started`."""
REAL_SHARE = "share on the GPU"
"""The fact that says which share a process on a real GPU asks for."""


class Started(msgspec.Struct):
    """One staged process that called `start`: what it returned, and what JAX was told."""

    shell: dict[str, str]
    """The variables of JAX and XLA that the shell has set."""
    share: float
    grow: bool
    answer: str
    """What `start` returned, in words."""
    options: dict[str, Any] | None
    """What JAX's client for the GPU was created with; None where there was none."""
    more: dict[str, Any]
    """The client's other options."""
    read: dict[str, str] | None
    """The environment when JAX read it; None where it did not."""
    afterwards: dict[str, Any]
    """What JAX would read from the environment once `start` has returned."""
    variables: dict[str, str]
    """What the environment holds once `start` has returned, of variables that steer JAX."""
    foreign: dict[str, str | None]
    """What `start` made of variables that are none of JAX's or XLA's: name -> text, or None."""
    line: int | None
    """The line of the learner's file on which JAX read the environment."""
    complaint: str
    """What the CUDA plugin raised when it read the environment, or ""."""
    array: str
    """What JAX raised for an array, which the staged GPU cannot hold, or ""."""
    put: list[str] = []
    """The variables that `start` gave a value, whether it is there afterwards or not."""

    @property
    def call(self) -> str:
        """The call of `start`, as code."""
        return f"start({self.share}, {self.grow})"


def in_words(shell: Mapping[str, str]) -> str:
    """`an empty shell`, or `a shell with NAME=value`."""
    if not shell:
        return "an empty shell"
    return f"a shell with {', '.join(f'{name}={value}' for name, value in shell.items())}"


def on_the_gpu(grow: bool) -> str:
    """The name of the figures of a real GPU's allocator, in bytes."""
    return f"on the GPU, grow={grow}"
