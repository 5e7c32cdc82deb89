"""Drives ex01_find_devices: asks the three functions on this machine and on staged ones.

The staged machines (`grader.stages.machines`) have every number of GPUs from 0 to 8, and one has
more, drawn afresh (9 to 20). `try_gpu` is asked for every GPU, and for numbers beside them that are
drawn. One machine has AMD's GPUs, and each maker's GPUs are once beside a CPU that is the default
backend. One has TPUs and no GPU: an answer that takes every accelerator for a GPU is wrong there.
How many of these there are is drawn, and so are the names of all products. Each of these machines
is asked everything twice, and which function comes first is drawn. Each fault of a plugin, NVIDIA's
or AMD's, gets a machine of its own for each question, because JAX starts its plugins at the first
question only; `try_gpu` is asked there for 0 and for drawn numbers, too: just or far below 0, small
and large. What a plugin says that fails is drawn: each of the codes that JAX's runtime has comes
once, and each time with another word.

An answer is kept as words, such as "GPU 2". A device counts as GPU 2 if it is that very
object, so a name or an object made to look like a device does not pass.
"""

import traceback
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import cycle
from string import ascii_lowercase, ascii_uppercase
from types import ModuleType
from typing import Any

import msgspec

from grader.checks.ex01_find_devices import EXERCISE
from grader.checks.ex01_find_devices.facts import (
    A_CPU,
    A_CPU_LIST,
    ANSWERS,
    ASKED_AGAIN,
    FAULTS,
    NO_STAGE,
    Answer,
)
from grader.judging.words import plural, typed
from grader.probes.observe import Observe
from grader.probes.returned import returned
from grader.stages import machines

FARTHEST = 10_000
"""How far beyond the GPUs the numbers are drawn for which `try_gpu` is asked."""
CODES = (
    "ABORTED",
    "ALREADY_EXISTS",
    "CANCELLED",
    "DATA_LOSS",
    "DEADLINE_EXCEEDED",
    "FAILED_PRECONDITION",
    "INTERNAL",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "OUT_OF_RANGE",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
    "UNIMPLEMENTED",
    "UNKNOWN",
)
"""How errors of JAX's runtime begin: as many as the two machines whose plugin fails are asked."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Ask on this machine, then on staged ones, until one of them cannot be staged."""
    answers = list(_questions("this machine", submission, machines.real(), rng))
    try:
        some = rng.permutation(range(2, 8)).tolist()
        counts = [0, 1, 8, int(rng.integers(9, 21)), *some]
        others = (machines.AMD, machines.CPU_FIRST, machines.AMD_AFTER_CPU, machines.GOOGLE)
        stages = [(gpus, machines.NVIDIA) for gpus in counts[: -len(others)]]
        stages += zip(counts[-len(others) :], others, strict=True)
        for gpus, made in stages:
            with machines.machine(gpus=gpus, made=_of_some_kind(made, rng)) as stage:
                name = _machine(gpus, made)
                answers += _questions(name, machines.fresh(submission), stage, rng)
        codes = cycle(rng.permutation(CODES).tolist())
        for name, (fault, plugin) in FAULTS.items():
            made = machines.AMD if plugin == machines.AMD.plugin else machines.NVIDIA
            for function, args in _of_the_broken(rng):
                said = _failing(rng, next(codes))
                with machines.machine(broken=fault, made=made, said=said) as stage:
                    answers.append(_ask(name, machines.fresh(submission), stage, function, *args))
    except machines.Gone as gone:
        observe.fact(NO_STAGE, str(gone))
    observe.fact(ANSWERS, msgspec.to_builtins(answers))


def _of_some_kind(made: machines.Made, rng: Any) -> machines.Made:
    """The same make, with another name of a product: `NVIDIA Q417`."""
    kind = f"{made.kind.split()[0]} {rng.choice([*ascii_uppercase])}{rng.integers(100, 1000)}"
    return replace(made, kind=kind)


def _of_the_broken(rng: Any) -> list[tuple[str, tuple[int, ...]]]:
    """What a machine with a fault is asked: a function, and its arguments."""
    spans = ((-30, 0), (-FARTHEST, -30), (0, 1), (1, 30), (30, FARTHEST))
    numbers = [(int(rng.integers(*span)),) for span in spans]
    return [*((name, ()) for name in EXERCISE.edits), *(("try_gpu", one) for one in numbers)]


def _failing(rng: Any, code: str) -> str:
    """What a plugin says that fails: a code of JAX's runtime, and words of its own."""
    word = "".join(rng.choice([*ascii_lowercase], 6))
    return f"{code}: {word} failed as the plugin started."


def _machine(count: int, made: machines.Made) -> str:
    """The name of a machine in a report: "a machine with 4 GPUs"."""
    name = f"a machine with {plural(count, made.name)}" if count else "a machine without GPUs"
    return name + (f" and JAX_PLATFORMS={made.platforms}" if made.platforms else "")


def _questions(
    machine: str, module: ModuleType, stage: machines.Stage, rng: Any
) -> Iterator[Answer]:
    """Ask all three functions; `try_gpu` for all GPUs that are there, and on both sides of them.

    Then all of it is asked again.
    """
    gpus = len(stage.gpus)
    from_zero = [*range(gpus + 1), gpus + int(rng.integers(1, FARTHEST))]
    below = {-1, -int(rng.integers(1, gpus + 2)), -gpus - int(rng.integers(1, FARTHEST))}
    negative = sorted(below, reverse=True)
    numbers = [(), *((index,) for index in (*from_zero, *negative))]
    asked: dict[str, list[tuple[int, ...]]]
    asked = {"num_gpus": [()], "try_gpu": numbers, "try_all_gpus": [()]}
    order = rng.permutation(EXERCISE.edits).tolist()
    for name in (machine, f"{machine}{ASKED_AGAIN}"):
        for function in order:
            for args in asked[function]:
                yield _ask(name, module, stage, function, *args)


def _ask(
    machine: str, module: ModuleType, stage: machines.Stage, function: str, *args: int
) -> Answer:
    """Call a function of the submission; what it raises is an answer, too."""
    call = f"{function}({', '.join(map(str, args))})"
    try:
        value, line = returned(partial(getattr(module, function), *args), module.__file__ or "")
    except Exception as error:  # noqa: BLE001 (whatever it raises is the answer)
        return Answer(machine, call, "", list(_chain(error)), _line(error, module.__file__))
    return Answer(machine, call, _words(value, stage), line=line or None)


def _chain(error: BaseException | None) -> Iterator[str]:
    """The error, what it was raised from, and so on; each once, though they may form a circle."""
    seen: list[BaseException] = []
    while error is not None and not any(error is one for one in seen):
        seen.append(error)
        text = f"{type(error).__name__}: {error}"
        yield text.removesuffix(": ")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _line(error: Exception, path: str | None) -> int | None:
    """The innermost line of the submission behind an error, if there is one."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    return lines[-1] if lines else None


def _words(value: Any, stage: machines.Stage) -> str:
    """An answer in words. They do not say which CPU device it holds."""
    if type(value) is not list:
        return _word(value, stage)
    words = [_word(item, stage) for item in value]
    return A_CPU_LIST if set(words) == {A_CPU} else f"[{', '.join(words)}]"


def _word(value: Any, stage: machines.Stage) -> str:
    for index, gpu in enumerate(stage.gpus):
        if value is gpu:
            return f"GPU {index}"
    if any(value is cpu for cpu in stage.cpus):
        return A_CPU
    for index, other in enumerate(stage.others):
        if value is other:
            return f"{other.platform.upper()} {index}"
    if type(value) in (bool, int, str, type(None)):
        return f"{value!r}"
    return typed(type(value).__name__)
