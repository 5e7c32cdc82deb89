"""What was decided, as versioned data: verdicts with their culprits, and reports.

A `Report` is all that a renderer may look at. What was observed is in `grader.records.record`.
`grader schema report` prints the JSON Schema.
"""

from typing import Literal

import msgspec

from grader.records.record import Frame, Machine, Made, Record

REPORT_VERSION = 1

Ground = Literal["source", "observed", "program", "timing", "target"]
Status = Literal["pass", "fail", "blocked", "could not check"]


class Culprit(msgspec.Struct, omit_defaults=True):
    """A place in the learner's file: line, its text, how often it happened there.

    What is to be marked begins at `column` of the line and ends before `end`. Both count
    characters from 1, as editors do; they are 0 where nothing is known. `grader.source.places`
    fills in all but the first three.
    """

    line: int
    text: str
    count: int = 1
    column: int = 0
    end: int = 0
    function: str = ""
    """The function that holds the line, or "" at the top level."""
    first: int = 0
    """The number of the first line of `excerpt`."""
    excerpt: list[str] = []
    """The line as it stands in the file, up to two lines before it and one after it."""


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
    fault: str = ""
    """What broke in the grader itself, so that this could not be checked."""
    lesson: str = ""
    traceback: list[Frame] = []
    hint: str = ""
    """The first hint for what failed."""
    hint_level: int = 0
    """How plain that hint is: 1 is the mildest; 0 where there is none."""
    hints: int = 0
    """How many hints there are for this check."""


class Unrun(msgspec.Struct):
    """Lines of the learner's file that never ran while it was observed."""

    line: int
    last: int
    """The last of the lines."""
    column: int
    """From 1: where it begins in its first line."""
    text: str
    """How it begins."""


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
    """The machine that programs were compiled for, if one was asked for."""
    left_out: int = 0
    """How many checks were left out, since they need a target and none was asked for."""
    made: Made | None = None
    """Who made the record that was judged, when and on what."""
    saved: str = ""
    """The file that holds the record, if it was saved."""
    unrun: list[Unrun] = []
    """Of a pass: what it says nothing about, as it never ran."""

    @property
    def exit_code(self) -> int:
        """0: all passed; 1: a check failed; 3: nothing failed, but not all could be checked.

        4: a fault of the grader itself kept something from being checked.
        """
        if any(v.fault for v in self.verdicts):
            return 4
        statuses = {v.status for v in self.verdicts}
        if "fail" in statuses:
            return 1
        return 0 if statuses == {"pass"} else 3


class Reports(msgspec.Struct, tag_field="version", tag=REPORT_VERSION, omit_defaults=True):
    """The document that `--format json` prints, and each line of `--format jsonl`.

    `exit_code` is the command's: the worst of all reports. A command that was ended early says
    so in `problem`, and names what it has not graded in `left`.
    """

    exit_code: int
    reports: list[Report]
    problem: str = ""
    """What ended the command early, or kept a record from being saved."""
    left: list[str] = []
    """The exercises that were to be graded and were not."""


def encode(value: Record | Reports) -> bytes:
    """Encode as JSON; bytes fields become base64."""
    return msgspec.json.encode(value)
