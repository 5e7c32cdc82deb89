"""What was decided, as versioned data: verdicts with their culprits, and reports.

A `Report` is all that a renderer may look at. What was observed is in `grader.record`.
`grader schema report` prints the JSON Schema.
"""

from typing import Literal

import msgspec

from grader.record import Frame, Machine, Record

REPORT_VERSION = 1

Ground = Literal["source", "observed", "program", "timing", "target"]
Status = Literal["pass", "fail", "blocked", "could not check"]


class Culprit(msgspec.Struct, omit_defaults=True):
    """A place in the learner's file: line, its text, how often it happened there."""

    line: int
    text: str
    count: int = 1


class Verdict(msgspec.Struct, omit_defaults=True):
    """One check's line of the report."""

    check: str
    title: str
    status: Status
    ground: Ground
    expected: str = ""
    observed: str = ""
    culprits: list[Culprit] = []
    reason: str = ""
    """Why it is blocked or could not be checked."""
    lesson: str = ""
    traceback: list[Frame] = []


class Report(msgspec.Struct, omit_defaults=True):
    """All verdicts of one exercise."""

    exercise: str
    title: str
    path: str
    seed: int
    verdicts: list[Verdict]
    machine: Machine | None = None
    seconds: float = 0.0
    output: str = ""
    """The tail of what the submission printed."""
    target: str = ""
    """The machine its programs were compiled for, where one was asked for."""
    left_out: int = 0
    """Checks that need a target, where none was asked for."""

    @property
    def exit_code(self) -> int:
        """0 all passed, 1 a check failed, 3 nothing failed but not all was checked."""
        statuses = {v.status for v in self.verdicts}
        if "fail" in statuses:
            return 1
        return 0 if statuses == {"pass"} else 3


class Reports(msgspec.Struct, tag_field="version", tag=REPORT_VERSION):
    """The document that `--format json` prints: every exercise, and the worst of all."""

    exit_code: int
    reports: list[Report]


def encode(value: Record | Reports) -> bytes:
    """Encode as JSON; bytes fields become base64."""
    return msgspec.json.encode(value)
