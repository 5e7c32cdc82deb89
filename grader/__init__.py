"""Runs a submission on real devices and judges, on evidence, where its arrays live.

Each folder is a room and holds one kind of thing. Its docstring says what lives there,
what does not, and which rooms it may call:

    app        what a person meets: commands, printing, files, watching
    running    the grader's side of every process, from a file to a record
    worker     the inside of a worker process: it meets JAX and runs the file
    checks     one folder for each exercise: how it is driven, how it is judged
    stages     machines that are not there
    program    the exported program, and the targets it is compiled for
    probes     what watches JAX
    device     a JAX device in another process, and its book
    course     where exercises, solutions and starters lie
    judging    the words that checks are written in, and every verdict: pure
    source     what a learner's file says as text
    records    what is written down: records, verdicts, books
    fences     what the operating system holds around a process

`pyproject.toml` enforces who may import whom: downward only. JAX is imported in worker
processes only, and in those of a device.
"""

__version__ = "0.1.0"
