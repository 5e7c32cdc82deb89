"""Drives ex29_two_processes: the file runs in two processes, then in three.

`grader.stages.hosts` starts them, on simulated CPU devices whatever the machine has, and they
meet over loopback. What each of them does with the submission is in `joining`. Each process
builds three arrays, two of them of one size, and takes the mean of each: what was right for the
first must be so for the others. Drawn are the devices of a process, other ones in the second run,
the rows and columns of each batch, their order, and all numbers. What a program exchanges counts
each time that it runs. No process is given another's
rows, and their means differ by about 10 or more: the mean over one process's rows is never close
to the mean over all.
"""

from types import ModuleType
from typing import Any

import msgspec
import numpy as np

from grader.checks.ex29_two_processes.facts import Given
from grader.checks.ex29_two_processes.joining import part
from grader.probes.observe import Observe
from grader.stages.hosts import together

COUNTS = (2, 3)
"""How many processes there are in each run."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Keep what each process was given, and how each ended and what it told."""
    devices = rng.permutation([1, 2, 3]).tolist()
    runs = [_given(rng, count, each) for count, each in zip(COUNTS, devices, strict=False)]
    observe.fact("given", msgspec.to_builtins(runs))
    ran: list[Any] = []
    try:
        for run in runs:
            batches = [{"count": run.count, "batches": own} for own in run.rows]
            ended = together(submission, part, batches, devices=run.devices)
            ran.append(msgspec.to_builtins(ended))
            if any(process.end != "finished" for process in ended):
                break
    except OSError as error:
        observe.fact("not started", str(error))
    observe.fact("ran", ran)


def _given(rng: Any, count: int, devices: int) -> Given:
    """Three float32 batches for each process; one has other rows and columns than the others.

    There are more columns than processes, so that neither number passes for the other.
    """
    few, more = int(rng.integers(2, 5)), int(rng.integers(12, 40))
    shapes = [(count * devices * rows, int(rng.integers(4, 9))) for rows in (few, more)]
    while shapes[0][1] == shapes[1][1]:
        shapes[1] = shapes[1][0], int(rng.integers(4, 9))
    shapes = [shapes[int(index)] for index in rng.permutation([0, 1, rng.integers(2)])]
    apart = rng.uniform(10, 20, len(shapes))
    rows = [
        [
            rng.normal(far * i, 1, shape).astype(np.float32).tolist()
            for far, shape in zip(apart, shapes, strict=True)
        ]
        for i in range(count)
    ]
    return Given(devices, rows)
