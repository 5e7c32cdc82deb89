"""Checks of ex01_find_devices: each answer is the reference's, and a plugin's error gets out.

Answers on machines that could not be staged are *could not check*, unless an answer before
them was wrong.
"""

import ast
import re
from collections.abc import Callable, Iterator

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
from grader.judging.arrays import FORM
from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import (
    calls_of,
    culprit,
    culprits,
    definition,
    events,
    probe_gap,
    seen,
    wanted,
)
from grader.judging.said import cleaned, hint_for
from grader.judging.words import plural
from grader.records.record import Observed, Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File, reached
from grader.source.slips import last_name

PLATFORM = (
    'A GPU\'s platform is "gpu", whoever made it. Its kind is the name of a product, and its text '
    "that of a maker's software."
)
EACH = 'Each device that jax.devices("gpu") lists counts once, whatever its kind, number or name.'
AGAIN = "The first answers on this machine were right. What does the file keep between two calls?"
BY_NAME = (
    "With the number alone, the answers are right. Here it is given by its name, `i`. Which line "
    "passes it on?"
)
DECIDES = (
    "There is such a GPU here. What is the value of each part of the marked condition in this call?"
)
WHOSE = (
    'jax.devices("gpu") lists the GPUs; jax.devices() lists the devices of the default backend. '
    "Which of them do you count?"
)
NAMES = frozenset(("platform", "device_kind", "str", "repr"))
"""What gives some name of a device."""
NO_ARRAYS = (
    "Ask JAX which devices are there, and create no array. The grader stages these machines: their "
    "devices are listed, and no array can be made on them."
)
NO_GPU = (
    'Where there is no GPU, jax.devices("gpu") and jax.device_count("gpu") raise RuntimeError. '
    "What does your function do then?"
)
RAISED = "This line raises, whatever devices the machine has. What does the error say of it?"
DEFAULT = (
    "The default backend is not always that of the GPUs: with JAX_PLATFORMS=cpu,cuda it is that of "
    'the CPU. jax.devices("gpu") finds the GPUs, whatever the default is.'
)
NO_GPUS = ("0", A_CPU, A_CPU_LIST)
"""The answers where there is no GPU."""
A_LIST = "Without GPUs, the list of `try_all_gpus` holds a CPU device. What does its length count?"
NO_VALUE = "Which way does this call take? It ends without a `return` that gives a value."
NUMBERS = (
    "With n GPUs, their numbers are 0 to n - 1. No GPU has the number n, and none has the number "
    "-1, though -1 is an index of a list."
)


def _answers(observed: Observed) -> list[Answer]:
    return msgspec.convert(observed.facts.get(ANSWERS, []), list[Answer])


def _pairs(record: Record, function: str) -> Iterator[tuple[Answer, Answer]]:
    """The submission's and the reference's answer to each call of `function`."""
    mine = {(a.machine, a.call): a for a in _answers(seen(record))}
    for want in _answers(wanted(record)):
        if want.call.startswith(f"{function}("):
            none = Answer(want.machine, want.call, "no answer")
            yield mine.get((want.machine, want.call), none), want


def _judged(record: Record, function: str, concerns: Callable[[str], bool]) -> Result:
    """The failure for the first wrong answer, where the right answer `concerns` this check."""
    for mine, want in _pairs(record, function):
        if not want.raised and concerns(want.answer) and mine.answer != want.answer:
            expected = f"`{mine.call}` is {_short(want.answer)} on {mine.machine}"
            if mine.answer == want.answer + LEFT:
                place = statements.call(record, function, *OF_DEFAULT_DEVICE)
                return Failure(expected, _said(mine, want), place, ASK_ALONE)
            right = _right_line(record, mine, want, function)
            if right:
                place = statements.deciding(record, mine.line or 0, right)
                said = f"{_said(mine, want)}; line {right}, which gives the right answer on other "
                said += "machines, is not reached"
                beyond = NUMBERS if want.answer == A_CPU else DECIDES
                hint = DEFAULT if _by_its_default(want) else _hint(record, mine, want) or beyond
                return Failure(expected, said, place, hint)
            hint = _hint(record, mine, want)
            if mine.answer in NO_GPUS and (named := _with_a_number(record, function)):
                return Failure(expected, _said(mine, want), named, ONLY_A_PLATFORM)
            hint = BY_NAME if _only_by_name(record, mine, function) else hint
            if not hint and _in_order_of_texts(mine, want) and (made := _sorts(record, function)):
                said = f"{_said(mine, want)}: among texts, 10 comes before 2"
                return Failure(expected, said, made, SORTED)
            places = {PLATFORM: _by_name, EACH: _by_name, DEFAULT: _by_default}
            place = places[hint](record, function) if hint in places else []
            place = place or _place(record, mine, function)
            made = [culprit(record, mine.line)] if mine.line else []
            return Failure(expected, _said(mine, want), place, hint, made)
    return _no_stage(record)


ONLY_A_PLATFORM = (
    'jax.devices takes the name of a platform, "gpu", and no number. Asked for "gpu:1", it raises '
    'RuntimeError: JAX knows no such platform. jax.devices("gpu") is a list; which part is GPU 1?'
)


def _with_a_number(record: Record, function: str) -> list[Culprit]:
    """Where `function` asks for the devices of a text with a colon: "gpu:1"."""
    file = File(record.source)
    nodes = (node for top in reached(file, function) for node in ast.walk(top))
    calls = (n for n in nodes if isinstance(n, ast.Call) and last_name(n.func) == "devices")
    asked = ((call, ast.unparse(part)) for call in calls for part in call.args[:1])
    return [file.place(call) for call, text in asked if re.match(r"f?['\"]\w+:", text)]


OF_DEFAULT_DEVICE = ("default_device", "update")
"""What sets JAX's default device."""
ASK_ALONE = (
    "What is made after this call would be made on another device. Which line sets JAX's default "
    "device? An answer needs none."
)
SORTED = (
    'jax.devices("gpu") has the GPUs in the order of their numbers. What does the marked line '
    "compare, numbers or texts?"
)


def _in_order_of_texts(mine: Answer, want: Answer) -> bool:
    """Whether an answer is the right one of a list whose GPUs are in the order of their texts."""
    right, found = (re.fullmatch(r"GPU (\d+)", one.answer) for one in (want, mine))
    count = re.search(r"(\d+) GPUs", want.machine)
    if not (right and found and count):
        return False
    return found[1] == sorted(map(str, range(int(count[1]))))[int(right[1])]


def _sorts(record: Record, function: str) -> list[Culprit]:
    """The lines behind `function` that sort something."""
    return [
        place for name in ("sorted", "sort") for place in statements.every(record, function, name)
    ]


def _only_by_name(record: Record, mine: Answer, function: str) -> bool:
    """Whether only calls that give `i` by its name are wrong, as this one is."""
    wrong = [a.call for a, b in _pairs(record, function) if a.answer != b.answer]
    return "i=" in mine.call and all("i=" in call for call in wrong)


def _right_line(record: Record, mine: Answer, want: Answer, function: str) -> int:
    """The line to which an `if` did not lead, though its answer is wanted; 0 if that is not known.

    Elsewhere this line and that of `mine` gave right answers, one with a GPU, and one without.
    """
    right = [
        (a.line, a.answer in NO_GPUS)
        for a, b in _pairs(record, function)
        if a.answer == b.answer and not a.raised
    ]
    without = want.answer in NO_GPUS
    if (mine.line, not without) not in right:
        return 0
    lines = (line for line, found in right if line and line != mine.line and found == without)
    return next((line for line in lines if statements.deciding(record, mine.line or 0, line)), 0)


def _hint(record: Record, mine: Answer, want: Answer) -> str:
    """The hint that an answer asks for in place of the check's first one, or ""."""
    if mine.raised:
        return NUMBERS if "-" in mine.call else _hint_of_error(mine.raised[0])
    if mine.answer == "None":
        return NO_VALUE
    if _kind(mine.answer) != _kind(want.answer):
        return FORM
    if _kind(want.answer) == "a number" and mine.answer == "0":
        if _arrays(record):
            return NO_ARRAYS
        if _by_its_default(want):
            return DEFAULT
        by_name = any(map(_names_a_device, File(record.source).tree.body))
        return PLATFORM if by_name or "AMD" in want.machine else WHOSE
    if want.machine.endswith(ASKED_AGAIN) or LATER in mine.answer:
        return AGAIN
    if want.answer == "0" and statements.uses(record, "num_gpus", "try_all_gpus"):
        return A_LIST
    if _kind(want.answer) == "a number" and int(mine.answer) < int(want.answer):
        return EACH
    beyond = want.answer == A_CPU and mine.answer.startswith("GPU ")
    outside = beyond and ("-" in mine.call or "devices()[" not in record.source)
    of_cpus = mine.answer == A_CPU_LIST and _by_its_default(want)
    return NUMBERS * outside or DEFAULT * of_cpus


OF_THE_DEFAULT = ("default_backend", "devices", "device_count", "local_devices")
"""What speaks of the default backend, if no other is named; what decides comes first."""


def _hint_of_error(error: str) -> str:
    if error.startswith("IndexError"):
        return NUMBERS
    return NO_GPU if "Unknown backend" in error else hint_for(error) or RAISED


def _by_its_default(want: Answer) -> bool:
    """Whether the CPU is the default backend there, and the maker is the one of most machines."""
    return "JAX_PLATFORMS=cpu" in want.machine and "AMD" not in want.machine


def _arrays(record: Record) -> list[Culprit]:
    """The lines that make arrays."""
    return calls_of(record, ("jnp.zeros", "jnp.ones", "jnp.array", "jnp.asarray", "jnp.arange"))


def _kind(answer: str) -> str:
    """What kind of answer this is, by its text."""
    if answer.isdecimal():
        return "a number"
    if answer.startswith("["):
        return "a list of lists" if "a list" in answer else "a list"
    return "a device" if answer == A_CPU or answer.startswith(("GPU ", "TPU ")) else answer


def _no_stage(record: Record) -> Unable | None:
    """`Unable` if a machine could not be staged, so that its answers are missing."""
    why = seen(record).facts.get(NO_STAGE) or wanted(record).facts.get(NO_STAGE)
    return Unable(f"other machines could not be staged: {why}") if why else None


def _said(mine: Answer, want: Answer) -> str:
    """What came of a call, in words."""
    if mine.raised:
        return f"it raised {cleaned(mine.raised[0])}"
    in_a_list = mine.answer.startswith("[") and not want.answer.startswith("[")
    return f"a list: {_short(mine.answer)}" if in_a_list else _short(mine.answer)


LONG = re.compile(r"\[[^\]]{200,}\]")
"""A list of more devices than a line shows."""


def _short(answer: str) -> str:
    """An answer, with the middle of a long list left out."""

    def shortened(found: re.Match[str]) -> str:
        words = found[0][1:-1].split(", ")
        return f"[{', '.join(words[:2])}, ..., {words[-1]}] of length {len(words)}"

    return LONG.sub(shortened, answer)


def _place(record: Record, mine: Answer, function: str) -> list[Culprit]:
    """The line that raised, else one that makes an array, else that which defines `function`."""
    if mine.line and mine.raised:
        return [culprit(record, mine.line)]
    return _arrays(record)[:1] or definition(record, function)


def _by_name(record: Record, function: str) -> list[Culprit]:
    """The only line behind `function` that tells devices apart by a name, or nothing."""
    found = [
        line for top in reached(File(record.source), function) for line in _names_a_device(top)
    ]
    return [culprit(record, found[0])] if len(found) == 1 else []


def _names_a_device(tree: ast.AST) -> list[int]:
    """The lines that ask for a name of something, but for the text of an error."""
    errors = {handler.name for handler in _handlers(tree)}
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name))
    texts = {
        id(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and errors & {ast.unparse(arg) for arg in node.args}
    }
    found = {n.lineno for n in names if last_name(n) in NAMES and id(n) not in texts}
    return sorted(found)


def _by_default(record: Record, function: str) -> list[Culprit]:
    """The only line behind `function` that asks for the default backend, or nothing."""
    nodes = (node for top in reached(File(record.source), function) for node in ast.walk(top))
    calls = [n for n in nodes if isinstance(n, ast.Call) and not (n.args or n.keywords)]
    for name in OF_THE_DEFAULT:
        found = {call.lineno for call in calls if last_name(call.func) == name}
        if found:
            return [culprit(record, line) for line in found] if len(found) == 1 else []
    return []


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
        "a bare `except`, which catches every error, that of a failing plugin included",
        [culprit(record, line) for line in bare],
    )


@EXERCISE.check(
    ground="observed",
    hints=(
        "jax.device_count() without an argument counts the default backend's devices, CPUs too.",
        PLATFORM,
        DEFAULT,
    ),
)
def counts_gpus(record: Record) -> Result:
    """`num_gpus` is the number of GPUs, and 0 without any."""
    return _judged(record, "num_gpus", lambda _: True)


@EXERCISE.check(
    ground="observed",
    after=("counts_gpus",),
    hints=(
        'jax.devices("gpu") lists the GPUs in the order of their numbers, whatever the default '
        "backend is. Which of them does `try_gpu` return?",
    ),
)
def gives_gpu_i(record: Record) -> Result:
    """`try_gpu(i)` is GPU i where there is one."""
    return _judged(record, "try_gpu", lambda answer: answer != A_CPU)


@EXERCISE.check(
    ground="observed",
    after=("counts_gpus", "gives_gpu_i"),
    hints=(
        'Where there are GPUs, jax.devices()[0] is one of them, and jax.devices("cpu")[0] is not.',
        NUMBERS,
    ),
)
def falls_back_to_a_cpu(record: Record) -> Result:
    """`try_gpu(i)` is a CPU device where there is no GPU i."""
    return _judged(record, "try_gpu", lambda answer: answer == A_CPU)


@EXERCISE.check(
    ground="observed",
    after=("counts_gpus", "gives_gpu_i"),
    hints=('jax.devices("gpu") has each GPU once, in order. Which of them are in your list?',),
)
def lists_every_gpu(record: Record) -> Result:
    """`try_all_gpus` lists every GPU, in order."""
    return _judged(record, "try_all_gpus", lambda answer: answer != A_CPU_LIST)


@EXERCISE.check(
    ground="observed",
    after=("counts_gpus", "falls_back_to_a_cpu", "lists_every_gpu"),
    hints=(
        "Without GPUs, what is a list made from them?",
        "range(0) is empty, and so is a list made from it. Add to it, or return another list.",
    ),
)
def list_is_never_empty(record: Record) -> Result:
    """`try_all_gpus` holds a CPU device where there is no GPU."""
    return _judged(record, "try_all_gpus", lambda answer: answer == A_CPU_LIST)


@EXERCISE.check(
    ground="observed",
    after=("list_is_never_empty",),
    hints=("jax.devices lists devices. None of them is needed to make an array for that.",),
)
def creates_no_array(record: Record) -> Result:
    """JAX is asked what is there, and no array is created."""
    made = list(events(seen(record), "h2d", "compile"))
    if not made:
        return probe_gap(seen(record), "transfers", "compiles")
    total = plural(sum(event.count for event in made), "time")
    return Failure("no array is created", f"arrays are created {total}", culprits(record, made))


def _handlers(tree: ast.AST) -> list[ast.ExceptHandler]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]


@EXERCISE.check(
    ground="observed",
    after=("no_bare_except",),
    hints=(
        "JAX raises RuntimeError in both cases: when there is no GPU, and when a plugin failed.",
        "JAX starts its plugins when you first ask it for devices, and only then. Ask once, "
        "outside any `try`.",
    ),
    anchor="a-broken-plugin-is-not-zero-gpus",
)
def plugin_error_reaches_the_caller(record: Record) -> Result:
    """A plugin's error reaches the caller; it is not "0 GPUs"."""
    for function in EXERCISE.edits:
        for mine, want in _pairs(record, function):
            if want.machine in FAULTS and not _reaches(want.raised, mine.raised):
                return _swallowed(record, mine, want, function)
    return _no_stage(record)


def _reaches(raised: list[str], mine: list[str]) -> bool:
    """Whether the caller gets JAX's error, or another error that quotes its text.

    `raised` is what reached the reference's caller, `mine` what reached the submission's:
    errors as text, each followed by its cause.
    """
    text = "".join(raised[:1])
    return bool(text) and any((text.partition(": ")[2] or text) in said for said in mine)


def _swallowed(record: Record, mine: Answer, want: Answer, function: str) -> Result:
    """The failure for an error of JAX that did not reach the caller."""
    if not want.raised:
        return Unable(f"the reference saw no error on {want.machine}")
    dropped = f"the error was dropped, and the answer was {mine.answer}"
    place = _catching(record, function) or _place(record, mine, function)
    raising = [culprit(record, mine.line)] if mine.raised and mine.line else []
    own = [one for one in raising if one.text.startswith("raise ")]
    return Failure(
        f"`{mine.call}` raises JAX's error on {mine.machine}: {want.raised[0]}",
        _said(mine, want) if mine.raised else dropped,
        [*own, *place],
        HIDDEN if own else "",
    )


HIDDEN = (
    "An error of your own tells the caller of JAX's only if it quotes it, or is raised from it: "
    "`raise ... from error`. `from None` hides it."
)


def _catching(record: Record, function: str) -> list[Culprit]:
    """The lines that catch errors in `function` and in what the file's functions call from it."""
    found = map(_catches, reached(File(record.source), function))
    return [culprit(record, line) for line in sorted(line for lines in found for line in lines)]


def _catches(tree: ast.AST) -> list[int]:
    """The lines of each `except`, each `contextlib.suppress(...)`, and each `return` in `finally`.

    Such a `return` drops every error, also what an `except` raises again: then it alone counts.
    """
    nodes = list(ast.walk(tree))
    ends = [inner for node in nodes if isinstance(node, ast.Try) for inner in node.finalbody]
    dropping = [n.lineno for end in ends for n in ast.walk(end) if isinstance(n, ast.Return)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    suppress = [call.lineno for call in calls if ast.unparse(call.func).endswith("suppress")]
    return dropping or [handler.lineno for handler in _handlers(tree)] + suppress
