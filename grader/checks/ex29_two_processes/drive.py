"""Drives ex29_two_processes: the file runs in two processes, then in three.

`grader.stages.hosts` starts them, on simulated CPU devices whatever the machine has, and they meet
over loopback, at a host that is drawn where loopback has several. What each of them does with the
submission is in `joining`. Each process builds five arrays, two of them of one size, and takes the
mean of each: what was right for the first must be so for the others. The rows of those of one size
come in one array of NumPy's, which is filled again. In the fourth, a device has 4 to 19 rows, a
number that the processes do not divide, and in the last one, each device has a single row. The
second and the fourth lie column by column in memory, unless they come in the array of an earlier
one. Some numbers are 0, and one of each process is far from all others. Drawn are the devices of
a process, other ones in the second run, the rows and columns of each batch, their order, and all
numbers. One batch, which is drawn, has small numbers: a thousandth to a millionth of the others.
What a program exchanges counts each time that it runs. No process is given another's rows, and
their means differ by much more than they are wide: the mean over one process's rows is never close
to the mean over all. Where the file names numbers, the two processes get one array more, of more
rows than each of these that is below MOST_NUMBERS in all, and the three one more of more columns; a
number of it is further from 0.
"""

import sys
from types import ModuleType
from typing import Any

import msgspec
import numpy as np

from grader.checks.ex29_two_processes.facts import HOST, Given
from grader.checks.ex29_two_processes.joining import part
from grader.probes.observe import Observe
from grader.stages.drawn import beside, beyond, far, named, some_zeros
from grader.stages.hosts import together

LARGE = 2000.0
"""A number that is far from all others, and that stands in each batch of each process once."""
COLUMNS = (12, 20)
"""Columns of a batch, from and below."""
MOST_NUMBERS, MOST_COLUMNS, MOST_LARGE = 280_000, 4096, 1e6
"""Up to where the numbers of a process's rows, the columns, and a single number reach those that
the file names."""
SMALL = -6, -3
"""How large the numbers of one batch are beside those of the others, as a power of 10."""
MOST_TOLD = 20_000
"""Of as many numbers, a process tells only whether its shards hold them: pipes are narrow."""
COUNTS = (2, 3)
"""How many processes there are in each run."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Keep what each process was given, and how each ended and what it told."""
    devices = rng.permutation([1, 2, 3]).tolist()
    runs = [_given(rng, count, each) for count, each in zip(COUNTS, devices, strict=False)]
    if named(rng):
        for run, shape in zip(runs, (_many_rows, _many_columns), strict=True):
            _add(rng, run, shape(rng, run.devices))
    host = _host(beside(rng))
    observe.fact("given", msgspec.to_builtins(runs))
    observe.fact(HOST, host)
    ran: list[Any] = []
    try:
        for run in runs:
            known = {"count": run.count, "most": MOST_TOLD, "host": host}
            batches = [known | {"batches": own} for own in run.rows]
            ended = together(submission, part, batches, devices=run.devices)
            ran.append(msgspec.to_builtins(ended))
            if any(process.end != "finished" for process in ended):
                break
    except OSError as error:
        observe.fact("not started", str(error))
    observe.fact("ran", ran)


def _given(rng: Any, count: int, devices: int) -> Given:
    """Five float32 batches for each process; two of them have the same rows and columns.

    There are more columns than processes, so that neither number passes for the other, and so many
    that one number of each row is a small part of them.
    """
    each = int(rng.integers(2, 4)), int(rng.integers(12, 40))
    few, more, odd, one = map(int, rng.choice(range(*COLUMNS), 4, replace=False))
    shapes = [(count * devices * n, size) for n, size in zip(each, (few, more), strict=True)]
    shapes = [shapes[int(index)] for index in rng.permutation([0, 1, rng.integers(2)])]
    shapes.append((devices * int(rng.choice([n for n in range(4, 20) if n % count])), odd))
    shapes.append((devices, one))
    apart = rng.uniform(10, 20, len(shapes))
    own = beside(rng)
    scales = np.ones(len(shapes))
    scales[int(own.integers(len(shapes)))] = 10 ** own.uniform(*SMALL)
    kinds = list(zip(apart, shapes, scales.tolist(), strict=True))
    rows = [
        [_drawn(rng, far * i, shape, scale) for far, shape, scale in kinds] for i in range(count)
    ]
    return Given(devices, rows)


def _host(rng: Any) -> str:
    """The host at which the processes meet: one of the names that Linux has for this machine."""
    if sys.platform != "linux":
        return "127.0.0.1"
    return ".".join(map(str, (127, *rng.integers(1, 255, 3).tolist())))


def _many_rows(rng: Any, devices: int) -> tuple[int, int]:
    """The shape of an array that has more rows than the file names, or more numbers or bytes."""
    columns = int(rng.integers(*COLUMNS))
    rows = beyond(rng, 40, MOST_NUMBERS // columns, each=columns)
    return devices * -(-rows // devices), columns


def _many_columns(rng: Any, devices: int) -> tuple[int, int]:
    """The shape of one that has more columns than the file names."""
    return 2 * devices, beyond(rng, COLUMNS[1], MOST_COLUMNS)


def _add(rng: Any, run: Given, shape: tuple[int, int]) -> None:
    """Add rows of this shape to those of each process."""
    apart, large = rng.uniform(10, 20), max(LARGE, far(rng, MOST_LARGE))
    for index, rows in enumerate(run.rows):
        rows.append(_drawn(rng, apart * index, shape, 1, large))


def _drawn(
    rng: Any, middle: float, shape: tuple[int, int], scale: float, large: float = LARGE
) -> list[list[float]]:
    """float32 rows around a middle; some numbers are 0, and one is a large one; all by a scale."""
    apart = rng.spawn(1)[0]
    rows = some_zeros(apart, rng.normal(middle, 1, shape).astype(np.float32))
    rows.flat[int(apart.integers(rows.size))] = large
    found: list[list[float]] = (np.float32(scale) * rows).tolist()
    return found
