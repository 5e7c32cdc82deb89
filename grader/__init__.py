"""Runs a submission on real devices and judges, on evidence, where its arrays live.

Layers, each importing only what stands below it:

    cli, worker    what a person types; what runs in a process of its own
    runner         one grading: source, workers, measurer, judge, report
    checks/        one file an exercise: metadata, drive, checks, hints
    evidence       what a check finds in a record
    checking       the words a check is written in
    verdict        what was decided, as data
    record         what was observed, as data
"""

__version__ = "0.1.0"
