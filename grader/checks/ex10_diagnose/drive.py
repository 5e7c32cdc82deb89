"""Drives ex10_diagnose: asks for a diagnosis of every report.

`reports` makes the reports afresh for each grading, most of them by JAX's own code on a
staged machine. Every cause is there in each form in which it shows, as `grader doctor`
writes it and as a terminal shows it, in drawn order: no answer is right because of where
a line stands, or because a single form of a text is known. `diagnose` gets the text alone. While
it runs, no true cause is left in this process: a learner's code could look for one.

Drawn: all that `reports` draws (names, versions, numbers, paths and the order of lines), and the
order of the reports. Where the file names numbers, `diagnose` is asked more often than that, up to
MOST_CALLS times, and of the last of these calls the answers are kept, too.
"""

import gc
from functools import partial
from types import ModuleType
from typing import Any

import msgspec

from grader.checks.ex10_diagnose.facts import Answer
from grader.checks.ex10_diagnose.reports import reports
from grader.probes.observe import Observe, named
from grader.probes.private import Gone
from grader.probes.returned import returned
from grader.stages.drawn import beyond

MOST_CALLS, KEPT = 3000, 60
"""How often `diagnose` is asked at most, and of how many of the last calls answers are kept."""
LONGEST = 200
"""More letters than a cause or a remedy has: what an answer has beyond them is not kept."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Ask for a diagnosis of every report, unless the machines cannot be staged."""
    try:
        with observe.unwatched():
            texts = [report.text for report in reports(rng)]
            gc.collect()  # the errors that were staged hold frames, and those hold the causes
    except Gone as gone:
        observe.fact("no stage", str(gone))
        return
    answers = [_answer(submission, text) for text in texts]
    more = beyond(rng, len(texts), MOST_CALLS) - len(texts)
    again = [_answer(submission, texts[number % len(texts)]) for number in range(more)]
    answers += again[-KEPT:]
    observe.fact("answers", msgspec.to_builtins(answers))
    observe.fact("causes", [*submission.CAUSES])
    observe.fact("remedies", [*submission.REMEDIES])


def _answer(submission: ModuleType, report: str) -> Answer:
    """What `diagnose` returns for one report; what it raises names that report."""
    try:
        path = getattr(submission, "__file__", "")
        held: list[str] = []
        value, line = returned(partial(submission.diagnose, report), path, held)
    except Exception as error:
        error.add_note(f"It was raised for this report:\n{report}")
        raise
    words = tuple(value) if isinstance(value, tuple | list) else ()
    if len(words) == 2 and all(isinstance(word, str) for word in words):
        # Of a member of a StrEnum, only its text.
        cause, remedy = (text[:LONGEST] for text in map(str.__str__, words))
        return Answer(report, cause, remedy, line=line, held=[one for one in held if one != report])
    other = named(value)
    if words:
        other += f" of {', '.join(map(named, words))}"
    return Answer(report, other=other, line=line)
