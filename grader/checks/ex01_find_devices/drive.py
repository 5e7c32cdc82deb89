"""Drives ex01_find_devices: asks the three functions on this machine and on staged ones.

The staged machines (`grader.stages.machines`) have GPUs of NVIDIA's or AMD's, and the CPU or the
GPUs are the default backend. Of each of these four there are machines with 1 GPU, with 8, with some
(2 to 7) and with many (9 to 20); each number up to 8 comes. On a drawn one of them, a CPU device is
JAX's default device (`jax_default_device`), and on another one, a GPU is; for two of the four,
drawn as well, the default device is set by the name of its platform, a text. Where the GPUs are the
default backend, JAX_PLATFORMS names them before the CPU on one machine of each maker. `try_gpu` is
asked for every GPU, and for numbers beside them that are drawn. One machine has no GPU, and one has
TPUs and no GPU: an answer that takes every accelerator for a GPU is wrong there. The names of all
products are drawn, and whether the GPUs of a machine are of one kind or of two. Each of these
machines is asked everything twice, and which function comes first is drawn, and whether `i` is
given by its name.

Each fault of a plugin, NVIDIA's or AMD's, gets a machine of its own for each question, because JAX
starts its plugins at the first question only; `try_gpu` is asked there for 0 and for drawn numbers,
too: just or far below 0, small and large. JAX_PLATFORMS is unset there, or names the plugin alone,
before the CPU or after it. What a plugin says that fails is drawn: each of the codes that JAX's
runtime has comes, with a word of its own or with what plugins often say.

An answer is kept as words, such as "GPU 2", and looked at again when all has been asked on its
machine: a list that is changed by a later call shows. So does a call that leaves another default
device than there was. Where the file names numbers, one machine has more GPUs than each of them
that is below MOST_GPUS, others have just so many, and `try_gpu` is asked for them and for numbers
far beyond; one machine is asked again and again, and some plugins say more. A device counts as GPU
2 if it is that very object, so a name or an object made to look like a device does not pass.
"""

import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import cycle
from string import ascii_lowercase, ascii_uppercase
from types import ModuleType
from typing import Any

import jax
import msgspec

from grader.checks.ex01_find_devices import EXERCISE
from grader.checks.ex01_find_devices.facts import (
    A_CPU,
    A_CPU_LIST,
    ANSWERS,
    ASKED_AGAIN,
    FAULTS,
    LATER,
    LEFT,
    NO_STAGE,
    Answer,
)
from grader.judging.words import plural, typed
from grader.probes.observe import Observe
from grader.probes.returned import returned
from grader.stages import machines
from grader.stages.drawn import beyond, named, one_of

type _Given = tuple[tuple[int, ...], dict[str, int]]
"""The arguments of a call, by their places and by their names."""
NOTHING: _Given = ((), {})
MAKES = machines.NVIDIA, machines.AMD, machines.CPU_FIRST, machines.AMD_AFTER_CPU
DEFAULTS = ("", "", "CPU device", "GPU")
"""What JAX's default device is on the machines of one make, in drawn order; "" is not set."""
MANY = (9, 21)
"""From how many GPUs on, and below how many, a machine with many has, if no number is named."""
FARTHEST = 10_000
"""How far beyond the GPUs the numbers are drawn for which `try_gpu` is asked."""
MOST_GPUS, MOST_CALLS, MOST_LETTERS = 300, 400, 2000
"""Up to where the numbers are reached that the file names: by GPUs, by calls on one machine, and by
letters of a word of a plugin that fails."""
MOST_NUMBER, SOME = (1 << 31) - 1, 4
"""Up to where `try_gpu` is asked for them; and for how many just as they are, on each machine."""
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
"""How errors of JAX's runtime begin: no more than machines whose plugin fails are asked."""
SAID = (
    "{word} failed as the plugin started.",
    "No visible GPU devices.",
    "failed call to cuInit: CUDA error: {word}",
    "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected",
    "no ROCm-capable device is detected",
    "CUDA driver version is insufficient for CUDA runtime version",
    "the installed version of the {word} library is too old",
)
"""How they go on, with a place for a word; no multiple of them are as many as CODES."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Ask on this machine, then on staged ones, until one of them cannot be staged."""
    answers = _questions("this machine", submission, machines.real(), rng)
    by_a_name = rng.permutation(MAKES)[: len(MAKES) // 2].tolist()
    try:
        for gpus, made, default in _staged(rng):
            with machines.machine(gpus=gpus, made=_of_some_kind(made, rng)) as stage:
                _of_two_kinds(stage, made, rng)
                name = _machine(gpus, made)
                device: Any = rng.choice(stage.gpus if default == "GPU" else stage.cpus)
                if default and made in by_a_name:
                    device = device.platform
                    name += f", where JAX's default device is set to {device!r}"
                elif default:
                    name += f", where a {default} is JAX's default device"
                module = machines.fresh(submission)
                asked = gpus == 8 and made in (MAKES[0], _named_first(MAKES[0]))
                with jax.default_device(device) if default else nullcontext():
                    answers += _questions(name, module, stage, rng, often=asked)
        said = zip(cycle(rng.permutation(CODES)), cycle(rng.permutation(SAID)))
        for name, (fault, plugin, platforms) in FAULTS.items():
            made = machines.AMD if plugin == machines.AMD.plugin else machines.NVIDIA
            made = replace(made, platforms=platforms)
            for function, given in _of_the_broken(rng):
                words = _failing(rng, *next(said))
                with machines.machine(broken=fault, made=made, said=words) as stage:
                    answer, _ = _ask(name, machines.fresh(submission), stage, function, given)
                    answers.append(answer)
    except machines.Gone as gone:
        observe.fact(NO_STAGE, str(gone))
    observe.fact(ANSWERS, msgspec.to_builtins(answers))


def _staged(rng: Any) -> list[tuple[int, machines.Made, str]]:
    """How many GPUs each machine has, of which make, and what the default device is, of DEFAULTS.

    Those where it is not set come first: a mistake that shows there has nothing to do with it.
    """
    some, staged = rng.permutation(range(2, 8)).tolist(), list[tuple[int, machines.Made, str]]()
    for made in MAKES:
        many = one_of(rng, int(rng.integers(*MANY)), range(MANY[0], MOST_GPUS // 2))
        many = beyond(rng, many, MOST_GPUS) if made is MAKES[0] else many
        counts = [1, 8, many, some.pop()]
        defaults = rng.permutation(DEFAULTS).tolist()
        if many >= MANY[1]:  # a mistake that shows there has nothing to do with it
            unset = defaults.index("")
            defaults[unset], defaults[2] = defaults[2], ""
        those = zip(counts, defaults, strict=True)
        here = [(gpus, made, default) for gpus, default in those]
        if not made.platforms:
            last = max(number for number, default in enumerate(defaults) if not default)
            here[last] = counts[last], _named_first(made), ""
        staged += here
    staged += [(gpus, MAKES[rng.integers(len(MAKES))], DEFAULTS[-1]) for gpus in some]
    staged.sort(key=lambda one: bool(one[-1]))
    return [(0, machines.NVIDIA, ""), *staged, (int(rng.integers(1, 9)), machines.GOOGLE, "")]


def _named_first(made: machines.Made) -> machines.Made:
    """The same make, where JAX_PLATFORMS names its plugin before the CPU."""
    return replace(made, platforms=f"{made.plugin},cpu")


def _of_some_kind(made: machines.Made, rng: Any) -> machines.Made:
    """The same make, with another name of a product: `NVIDIA Q417`."""
    kind = f"{made.kind.split()[0]} {rng.choice([*ascii_uppercase])}{rng.integers(100, 1000)}"
    return replace(made, kind=kind)


def _of_two_kinds(stage: machines.Stage, made: machines.Made, rng: Any) -> None:
    """Half of the time, give some of the GPUs the name of another product."""
    other, mixed = _of_some_kind(made, rng).kind, bool(rng.integers(2))
    for gpu in stage.gpus:
        if mixed and rng.integers(2):
            gpu.device_kind = other


def _of_the_broken(rng: Any) -> list[tuple[str, _Given]]:
    """What a machine with a fault is asked: a function, and its arguments."""
    spans = ((-30, 0), (-FARTHEST, -30), (0, 1), (1, 30), (30, FARTHEST))
    drawn = [int(rng.integers(*span)) for span in spans]
    drawn[1], drawn[-1] = -beyond(rng, -drawn[1], MOST_NUMBER), beyond(rng, drawn[-1], MOST_NUMBER)
    numbers = [_number(index, rng) for index in drawn]
    return [*((name, NOTHING) for name in EXERCISE.edits), *(("try_gpu", one) for one in numbers)]


def _named(rng: Any) -> list[int]:
    """Some of the whole numbers that the file names, with a drawn sign, and two beyond."""
    found = [int(n) for n in named(rng) if n <= MOST_NUMBER and n == int(n)]
    if not found:
        return []
    some = rng.permutation(found)[:SOME] * rng.choice([-1, 1])
    most = beyond(rng, FARTHEST, MOST_NUMBER)
    return [*some.tolist(), most, -most]


def _number(index: int, rng: Any) -> _Given:
    """The number for which `try_gpu` is asked, by its place or by its name."""
    return ((), {"i": index}) if rng.integers(2) else ((index,), {})


def _failing(rng: Any, code: str, said: str) -> str:
    """What a plugin says that fails: a code of JAX's runtime, and one of SAID."""
    letters = one_of(rng, 6, range(7, MOST_LETTERS))
    return f"{code}: {said.format(word=''.join(rng.choice([*ascii_lowercase], letters)))}"


def _machine(count: int, made: machines.Made) -> str:
    """The name of a machine in a report: "a machine with 4 GPUs"."""
    name = f"a machine with {plural(count, made.name)}" if count else "a machine without GPUs"
    return name + (f" and JAX_PLATFORMS={made.platforms}" if made.platforms else "")


def _questions(
    machine: str, module: ModuleType, stage: machines.Stage, rng: Any, *, often: bool = False
) -> list[Answer]:
    """Ask all three functions; `try_gpu` for all GPUs that are there, and on both sides of them.

    Then all of it is asked again. With `often`, each function is asked so many more times, if the
    file names numbers.
    """
    gpus = len(stage.gpus)
    from_zero = [*range(gpus + 1), gpus + int(rng.integers(1, FARTHEST))]
    below = {-1, -int(rng.integers(1, gpus + 2)), -gpus - int(rng.integers(1, FARTHEST))}
    negative = [*sorted(below, reverse=True), *_named(rng)]
    order = rng.permutation(EXERCISE.edits).tolist()
    came = list[tuple[Answer, Any]]()
    for name in (machine, f"{machine}{ASKED_AGAIN}"):
        numbers = [_number(index, rng) for index in (*from_zero, *negative)]
        for function in order:
            asked = [NOTHING, *numbers] if function == "try_gpu" else [NOTHING]
            came += [_ask(name, module, stage, function, given) for given in asked]
    for _ in range(beyond(rng, 2, MOST_CALLS) - 2 if often else 0):
        came += [_ask(name, module, stage, function, NOTHING) for function in order]
    return [_seen_again(*one, stage) for one in came]


def _ask(
    machine: str, module: ModuleType, stage: machines.Stage, function: str, given: _Given
) -> tuple[Answer, Any]:
    """Call a function of the submission; what it raises is an answer, too. Returns its value."""
    args, named = given
    texts = [*map(str, args), *(f"{name}={value}" for name, value in named.items())]
    call = f"{function}({', '.join(texts)})"
    try:
        asking = partial(getattr(module, function), *args, **named)
        (value, line), left = _and_what_it_left(partial(returned, asking, module.__file__ or ""))
    except Exception as error:  # noqa: BLE001 (whatever it raises is the answer)
        return Answer(machine, call, "", list(_chain(error)), _line(error, module.__file__)), None
    return Answer(machine, call, _words(value, stage) + left, line=line or None), value


def _and_what_it_left(call: Callable[[], Any]) -> tuple[Any, str]:
    """What a call returns, and LEFT if it changed JAX's default device, which is set back."""
    usual = jax.config.jax_default_device
    with jax.default_device(usual):
        value = call()
        inside = jax.config.jax_default_device
    if (now := jax.config.jax_default_device) != usual:
        jax.config.update("jax_default_device", usual)
    return value, LEFT * ((inside, now) != (usual, usual))


def _seen_again(answer: Answer, value: Any, stage: machines.Stage) -> Answer:
    """An answer, with what it is by now, if later calls have changed it."""
    now = "" if answer.raised else _words(value, stage)
    changed = f"{answer.answer}{LATER}{now}"
    return (
        answer
        if now == answer.answer.removesuffix(LEFT)
        else msgspec.structs.replace(answer, answer=changed)
    )


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
