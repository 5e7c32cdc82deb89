"""ex10_diagnose: causes and remedies, for reports of machines that are not at hand.

The reports are made afresh for each grading (`grader.probes.broken`), most of them by
JAX's own code on a staged machine. What is right is read from the reference's record.
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import msgspec

from grader.checking import Exercise, Failure, Observe, Result, Unable
from grader.evidence import definition, seen, wanted
from grader.record import Record
from grader.words import plural

GENERIC = "An NVIDIA GPU may be present on this machine"
INSTALLATION = "no plugin", "plugin of another version", "jaxlib of another version", "two plugins"
LIBRARIES = ("library missing", "foreign library")
DEVICES = ("no driver", "gpu hidden", "no device node")
ENVIRONMENT = (
    "JAX_PLATFORMS is gpu",
    "JAX_PLATFORMS is misspelt",
    "JAX_PLATFORMS is cpu",
    "XLA_FLAGS is misspelt",
)
SOUND = ("gpu in use", "no gpu")


class Answer(msgspec.Struct, omit_defaults=True):
    """What `diagnose` said of one report: two words, or `other`, what it was instead."""

    truth: str
    report: str
    cause: str = ""
    remedy: str = ""
    other: str = ""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Ask for a diagnosis of every report."""
    from grader.probes import broken

    try:
        with observe.unwatched():
            reports = broken.reports(rng)
    except broken.Gone as gone:
        observe.fact("no stage", str(gone))
        return
    answers = [_answer(submission, r.cause, r.text) for r in reports]
    observe.fact("answers", msgspec.to_builtins(answers))
    observe.fact("causes", [*submission.CAUSES])
    observe.fact("remedies", [*submission.REMEDIES])


def _answer(submission: ModuleType, truth: str, report: str) -> Answer:
    try:
        value = submission.diagnose(report)
    except Exception as error:
        error.add_note(f"It was raised for this report:\n{report}")
        raise
    words = tuple(value) if isinstance(value, tuple | list) else ()
    if len(words) == 2 and all(isinstance(word, str) for word in words):
        return Answer(truth, report, *map(str.__str__, words))  # of a StrEnum, its text alone
    kinds = ", ".join(type(word).__name__ for word in words)
    told = f"of type {type(value).__name__}" + f" ({kinds})" * bool(words)
    return Answer(truth, report, other=told)


EXERCISE = Exercise(
    title="Name the cause, and the remedy",
    lesson="lessons/05-who-decides-where-it-runs",
    anchor="reading-a-broken-machine",
    edits=("diagnose",),
    drive=drive,
    hints=(
        "One fault makes several lines. Which line of a report would not be there on another "
        "broken machine?",
        "Look for the most special texts first, and for those that follow any fault last. Where "
        "no text is left, versions and variables decide.",
        "A list of (text, cause, remedy), tried in order, is enough for all that fail aloud. "
        "`for sign, cause, remedy in SIGNS: if sign in report: return cause, remedy`",
    ),
)


def _answers(record: Record) -> list[tuple[Answer, str]] | Unable:
    """The submission's answers, each with the true cause; the reference knows it."""
    why = seen(record).facts.get("no stage") or wanted(record).facts.get("no stage")
    if why:
        return Unable(f"broken machines could not be staged: {why}")
    mine = msgspec.convert(seen(record).facts["answers"], list[Answer])
    theirs = msgspec.convert(wanted(record).facts["answers"], list[Answer])
    return [(answer, right.truth) for answer, right in zip(mine, theirs, strict=True)]


def _right(record: Record) -> dict[str, str]:
    """Cause -> remedy, as the reference answers."""
    theirs = msgspec.convert(wanted(record).facts["answers"], list[Answer])
    return {answer.cause: answer.remedy for answer in theirs}


def _first(
    record: Record,
    wrong: Callable[[Answer, str], bool],
    told: Callable[[Answer, str], tuple[str, str]],
) -> Result:
    """A failure for the first report whose answer is `wrong`; `told` says it in words."""
    answers = _answers(record)
    if isinstance(answers, Unable):
        return answers
    found = [(mine, truth) for mine, truth in answers if wrong(mine, truth)]
    if not found:
        return None
    expected, observed = told(*found[0])
    count = f"{len(found)} of {plural(len(answers), 'report')}; the first of them reads\n"
    return Failure(
        expected, f"{observed}: {count}{found[0][0].report}", definition(record, "diagnose")
    )


@EXERCISE.check(ground="observed")
def answers_in_the_words(record: Record) -> Result:
    """`diagnose` returns a pair: a key of CAUSES, and one of REMEDIES."""
    words = wanted(record).facts

    def wrong(mine: Answer, _: str) -> bool:
        known = mine.cause in words["causes"] and mine.remedy in words["remedies"]
        return bool(mine.other) or not known

    def told(mine: Answer, _: str) -> tuple[str, str]:
        pair = mine.other or f'("{mine.cause}", "{mine.remedy}")'
        return "a pair (cause, remedy), in the words of CAUSES and REMEDIES", f"it is {pair}"

    return _first(record, wrong, told)


@EXERCISE.check(
    ground="observed",
    after=("answers_in_the_words",),
    hints=(
        "JAX prints that line whenever a GPU's device node is there and no CUDA backend started. "
        "It does not know why. What stands above it?",
        "The line means a missing plugin only where none is listed, and no error stands above it.",
    ),
)
def looks_above_the_generic_line(record: Record) -> Result:
    """The line "Falling back to cpu" alone is not taken for the cause."""

    def wrong(mine: Answer, truth: str) -> bool:
        return GENERIC in mine.report and truth != mine.cause == "no plugin"

    def told(_: Answer, truth: str) -> tuple[str, str]:
        line = f'the line "{GENERIC} ... Falling back to cpu" was taken for the cause'
        why = "it follows any plugin that fails, and the cause stands above it"
        return f"the cause is `{truth}`", f"{line}; {why}"

    return _first(record, wrong, told)


def _family(record: Record, causes: tuple[str, ...]) -> Result:
    """The first machine of a family whose cause was not found."""

    def wrong(mine: Answer, truth: str) -> bool:
        return truth in causes and mine.cause != truth

    def told(mine: Answer, truth: str) -> tuple[str, str]:
        return f"the cause is `{truth}`", f"`{mine.cause}`{_confused(mine, truth)}"

    return _first(record, wrong, told)


_CONFUSED: Mapping[tuple[str, str], str] = {
    ("no driver", "gpu hidden"): "the driver was never loaded, so it hides nothing",
    ("gpu hidden", "no driver"): "the driver answered: it sees no GPU",
    ("gpu in use", "library missing"): "a library that is registered twice is there",
    ("foreign library", "library missing"): "the library is there, behind another one of "
    "LD_LIBRARY_PATH",
    ("no plugin", "JAX_PLATFORMS is misspelt"): "'cuda' is spelt right, but no plugin is listed",
    ("library missing", "JAX_PLATFORMS is misspelt"): "'cuda' is spelt right, but its plugin "
    "failed before",
    ("JAX_PLATFORMS is gpu", "JAX_PLATFORMS is misspelt"): "'gpu' is a known name, and more than "
    "CUDA",
    ("no gpu", "no device node"): "no plugin is listed that could miss a node",
    ("no device node", "no gpu"): "a plugin is listed: somebody expects a GPU here",
    ("no device node", "gpu in use"): "the backend is the CPU, without a word of complaint",
    ("JAX_PLATFORMS is cpu", "gpu in use"): "the backend is the CPU, as it was told",
    ("two plugins", "gpu in use"): "one of the two plugins failed, and says so",
    ("plugin of another version", "gpu in use"): "a warning says that parts stay unused",
}


_SIGNS: Mapping[str, str] = {
    "gpu in use": "the GPU listed, and no error or warning of JAX",
    "no gpu": "no plugin listed, and no GPU in sight",
    "no plugin": "no plugin listed, and a GPU in sight or asked for",
    "plugin of another version": "a warning that plugin and jaxlib are not compatible",
    "jaxlib of another version": "an error that names the versions of jax and jaxlib",
    "two plugins": "plugins of two versions of CUDA listed, and an error that one exists already",
    "library missing": "a library that cannot be loaded",
    "foreign library": "a library that cannot be loaded, and LD_LIBRARY_PATH",
    "no driver": "cuInit failed, with number 303",
    "gpu hidden": "cuInit failed, with a name that says why",
    "no device node": "a plugin listed, no GPU, and no text that says why",
    "JAX_PLATFORMS is gpu": "an error that names a backend of another maker",
    "JAX_PLATFORMS is misspelt": "an error that names a backend in a wrong spelling",
    "JAX_PLATFORMS is cpu": "a variable that asks for the CPU",
    "XLA_FLAGS is misspelt": "an error that names a flag",
}


def _confused(mine: Answer, truth: str) -> str:
    """Why one cause is not the other, where two are easily mixed up, or what would show it."""
    known = f"that shows in {_SIGNS[mine.cause]}" if mine.cause in _SIGNS else ""
    why = _CONFUSED.get((truth, mine.cause), known)
    return f"; {why}" * bool(why)


@EXERCISE.check(
    ground="observed",
    after=("looks_above_the_generic_line",),
    hints=(
        "Read the list of packages first: is a plugin there, is there more than one, and do "
        "the versions agree?",
        "No plugin listed, and a GPU in sight or asked for: none is installed. Two plugins, or "
        "versions that do not fit, have an error or a warning of their own.",
    ),
)
def installation(record: Record) -> Result:
    """Faults of the installation are found: plugins missing, doubled, of another version."""
    return _family(record, INSTALLATION)


@EXERCISE.check(
    ground="observed",
    after=("looks_above_the_generic_line",),
    hints=("Two causes share one text. Which variable tells them apart?",),
)
def libraries(record: Record) -> Result:
    """Faults of CUDA's libraries are found: missing, or from the wrong place."""
    return _family(record, LIBRARIES)


@EXERCISE.check(
    ground="observed",
    after=("looks_above_the_generic_line",),
    hints=(
        '"No visible GPU devices" follows both of two faults. The line of cuInit tells which.',
        "A machine that fails without a word: plugin listed, backend cpu, and no variable "
        "that asks for it.",
    ),
)
def driver_and_devices(record: Record) -> Result:
    """Faults between plugin and GPU are found: driver, visibility, device node."""
    return _family(record, DEVICES)


@EXERCISE.check(
    ground="observed",
    after=("looks_above_the_generic_line",),
    hints=(
        "The error names the backend that JAX looked for, in quotes. Is that a name JAX knows?",
        "'cuda' is a right name. It is unknown where its plugin is missing, or has failed.",
    ),
)
def environment(record: Record) -> Result:
    """Faults of environment variables are found."""
    return _family(record, ENVIRONMENT)


@EXERCISE.check(
    ground="observed",
    after=("looks_above_the_generic_line",),
    hints=("Which lines stand in reports of machines that are well? They prove nothing.",),
)
def sound_machines(record: Record) -> Result:
    """Machines on which nothing is broken are left in peace, whatever they print."""
    return _family(record, SOUND)


@EXERCISE.check(
    ground="observed",
    after=("answers_in_the_words",),
    hints=("Fifteen causes, fifteen remedies: which one is never used, which one twice?",),
)
def each_cause_its_remedy(record: Record) -> Result:
    """Each cause is mended by its own remedy."""
    right = _right(record)

    def wrong(mine: Answer, truth: str) -> bool:
        return mine.cause == truth and mine.remedy != right[truth]

    def told(mine: Answer, truth: str) -> tuple[str, str]:
        return f"`{truth}` is mended by: {right[truth]}", f"it is `{mine.remedy}`"

    return _first(record, wrong, told)
