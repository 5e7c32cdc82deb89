"""The answers of `num_gpus`, `try_gpu` and `try_all_gpus`, in words, on each machine.

The fact `ANSWERS` holds a list of `Answer`. The fact `NO_STAGE` is there only if a machine
could not be staged; it says why.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

ANSWERS, NO_STAGE = "answers", "no stage"
ASKED_AGAIN = ", when it is asked again"
"""How the name of a machine ends which is asked everything a second time."""
A_CPU = "a CPU device"
"""The word for any CPU device: which one was taken makes no difference."""
A_CPU_LIST = f"[{A_CPU}]"
"""The words for a list that holds CPU devices only."""

Fault = Literal["plugin raises", "no plugin", "no device"]
"""A fault of a staged machine: see `grader.stages.machines.Fault`."""
FAULTS: Mapping[str, tuple[Fault, str]] = {
    "a machine whose CUDA plugin fails to start": ("plugin raises", "cuda"),
    "a machine whose ROCm plugin fails to start": ("plugin raises", "rocm"),
    "a machine with JAX_PLATFORMS=cuda and no CUDA plugin": ("no plugin", "cuda"),
    "a machine with JAX_PLATFORMS=cuda and no GPU device node": ("no device", "cuda"),
}
"""The name of each machine with a fault: what is wrong, and the plugin that it is about."""


class Answer(msgspec.Struct, omit_defaults=True):
    """What one call returned or raised on one machine.

    `call` is the call as text, `try_gpu(2)`. `raised` holds the error and what caused it,
    and is empty if the call returned; `line` is the learner's line that raised it, or
    that returned the answer.
    """

    machine: str
    call: str
    answer: str = ""
    raised: list[str] = []
    line: int | None = None
