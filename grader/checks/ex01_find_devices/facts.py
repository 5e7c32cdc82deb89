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
LATER = " at first, and after later calls "
"""What stands between the words of an answer that was changed after it was returned."""
LEFT = ", and it leaves another device as JAX's default device"
"""How the words of an answer end whose call changed the default device."""
A_CPU = "a CPU device"
"""The word for any CPU device: which one was taken makes no difference."""
A_CPU_LIST = f"[{A_CPU}]"
"""The words for a list that holds CPU devices only."""

Fault = Literal["plugin raises", "no plugin", "no device"]
"""A fault of a staged machine: see `grader.stages.machines.Fault`."""
PLUGINS = {"cuda": "CUDA", "rocm": "ROCm"}
"""The plugins, and what a report calls them."""


def _failing(plugin: str, platforms: str) -> str:
    """The name of a machine whose plugin fails to start."""
    setting = f" with JAX_PLATFORMS={platforms}" * bool(platforms)
    return f"a machine{setting} whose {PLUGINS[plugin]} plugin fails to start"


FAULTS: Mapping[str, tuple[Fault, str, str]] = {
    _failing(plugin, platforms.format(plugin)): ("plugin raises", plugin, platforms.format(plugin))
    for platforms in ("", "{0}", "{0},cpu", "cpu,{0}")
    for plugin in PLUGINS
} | {
    "a machine with JAX_PLATFORMS=cuda and no CUDA plugin": ("no plugin", "cuda", "cuda"),
    "a machine with JAX_PLATFORMS=cuda and no GPU device node": ("no device", "cuda", "cuda"),
    "a machine with JAX_PLATFORMS=rocm and no ROCm plugin": ("no plugin", "rocm", "rocm"),
}
"""The name of each machine with a fault: what is wrong, the plugin that it is about, and what
JAX_PLATFORMS says there."""


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
