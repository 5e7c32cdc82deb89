"""What `diagnose` of ex10_diagnose answered, report by report.

The true cause is not noted: the reference solution names it, in a process of its own.
"""

import msgspec


class Answer(msgspec.Struct, omit_defaults=True):
    """One report, and what `diagnose` said of it."""

    report: str
    cause: str = ""
    remedy: str = ""
    other: str = ""
    """What `diagnose` returned, in words, if it was no pair of texts."""
    line: int = 0
    """The learner's line at which this answer was returned, 0 if none is known."""
    held: list[str] = []
    """The texts that the learner's variables held there."""
