"""Drives ex13_memory_budget: calls `start` in fresh processes, each with a shell of its own.

The processes are staged (`grader.stages.allocating`): JAX's own code reads the learner's
settings and hands them to a client for a GPU that is not there.

Drawn: the share of each process (0.001 to 0.999, with three digits; from an empty shell very small
to very large ones, each with a pool that grows and with one that does not, and one half; one of
these is a float64 of NumPy, and one a float32); in the other shells the values of the variables,
also such as mean nothing, where each variable stands alone, with each text that JAX reads as off
and some that it reads as on, and in each company of two or more, with a pool that grows and with
one that does not; how many GPUs there are (1 to 8), of which some shells show one or several, by
numbers or by their long names, and what else some have set; and the order of all processes. Where
the file names numbers, every second share is one of them, if it can be, some texts are longer than
each of them that is below MOST_SIGNS, and there are more GPUs, up to MOST_GPUS. One shell has set
the very share that is asked for, under the old name, one an allocator without a name, one a
preallocation without a word, and one what JAX sets aside for collectives. Where there is a GPU, two
real processes with a drawn share are asked what its allocator gave them. What JAX is told is
compared with what was asked for, and with the text of the environment that it read, outside this
process.
"""

import linecache
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, pairwise
from string import ascii_letters, hexdigits
from types import ModuleType
from typing import Any

import jax
import msgspec
import numpy as np

from grader.checks.ex13_memory_budget.facts import (
    ALLOCATOR,
    COLLECTIVES,
    NEW,
    OLD,
    PREALLOCATE,
    REAL_SHARE,
    STARTED,
    VISIBLE,
    Started,
    in_words,
    on_the_gpu,
)
from grader.probes.observe import Misused, Observe
from grader.probes.private import Gone
from grader.stages import allocating
from grader.stages.drawn import beside, beyond, named

SHARES, ENDS = (0.02, 0.12, 0.5, 0.88, 0.98), ((0.001, 0.02), (0.98, 0.999))
"""Where very small, small, large and very large shares begin and end; and those at the ends."""
ON = ("true", "True", "1", "yes", "on")
OFF = ("false", "False", "0")
MOST_SIGNS, MOST_GPUS = 300, 72
"""Up to where texts of a shell, and GPUs, reach the numbers that the file names."""
SIGNS = "123456789-_.,:!+% "
ALLOCATORS = ("platform", "cuda_async", "vmm", "PLATFORM", "cuda_malloc_async")
BYSTANDERS = {
    "SLURM_JOB_ID": "418207",
    "JAX_PLATFORMS": "cuda,cpu",
    "NCCL_DEBUG": "WARN",
    "TF_CPP_MIN_LOG_LEVEL": "1",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "TF_GPU_ALLOCATOR": "cuda_malloc_async",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "JPY_SESSION_NAME": "shared.ipynb",
    "MY_GPU_MEM_FRACTION": "0.25",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "NVIDIA_VISIBLE_DEVICES": "all",
    "XLA_FLAGS": "--xla_gpu_autotune_level=2",
    "HIP_VISIBLE_DEVICES": "0",
    "ROCR_VISIBLE_DEVICES": "0",
}
"""What a shell may have set besides, of which one or two stand in half of those that have set a
variable of the task."""
Shell = dict[str, str]


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Start processes from each shell on a staged machine; on a real GPU, two more."""
    started = []
    try:
        for shell, share, grow in _calls(rng):
            shown = shell[VISIBLE].split(",") if VISIBLE in shell else range(_gpus(rng))
            started.append(_start(submission, shell, share, grow, len(shown)))
    except Gone as gone:
        observe.fact("no stage", str(gone))
    observe.fact(STARTED, msgspec.to_builtins(started))
    real_share = round(float(rng.uniform(0.06, 0.2)), 2)
    observe.fact(REAL_SHARE, real_share)
    if jax.devices()[0].platform == "gpu":
        source = "".join(linecache.getlines(str(submission.__file__)))
        for grow in (True, False):
            observe.fact(on_the_gpu(grow), allocating.reported(source, real_share, grow))


def _share(rng: Any, low: float = SHARES[0], high: float = SHARES[-1]) -> float:
    """A share with three digits: every second time a number of the file's, if there is any."""
    share = round(float(rng.uniform(low, high)), 3)
    meant = [
        number for number in named(rng) if low <= number <= high and round(number, 3) == number
    ]
    return float(rng.choice(meant)) if meant and rng.integers(2) else share


def _gpus(rng: Any) -> int:
    """How many GPUs there are."""
    usual = int(rng.integers(1, 9))
    return beyond(rng, usual, MOST_GPUS) if named(rng) and rng.integers(2) else usual


def _fraction(rng: Any) -> str:
    """A share as somebody may have written it in a shell, rightly or wrongly."""
    text = f"{_share(rng):.2f}"
    wrong = text.replace(".", ","), f"{_share(rng):.0%}", _some_text(rng)
    return _one_of((text, text.lstrip("0"), f"{_share(rng):.1e}", "1", *wrong))(rng)


def _one_of(texts: tuple[str, ...]) -> Callable[[Any], str]:
    return lambda rng: texts[int(rng.integers(len(texts)))]


def _any_case(rng: Any, text: str) -> str:
    """A text with each letter small or large."""
    return "".join(c.upper() if rng.integers(2) else c.lower() for c in text)


def _off_in_another_case(rng: Any) -> str:
    """A word for off as JAX does not know it: as "FALSE", it is on."""
    while (text := _any_case(rng, OFF[0])) in OFF:
        pass
    return text


def _some_text(rng: Any) -> str:
    """Some letters, digits and signs, which JAX reads as on."""
    length = beyond(rng, int(rng.integers(1, 8)), MOST_SIGNS)
    return "".join(rng.choice([*ascii_letters, *SIGNS], length))


def _some_numbers(rng: Any) -> str:
    """The numbers of one to three GPUs, or as many of the long names that clusters use."""
    shown, apart = rng.permutation(8)[: int(rng.integers(1, 4))], beside(rng)
    begin = apart.choice(("", "GPU-", "MIG-"))
    return ",".join(f"{begin}{_uuid(apart)}" if begin else str(number) for number in shown)


def _uuid(rng: Any) -> str:
    """A name as a driver gives it to a GPU: `8932f937-d72c-4106-c12f-20bd9faed9f6`."""
    signs = "".join(rng.choice([*hexdigits.lower()[:16]], 32))
    return "-".join((signs[:8], signs[8:12], signs[12:16], signs[16:20], signs[20:]))


VALUES: Mapping[str, Callable[[Any], str]] = {
    OLD: _fraction,
    NEW: _fraction,
    PREALLOCATE: _one_of((*ON, *OFF)),
    ALLOCATOR: lambda rng: _one_of((*ALLOCATORS, _some_text(rng)))(rng),
    VISIBLE: _some_numbers,
}
"""A variable that a shell may have set -> how its value is drawn."""


def _calls(rng: Any) -> list[tuple[Shell, float, bool]]:
    """The shell of each process, its share, and whether its pool is to grow.

    The order is drawn, but for the smallest shares and the largest, which come last.
    """
    sizes = pairwise(SHARES)
    empty: Shell = {}
    found = [(empty, _share(rng, *size), grow) for size in sizes for grow in (True, False)]
    found.append((empty, 0.5, bool(rng.integers(2))))
    kinds: tuple[Any, ...] = np.float64, np.float32
    for kind, index in zip(kinds, beside(rng).permutation(len(found))[: len(kinds)], strict=True):
        found[index] = (empty, kind(found[index][1]), found[index][2])
    found += [(shell, _share(rng), grow) for shell, grow in _alone(rng)]
    same = _share(rng)
    found.append(({OLD: str(same)}, same, bool(rng.integers(2))))
    for count in range(2, len(VALUES) + 1):
        for names in combinations(VALUES, count):
            shell = {name: VALUES[name](rng) for name in names}
            found += [(shell, _share(rng), grow) for grow in (True, False)]
    found = [(x and x | _bystanders(rng), share, grow) for x, share, grow in found]
    ordered = [found[int(index)] for index in rng.permutation(len(found))]
    return ordered + [(empty, _share(rng, *size), grow) for size in ENDS for grow in (True, False)]


def _bystanders(rng: Any) -> Shell:
    """Other variables of a shell, or none."""
    names = rng.choice([*BYSTANDERS], int(rng.integers(1, 3)), replace=False)
    return {str(name): BYSTANDERS[name] for name in names if rng.integers(2)}


def _alone(rng: Any) -> Iterator[tuple[Shell, bool]]:
    """Shells with one variable, and whether the pool is to grow.

    Preallocation is off in the shell where it must be on, and on where it must be off.
    """
    on = (*ON, "", _some_text(rng), _off_in_another_case(rng))  # an empty text is as good as none
    yield from (({PREALLOCATE: text}, True) for text in on)
    yield from (({PREALLOCATE: text}, False) for text in OFF)
    yield {COLLECTIVES: str(int(rng.integers(10, 1000)))}, bool(rng.integers(2))
    allocators = (*ALLOCATORS, "", _some_text(rng), _any_case(rng, VALUES[ALLOCATOR](rng)))
    yield from (({ALLOCATOR: text}, bool(rng.integers(2))) for text in allocators)
    for name in (OLD, NEW, VISIBLE):
        yield from (({name: VALUES[name](rng)}, grow) for grow in (True, False))


def _start(submission: ModuleType, shell: Shell, share: float, grow: bool, gpus: int) -> Started:
    """One staged process, for which there are so many GPUs.

    Raises:
      Gone: the process cannot be staged.
      Misused: `start` asks for a GPU by name, and JAX has none.
    """
    try:
        found = allocating.started(submission, shell, share, grow, gpus)
    except RuntimeError as error:
        raise (_left_out(shell, error) or error).with_traceback(error.__traceback__) from None
    return Started(shell, round(float(share), 3), grow, **found)


def _left_out(shell: Shell, error: RuntimeError) -> Misused | None:
    """What an error says, if it is JAX's own for a GPU that is asked for by name."""
    said = str(error).partition(",")[0]
    if "backend" not in said.lower():
        return None
    if asked := re.search(r"Unknown backend '?([\w:]+:[\w:]*)", said):
        found = f"JAX knows no backend that is called `{asked[1]}`: a number comes after the list"
        return Misused("`start` returns the GPU", f"{found}, as in jax.devices()[0]")
    return Misused(
        "`start` returns the GPU",
        f"in {in_words(shell)}: {said}. A GPU is there, but JAX goes on without it if it refuses a "
        "variable",
    )
