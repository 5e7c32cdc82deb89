"""Checks of ex10_diagnose: the cause of each report, family by family, and the remedy.

The reference solution's answers say which cause is the true one, and which remedy mends it. A check
says of how many reports it fails, and shows the first of them.
"""

import ast
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec

from grader.checks.ex10_diagnose import EXERCISE
from grader.checks.ex10_diagnose.facts import Answer
from grader.checks.ex10_diagnose.way import Way, habit, way
from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import culprit, definition, seen, wanted
from grader.judging.words import plural
from grader.records.record import Record
from grader.records.verdict import Culprit
from grader.source.file import File

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


def _answers(record: Record) -> list[tuple[Answer, str]] | Unable:
    """The submission's answers, each with the true cause; the reference knows it."""
    why = seen(record).facts.get("no stage") or wanted(record).facts.get("no stage")
    if why:
        return Unable(f"broken machines could not be staged: {why}")
    mine = msgspec.convert(seen(record).facts["answers"], list[Answer])
    theirs = msgspec.convert(wanted(record).facts["answers"], list[Answer])
    return [(answer, right.cause) for answer, right in zip(mine, theirs, strict=True)]


def _pairs(record: Record) -> list[tuple[Answer, str]]:
    """As `_answers`; nothing if the reports could not be made."""
    found = _answers(record)
    return [] if isinstance(found, Unable) else found


def _remedies(record: Record) -> dict[str, str]:
    """The remedy for each cause, as the reference answers."""
    theirs = msgspec.convert(wanted(record).facts["answers"], list[Answer])
    return {answer.cause: answer.remedy for answer in theirs}


ALWAYS = "Print what `diagnose` looks for, and where it looks. Which of its conditions ever holds?"


def _always_the_same(record: Record) -> bool:
    """Whether all reports get one answer."""
    return len({mine.cause for mine, _ in _pairs(record)}) == 1


def _first(
    record: Record,
    wrong: Callable[[Answer, str], bool],
    in_words: Callable[[Answer, str], tuple[str, str]],
    hint: Callable[[Answer, str], str] = lambda _, __: "",
) -> Result:
    """A failure for the first report whose answer is `wrong`.

    Both functions get an answer and the true cause; `in_words` gives what was expected and
    what was observed, `hint` a hint in place of the check's first one.
    """
    answers = _answers(record)
    if isinstance(answers, Unable):
        return answers
    found = [(mine, truth) for mine, truth in answers if wrong(mine, truth)]
    if not found:
        return None
    answer, truth = found[0]
    expected, observed = in_words(answer, truth)
    if not answer.other and _always_the_same(record):
        observed = f"`{answer.cause}`, and the same for every report"
    count = f"Wrong for {len(found)} of {plural(len(answers), 'report')}; the first of them reads"
    told = Way(definition(record, "diagnose"))
    if answer.line:
        sure = truth in expected and truth != answer.cause and not _always_the_same(record)
        causes = set(wanted(record).facts["causes"])
        mine = [answer for answer, _ in answers]
        told = way(record.source, causes, mine, answer, truth if sure else "")
    observed = " ".join(
        filter(None, (f"{observed}.", told.words, f"{count}\n{_shown(answer.report)}"))
    )
    return Failure(expected, observed, told.places, told.hint or hint(answer, truth))


@EXERCISE.check(
    ground="observed",
    hints=("The cause comes first, and is a key of CAUSES; the remedy is a text of REMEDIES.",),
)
def answers_in_the_words(record: Record) -> Result:
    """`diagnose` returns a pair: a key of CAUSES and a text of REMEDIES."""
    words = wanted(record).facts

    def wrong(mine: Answer, _: str) -> bool:
        known = mine.cause in words["causes"] and mine.remedy in words["remedies"]
        return bool(mine.other) or not known

    def in_words(mine: Answer, _: str) -> tuple[str, str]:
        pair = mine.other or f'("{mine.cause}", "{mine.remedy}")'
        unknown = "" if mine.other else _unknown(mine, words["causes"], words["remedies"])
        return ASKED, f"it is {pair}{unknown}"

    def hint(mine: Answer, _: str) -> str:
        return NO_ANSWER if mine.other == "None" else ""

    return _first(record, wrong, in_words, hint)


LINES, LETTERS = 24, 100
"""So many lines at each end of a long report are shown, and so many letters at that of a line."""


def _shown(report: str) -> str:
    """A report, without the middle of what is long in it."""
    lines = [
        line if len(line) <= 4 * LETTERS else f"{line[:LETTERS]} ... {line[-LETTERS:]}"
        for line in report.split("\n")
    ]
    if (left := len(lines) - 2 * LINES) > LINES:
        lines[LINES:-LINES] = [f"... {left} more lines ..."]
    return "\n".join(lines)


ASKED = "a pair (cause, remedy), in the words of CAUSES and REMEDIES"
NO_ANSWER = "Which way through `diagnose` does this report take? It ends without a `return`."


NEAR = 0.8
"""How alike a wrong word must be to a right one that is named beside it; 1 is the same word."""


def _unknown(mine: Answer, causes: list[str], remedies: list[str]) -> str:
    """Which of the two words is not one of those asked for, and which is the nearest."""
    if mine.cause in remedies and mine.remedy in causes:
        return ": they are exchanged"
    for word, known, name in (
        (mine.cause, causes, "a key of CAUSES"),
        (mine.remedy, remedies, "a text of REMEDIES"),
    ):
        if word not in known:
            near = difflib.get_close_matches(word, known, 1, NEAR)
            return f': "{word}" is not {name}' + (f'; "{near[0]}" is' if near else "")
    return ""


@EXERCISE.check(
    ground="observed",
    after=("answers_in_the_words",),
    hints=(
        "JAX prints that line whenever there is a GPU's device node and no CUDA backend has "
        "started. JAX does not know why. What do other lines say?",
        "The line means a missing plugin only if no plugin is listed and no other line has an "
        "error.",
    ),
)
def looks_above_the_generic_line(record: Record) -> Result:
    """The line "Falling back to cpu" is not by itself taken for the cause."""

    def wrong(mine: Answer, truth: str) -> bool:
        return GENERIC in mine.report and truth != mine.cause == "no plugin"

    def in_words(_: Answer, truth: str) -> tuple[str, str]:
        line = f'the line "{GENERIC} ... Falling back to cpu" was taken for the cause'
        why = "it is printed after any plugin that fails, and another line tells the cause"
        return f"the cause is `{truth}`", f"{line}; {why}"

    failure = _first(record, wrong, in_words)
    rows = _naming(record, f"{GENERIC}, but a CUDA-enabled jaxlib is not installed. Falling back")
    if not isinstance(failure, Failure) or failure.hint or len(rows) != 1:
        return failure
    return replace(failure, culprits=rows)


def _naming(record: Record, line: str) -> list[Culprit]:
    """The lines of the file with a text that is a part of a line, and longer than a word or two."""
    nodes = (node for node in ast.walk(File(record.source).tree) if isinstance(node, ast.Constant))
    lines = {
        node.lineno
        for node in nodes
        if isinstance(node.value, str) and len(node.value) >= SHORTEST and node.value in line
    }
    return [culprit(record, number) for number in sorted(lines)]


SHORTEST = len("Falling back")


def _family(record: Record, causes: tuple[str, ...]) -> Result:
    """A failure for the first report of these causes whose cause was not found."""

    def wrong(mine: Answer, truth: str) -> bool:
        return truth in causes and mine.cause != truth

    def in_words(mine: Answer, truth: str) -> tuple[str, str]:
        why = said or _why_not(mine.cause, truth)
        return f"the cause is `{truth}`", f"`{mine.cause}`{why}"

    def hint(mine: Answer, truth: str) -> str:
        if _always_the_same(record):
            return habit(record.source) or ALWAYS
        return f"Which line of this report tells `{truth}` from `{mine.cause}`?"

    pairs = [(mine, truth) for mine, truth in _pairs(record) if truth in causes]
    missed = [mine.report for mine, truth in pairs if mine.cause != truth]
    found = [mine.report for mine, truth in pairs if mine.cause == truth]
    said, why = _read_wrong(missed, found)
    failure = _first(record, wrong, in_words, hint)
    if not why or not isinstance(failure, Failure):
        return failure
    place = _tidying(record) if why in (OF_THE_NAME, OF_ITS_SPELLING) else []
    return replace(failure, hint=why, culprits=place or failure.culprits)


def _tidying(record: Record) -> list[Culprit]:
    """The only line that takes spaces or capitals away; or nothing."""
    lines = enumerate(File(record.source).lines, 1)
    code = ((number, line.partition("#")[0]) for number, line in lines)
    tidies = (".strip()", ".lower()", ".casefold()")
    found = [number for number, text in code if any(one in text for one in tidies)]
    return [culprit(record, found[0])] if len(found) == 1 else []


def _read_wrong(missed: Sequence[str], found: Sequence[str]) -> tuple[str, str]:
    """What all reports have whose cause is missed, and no other has; and a hint about it.

    Only what a code does with a text that it should have left as it is: `("", "")` if nothing fits.
    """
    for has, said, why in (
        (_has_a_space, SPACE, OF_THE_NAME),
        (_is_untidy, UNTIDY, OF_ITS_SPELLING),
        (_mentions_it_first, MENTIONED, OF_THE_LINE),
    ):
        if missed and all(map(has, missed)) and not any(map(has, found)):
            return said, why
    return "", ""


def _has_a_space(report: str) -> bool:
    """Whether JAX looked for a backend whose name has a space in it."""
    return bool(re.search(r"Backend '(?:\S* +| +\S*)' is not", report))


def _is_untidy(report: str) -> bool:
    """Whether JAX looked for a backend whose name has a space or a capital in it."""
    name = re.search(r"Backend '([^']*)' is not", report)
    return name is not None and name[1] != name[1].strip().lower()


def _mentions_it_first(report: str) -> bool:
    """Whether JAX's error names JAX_PLATFORMS before the line that sets it."""
    mentioned, set_to = report.find("(set JAX_PLATFORMS="), report.find("\nJAX_PLATFORMS=")
    return 0 <= mentioned < set_to


SPACE = "; the name that JAX looked for, between the quotes, has a space in it"
OF_THE_NAME = "A space is a part of the name. What in your code takes spaces away, or splits there?"
UNTIDY = "; the name that JAX looked for, between the quotes, has a space or a capital in it"
OF_ITS_SPELLING = (
    "Spaces and capitals are a part of the name. What in your code takes them away before it looks?"
)
MENTIONED = "; only reports are missed in which JAX's error stands above the line of JAX_PLATFORMS"
OF_THE_LINE = (
    "That error holds the text `JAX_PLATFORMS=''`, too. Which of the two does your code read, and "
    "where in its line does a variable begin?"
)


_CONFUSED: Mapping[tuple[str, str], str] = {
    ("no driver", "gpu hidden"): "the driver was never loaded, so it hides nothing",
    ("gpu hidden", "no driver"): "the driver answered: it sees no GPU",
    ("gpu in use", "library missing"): "a library that is registered twice is not missing",
    ("foreign library", "library missing"): "the library is there, but LD_LIBRARY_PATH leads to "
    "another one first",
    ("no plugin", "JAX_PLATFORMS is misspelt"): "'cuda' is spelt right, but no plugin is listed",
    ("library missing", "JAX_PLATFORMS is misspelt"): "'cuda' is spelt right, but its plugin "
    "failed before",
    ("JAX_PLATFORMS is gpu", "JAX_PLATFORMS is misspelt"): "'gpu' is a name that JAX knows, and it "
    "asks for more than CUDA",
    ("no gpu", "no device node"): "no plugin is listed, so nothing here needs a device node",
    ("no device node", "no gpu"): "a plugin is listed: somebody expects a GPU here",
    ("no device node", "gpu in use"): "the backend is the CPU, though no error or warning says so",
    ("JAX_PLATFORMS is cpu", "gpu in use"): "the backend is the CPU, because JAX_PLATFORMS says so",
    ("two plugins", "gpu in use"): "one of the two plugins failed, and an error says so",
    ("plugin of another version", "gpu in use"): "a warning says that parts of the plugin stay "
    "unused",
}
"""Why a cause is not the other one that it is easily mistaken for: (true, named) -> why."""
_SIGNS: Mapping[str, str] = {
    "gpu in use": "that a GPU is listed, and JAX prints no error or warning",
    "no gpu": "that no plugin is listed, and there is no trace of a GPU",
    "no plugin": "that no plugin is listed, and there is a trace of a GPU, or one is asked for",
    "plugin of another version": "a warning that plugin and jaxlib are not compatible",
    "jaxlib of another version": "an error that names the versions of jax and jaxlib",
    "two plugins": "plugins of two versions of CUDA, and an error that one exists already",
    "library missing": "a library that cannot be loaded",
    "foreign library": "a library that cannot be loaded, and LD_LIBRARY_PATH",
    "no driver": "a failure of cuInit with the number 303",
    "gpu hidden": "a failure of cuInit with a name that says why",
    "no device node": "that a plugin is listed, there is no GPU, and no text says why",
    "JAX_PLATFORMS is gpu": "an error that names the backend of another maker of GPUs",
    "JAX_PLATFORMS is misspelt": "an error that names a backend in a wrong spelling",
    "JAX_PLATFORMS is cpu": "a variable that asks for the CPU alone",
    "XLA_FLAGS is misspelt": "an error that names a flag",
}
"""What a report shows if this is its cause."""


def _why_not(named: str, truth: str) -> str:
    """Why the cause is not the one that was named, or what the report would show if it were."""
    if (truth, named) in _CONFUSED:
        return f"; {_CONFUSED[truth, named]}"
    return f"; its sign is {_SIGNS[named]}" if named in _SIGNS else ""


@EXERCISE.check(
    ground="observed",
    after=("looks_above_the_generic_line",),
    hints=(
        "Read the list of packages first. Is there a plugin? Is there more than one? Do the "
        "versions agree?",
        "The plugin is missing if none is listed, and a GPU is there or asked for. Two plugins, "
        "and versions that do not fit, have an error or a warning of their own.",
    ),
)
def installation(record: Record) -> Result:
    """Faults of the installation are found: no plugin, two plugins, versions that do not fit."""
    return _family(record, INSTALLATION)


@EXERCISE.check(
    ground="observed",
    after=("looks_above_the_generic_line",),
    hints=("Two causes share one text. Which variable tells them apart?",),
)
def libraries(record: Record) -> Result:
    """Faults of CUDA's libraries are found: one is missing, or comes from the wrong place."""
    return _family(record, LIBRARIES)


@EXERCISE.check(
    ground="observed",
    after=("looks_above_the_generic_line",),
    hints=(
        'Two faults lead to "No visible GPU devices". The line about cuInit says which one it is.',
        "One fault prints no error at all: the plugin is listed, the backend is the CPU, and no "
        "variable asks for the CPU.",
    ),
)
def driver_and_devices(record: Record) -> Result:
    """Faults between plugin and GPU are found: no driver, a hidden GPU, no device node."""
    return _family(record, DEVICES)


@EXERCISE.check(
    ground="observed",
    after=("looks_above_the_generic_line",),
    hints=(
        "The error names, in quotes, the backend that JAX looked for. Is that a name JAX knows?",
        "'cuda' is spelt right. JAX does not know it if its plugin is missing or has failed.",
    ),
)
def environment(record: Record) -> Result:
    """Faults in the environment variables JAX_PLATFORMS and XLA_FLAGS are found."""
    return _family(record, ENVIRONMENT)


@EXERCISE.check(
    ground="observed",
    after=("looks_above_the_generic_line",),
    hints=("Which lines are printed on sound machines too? Such a line proves nothing.",),
)
def sound_machines(record: Record) -> Result:
    """No fault is named where nothing is broken, whatever the machine prints."""
    return _family(record, SOUND)


@EXERCISE.check(
    ground="observed",
    after=("answers_in_the_words",),
    hints=(
        "There are fifteen causes and fifteen remedies. Which remedy do you use twice, and which "
        "one never?",
    ),
)
def each_cause_its_remedy(record: Record) -> Result:
    """Each cause comes with its own remedy, the one that mends it."""
    right = _remedies(record)

    def wrong(mine: Answer, truth: str) -> bool:
        return mine.cause == truth and mine.remedy != right[truth]

    def in_words(mine: Answer, truth: str) -> tuple[str, str]:
        return f"the remedy for `{truth}` is `{right[truth]}`", f"it is `{mine.remedy}`"

    failure = _first(record, wrong, in_words)
    if not isinstance(failure, Failure):
        return failure
    if _by_position(record):
        return replace(failure, culprits=_remedies_read(record), hint=SORTED)
    answer, _ = next(pair for pair in _pairs(record) if wrong(*pair))
    row = File(record.source).naming(answer.cause, answer.remedy)
    failure = replace(failure, culprits=[culprit(record, row)] if row else failure.culprits)
    given = {truth: mine.remedy for mine, truth in _pairs(record) if wrong(mine, truth)}
    other = next((cause for cause in given if given[cause] == right[answer.cause]), "")
    if not other or right[other] != answer.remedy:
        return failure
    second = File(record.source).naming(other, given[other])
    rows = [*failure.culprits, *([culprit(record, second)] if second else [])]
    return replace(failure, culprits=rows, hint=EXCHANGED)


EXCHANGED = "Two causes have each other's remedy. Which change mends which of them?"


SORTED = (
    "The remedies stand in the order of the alphabet, and the causes do not. What says which of "
    "them belong together?"
)


def _remedies_read(record: Record) -> list[Culprit]:
    """The lines that read REMEDIES."""
    names = (node for node in ast.walk(File(record.source).tree) if isinstance(node, ast.Name))
    lines = {n.lineno for n in names if n.id == "REMEDIES" and isinstance(n.ctx, ast.Load)}
    return [culprit(record, line) for line in sorted(lines)]


def _by_position(record: Record) -> bool:
    """Whether each answer's remedy stands where its cause does, in the two lists as given."""
    words = wanted(record).facts
    pairs = dict(zip(words["causes"], words["remedies"], strict=True))
    return all(pairs.get(mine.cause) == mine.remedy for mine, _ in _pairs(record))
