"""ex01_find_devices: three questions, answered on this machine and on staged ones.

The staged machines (`grader.probes.staging`) have no GPU, one, four, a number drawn
afresh, AMD's, some beside a CPU that is the default, TPUs in their place, or a fault.
Answers are kept as words, such as "GPU 2", told by identity.
"""

import ast
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from grader.checking import Exercise, Failure, Observe, Result, Unable
from grader.evidence import culprit, definition, seen, wanted
from grader.record import Observed, Record
from grader.verdict import Culprit
from grader.words import plural

if TYPE_CHECKING:
    from grader.probes.staging import Fault, Made, Stage

A_CPU = "a CPU device"
A_CPU_LIST = f"[{A_CPU}]"


class Answer(msgspec.Struct, omit_defaults=True):
    """What one call gave on one machine; `raised` holds the error and its causes."""

    machine: str
    call: str
    answer: str = ""
    raised: list[str] = []
    line: int | None = None


FAULTS: Mapping["Fault", str] = {
    "plugin raises": "a machine whose CUDA plugin fails to start",
    "no plugin": "a machine with JAX_PLATFORMS=cuda and no CUDA plugin",
    "no device": "a machine with JAX_PLATFORMS=cuda and no GPU device node",
}


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Ask on this machine, then on staged ones; a stage that fails is a fact of its own."""
    from grader.probes import staging

    answers = list(_questions("this machine", submission, staging.real()))
    try:
        stages = [(gpus, staging.NVIDIA) for gpus in (0, 1, 4, int(rng.integers(5, 9)))]
        for gpus, made in (*stages, (2, staging.AMD), (3, staging.CPU_FIRST)):
            with staging.machine(gpus=gpus, made=made) as stage:
                name = _machine(gpus, made)
                answers += _questions(name, staging.fresh(submission), stage)
        with staging.machine(gpus=2, made=staging.GOOGLE) as stage:  # only: are they counted?
            module = staging.fresh(submission)
            answers.append(_ask("a machine with 2 TPUs", module, stage, "num_gpus"))
        for fault, name in FAULTS.items():
            for function in ("num_gpus", "try_gpu", "try_all_gpus"):
                with staging.machine(broken=fault) as stage:
                    answers.append(_ask(name, staging.fresh(submission), stage, function))
    except staging.Gone as gone:
        observe.fact("no stage", str(gone))
    observe.fact("answers", msgspec.to_builtins(answers))


def _machine(count: int, made: "Made") -> str:
    there = f"a machine with {plural(count, made.name)}" if count else "a machine without GPUs"
    return there + (f" and JAX_PLATFORMS={made.platforms}" if made.platforms else "")


def _questions(machine: str, module: ModuleType, stage: "Stage") -> Iterator[Answer]:
    gpus = len(stage.gpus)
    yield _ask(machine, module, stage, "num_gpus")
    yield _ask(machine, module, stage, "try_gpu")
    for index in (*sorted({0, gpus - 1, gpus, gpus + 5} - {-1}), *sorted({-1, -gpus} - {0})):
        yield _ask(machine, module, stage, "try_gpu", index)
    yield _ask(machine, module, stage, "try_all_gpus")


def _ask(machine: str, module: ModuleType, stage: "Stage", function: str, *args: int) -> Answer:
    call = f"{function}({', '.join(map(str, args))})"
    try:
        value = getattr(module, function)(*args)
    except Exception as error:  # noqa: BLE001 (whatever it raises is the answer)
        return Answer(machine, call, "", list(_chain(error)), _line(error, module.__file__))
    return Answer(machine, call, _words(value, stage))


def _chain(error: BaseException | None) -> Iterator[str]:
    """The error, what it was raised from, and so on."""
    while error is not None:
        text = f"{type(error).__name__}: {error}"
        yield text.removesuffix(": ")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _line(error: Exception, path: str | None) -> int | None:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    return lines[-1] if lines else None


def _words(value: Any, stage: "Stage") -> str:
    """An answer in words that do not depend on which CPU device was taken."""
    if type(value) is not list:
        return _word(value, stage)
    words = [_word(item, stage) for item in value]
    return A_CPU_LIST if set(words) == {A_CPU} else f"[{', '.join(words)}]"


def _word(value: Any, stage: "Stage") -> str:
    for index, gpu in enumerate(stage.gpus):
        if value is gpu:
            return f"GPU {index}"
    if any(value is cpu for cpu in stage.cpus):
        return A_CPU
    if type(value) in (bool, int, str, type(None)):
        return f"{value!r}"
    return f"an object of type `{type(value).__name__}`"


EXERCISE = Exercise(
    title="Find the devices, whatever the machine",
    lesson="lessons/01-what-hardware-do-i-have",
    anchor="count-what-is-there",
    edits=("num_gpus", "try_gpu", "try_all_gpus"),
    drive=drive,
    hints=(
        'On a machine without GPUs, jax.devices("gpu") raises. What does jax.devices() do there?',
        "A RuntimeError has two meanings here: no GPU, or a plugin that failed. When are plugins "
        "started, and which call can tell the two apart?",
        "Call jax.devices() first, outside any `try`. After it, a RuntimeError of "
        'jax.devices("gpu") can only mean that there is no GPU: then the answers are 0, a CPU '
        "device, and a list with a CPU device in it.",
    ),
)


def _answers(observed: Observed) -> list[Answer]:
    return msgspec.convert(observed.facts.get("answers", []), list[Answer])


def _pairs(record: Record, function: str) -> Iterator[tuple[Answer, Answer]]:
    """The submission's and the reference's answer to each call of `function`."""
    mine = {(a.machine, a.call): a for a in _answers(seen(record))}
    for want in _answers(wanted(record)):
        if want.call.startswith(f"{function}("):
            none = Answer(want.machine, want.call, "no answer")
            yield mine.get((want.machine, want.call), none), want


def _judged(record: Record, function: str, concerns: Callable[[str], bool]) -> Result:
    """The first wrong answer among those whose right answer `concerns` us."""
    for mine, want in _pairs(record, function):
        if not want.raised and concerns(want.answer) and mine.answer != want.answer:
            expected = f"`{mine.call}` is {want.answer} on {mine.machine}"
            return Failure(expected, _said(mine), _place(record, mine, function))
    return _no_stage(record)


def _no_stage(record: Record) -> Unable | None:
    why = seen(record).facts.get("no stage") or wanted(record).facts.get("no stage")
    return Unable(f"other machines could not be staged: {why}") if why else None


def _said(mine: Answer) -> str:
    return f"it raised {mine.raised[0]}" if mine.raised else mine.answer


def _place(record: Record, mine: Answer, function: str) -> list[Culprit]:
    return [culprit(record, mine.line)] if mine.line else definition(record, function)


@EXERCISE.check(
    ground="observed",
    hints=(
        "jax.device_count() without an argument counts the default backend's devices, CPUs too. "
        'A GPU\'s platform is "gpu", whoever made it.',
        "The default backend need not be the GPUs': JAX_PLATFORMS=cpu,cuda makes it the CPU's. "
        'jax.devices("gpu") finds GPUs behind any backend.',
    ),
)
def counts_gpus(record: Record) -> Result:
    """`num_gpus` is the number of GPUs, and 0 without any."""
    return _judged(record, "num_gpus", lambda _: True)


@EXERCISE.check(ground="observed", after=("counts_gpus",))
def gives_gpu_i(record: Record) -> Result:
    """`try_gpu(i)` is GPU i where there is one."""
    return _judged(record, "try_gpu", lambda answer: answer != A_CPU)


@EXERCISE.check(
    ground="observed",
    after=("counts_gpus", "gives_gpu_i"),
    hints=(
        "With n GPUs, their numbers are 0 to n - 1. For any other i there is no GPU: not for n, "
        "and not for -1, though to a list that is an index.",
        'Where there are GPUs, jax.devices()[0] is one of them. jax.devices("cpu") is not.',
    ),
)
def falls_back_to_a_cpu(record: Record) -> Result:
    """`try_gpu(i)` is a CPU device where there is no GPU i."""
    return _judged(record, "try_gpu", lambda answer: answer == A_CPU)


@EXERCISE.check(ground="observed", after=("counts_gpus",))
def lists_every_gpu(record: Record) -> Result:
    """`try_all_gpus` lists every GPU, in order."""
    return _judged(record, "try_all_gpus", lambda answer: answer != A_CPU_LIST)


@EXERCISE.check(
    ground="observed",
    after=("counts_gpus",),
    hints=(
        "Without GPUs, what is a list made from them?",
        "range(0) is empty, and so is a list made from it. Fill it up, or return another list.",
    ),
)
def list_is_never_empty(record: Record) -> Result:
    """`try_all_gpus` holds a CPU device where there is no GPU."""
    return _judged(record, "try_all_gpus", lambda answer: answer == A_CPU_LIST)


@EXERCISE.check(
    ground="source",
    hints=("Name the exception that you mean: jax raises RuntimeError where there is no GPU.",),
    anchor="a-broken-plugin-is-not-zero-gpus",
)
def no_bare_except(record: Record) -> Result:
    """No `except` is bare: each names what it catches."""
    handlers = _handlers(ast.parse(record.source))
    bare = [handler.lineno for handler in handlers if handler.type is None]
    if not bare:
        return None
    return Failure(
        "each `except` names an exception",
        "a bare `except`, which catches every error, a failing plugin's too",
        [culprit(record, line) for line in bare],
    )


def _handlers(tree: ast.AST) -> list[ast.ExceptHandler]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]


@EXERCISE.check(
    ground="observed",
    after=("no_bare_except",),
    hints=(
        "RuntimeError is what JAX raises for both: no GPU, and a plugin that failed.",
        "JAX starts its plugins at the first question, and only then. Ask once outside any `try`.",
    ),
    anchor="a-broken-plugin-is-not-zero-gpus",
)
def plugin_error_reaches_the_caller(record: Record) -> Result:
    """A plugin's error reaches the caller; it is not "0 GPUs"."""
    staged = set(FAULTS.values())
    for function in ("num_gpus", "try_gpu", "try_all_gpus"):
        for mine, want in _pairs(record, function):
            if want.machine in staged and not _reaches(want.raised, mine.raised):
                return _swallowed(record, mine, want, function)
    return _no_stage(record)


def _reaches(raised: list[str], mine: list[str]) -> bool:
    """Whether JAX's error, or another one with its text, is among what reaches the caller."""
    text = "".join(raised[:1])
    return bool(text) and any((text.partition(": ")[2] or text) in said for said in mine)


def _swallowed(record: Record, mine: Answer, want: Answer, function: str) -> Result:
    if not want.raised:
        return Unable(f"the reference saw no error on {want.machine}")
    dropped = f"the error was dropped, and the answer was {mine.answer}"
    return Failure(
        f"`{mine.call}` raises JAX's error on {mine.machine}: {want.raised[0]}",
        _said(mine) if mine.raised else dropped,
        _catching(record, function) or _place(record, mine, function),
    )


def _catching(record: Record, function: str) -> list[Culprit]:
    """Lines of `function` that catch errors, or else of the whole file."""
    tree = ast.parse(record.source)
    inside = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function]
    lines = [line for node in inside for line in _catches(node)] or _catches(tree)
    return [culprit(record, line) for line in lines]


def _catches(tree: ast.AST) -> list[int]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    suppress = [call.lineno for call in calls if ast.unparse(call.func).endswith("suppress")]
    return [handler.lineno for handler in _handlers(tree)] + suppress
