"""ex29_two_processes: two processes over loopback, one global array, one mean.

Both run on simulated CPU devices, whatever the machine has. `grader.probes.processes`
starts them; what each of them does is in `grader.probes.joined`.
"""

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import msgspec

from grader.checking import Exercise, Failure, Observe, Result, Unable
from grader.evidence import culprit, definition, seen, wanted
from grader.probes.joined import Process, Told, part
from grader.record import Leaf, Record
from grader.verdict import Culprit
from grader.words import plural

COUNT, DEVICES = 2, 2
"""Processes, and devices of each."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Two processes with rows of their own; neither knows the other's."""
    import numpy as np

    from grader.probes.processes import together

    shape = (COUNT * DEVICES * int(rng.integers(1, 4)), int(rng.integers(2, 5)))
    rows = [rng.normal(10 * i, 1, shape).astype(np.float32).tolist() for i in range(COUNT)]
    observe.fact("rows", rows)
    try:
        given = [{"count": COUNT, "rows": own} for own in rows]
        ran = together(submission, part, given, devices=DEVICES)
        observe.fact("ran", msgspec.to_builtins(ran))
    except OSError as error:
        observe.fact("not started", str(error))


EXERCISE = Exercise(
    title="Two processes, one array",
    lesson="lessons/16-more-than-one-process",
    anchor="join-first",
    edits=("join", "global_batch", "mean"),
    drive=drive,
    hints=(
        "A process that never joined has the whole of JAX for itself, and never notices.",
        "Join first, build the array from what each process has, run the same programs in all.",
        "jax.distributed.initialize, jax.make_array_from_process_local_data, batch.mean().",
    ),
)


def _processes(record: Record) -> list[Process] | Failure | Unable:
    """Both processes, in order."""
    if why := seen(record).facts.get("not started"):
        return Unable(f"two processes could not be run here: {why}")
    try:
        return msgspec.convert(seen(record).facts.get("ran"), list[Process])
    except msgspec.ValidationError as error:
        return Failure("what the processes tell can be read", str(error))


def _each(record: Record, judge: Callable[[int, Told], Failure | None]) -> Result:
    """The first process's failure, if any."""
    processes = _processes(record)
    if isinstance(processes, list):
        found = (judge(index, process.told) for index, process in enumerate(processes))
        return next(filter(None, found), None)
    return processes


def _failure(record: Record, fails: Callable[[Process], bool], expected: str) -> Result:
    """Tells how both ended, if one of them failed in the way that `fails` looks for."""
    processes = _processes(record)
    if not isinstance(processes, list):
        return processes
    if not any(map(fails, processes)):
        return None
    told = [_ended(process) for process in processes]
    apart = "; ".join(f"process {i} {text}" for i, text in enumerate(told))
    observed = f"both {told[0]}" if len(set(told)) == 1 else apart
    return Failure(expected, observed, _places(record, processes))


def _failed(process: Process) -> bool:
    return process.end not in ("finished", "stopped")


@EXERCISE.check(
    ground="observed",
    hints=(
        "Look at the line. Did it raise, or wait? An error names its cause. Who waits, waits for "
        "somebody who never comes.",
        "Processes must agree on `count`, and each has an `index` of its own.",
        "All join before a backend starts: jax.devices() starts one, and so does any array.",
    ),
)
def both_processes_join(record: Record) -> Result:
    """`join` returns in both processes."""
    return _failure(
        record,
        lambda process: _failed(process) and process.told.doing in ("", "join"),
        "`join` returns in both processes",
    )


@EXERCISE.check(
    ground="observed",
    after=("both_processes_join",),
    hints=(
        "The error names what is refused. Whose rows does it speak of?",
        "A process has its own rows and no others. It cannot give rows of the whole array, and "
        "cannot read the shards that lie on another one's devices.",
        "What is needed of the whole array is computed by all, and its result read by each.",
    ),
    anchor="one-array-from-local-rows",
)
def neither_process_raises(record: Record) -> Result:
    """`global_batch` and `mean` raise in neither process."""
    return _failure(
        record,
        lambda process: _failed(process) and process.end != "stuck",
        "`global_batch` and `mean` raise in neither process",
    )


@EXERCISE.check(
    ground="observed",
    after=("neither_process_raises",),
    hints=(
        "Look at the line and at what the other process did meanwhile. Who waits for whom?",
        "A program over all devices runs once every process has called it.",
    ),
    anchor="everybody-or-nobody",
)
def both_processes_finish(record: Record) -> Result:
    """Both processes run to the end, and neither waits for the other in vain."""
    return _failure(record, _failed, "`global_batch` and `mean` return in both processes")


def _ended(process: Process) -> str:
    """How a process ended, as the rest of a sentence."""
    inside = f"in `{process.told.doing}`" if process.told.doing else "while it was imported"
    joining = f"more processes than {COUNT}, or for one of another index"
    whom = joining if process.told.doing == "join" else "a process that runs another program"
    ends = {
        "finished": "had finished",
        "raised": f"raised {inside}: {_words(process.message)}",
        "stopped": f"had to stop then, {inside}",
    }
    why = f", for {whom}" if process.message == "it waited" else ""
    if "ALREADY_EXISTS" in process.message and process.told.doing == "join":
        why = ": two processes joined under one index"
    return ends.get(process.end, f"stopped {inside}: {process.message}{why}")


def _words(message: str) -> str:
    """An error's first line, without the values that JAX compared."""
    return message.partition("\n")[0].partition(". Expected: [")[0]


def _places(record: Record, processes: list[Process]) -> list[Culprit]:
    lines = [p.line for p in processes if p.line is not None]
    doing = [p.told.doing for p in processes if p.end not in ("finished", "stopped")]
    if not lines:
        return definition(record, next(iter(doing), "") or "join")
    return [culprit(record, line, lines.count(line)) for line in dict.fromkeys(lines)]


@EXERCISE.check(
    ground="observed",
    after=("both_processes_finish",),
    hints=(
        "`join` gets everything that jax.distributed.initialize asks for.",
        "jax.distributed.initialize(address, num_processes=count, process_id=index)",
    ),
)
def processes_know_each_other(record: Record) -> Result:
    """Each process is one of two that meet at `address`, and sees the devices of both."""
    place = definition(record, "join")

    def judge(index: int, told: Told) -> Failure | None:
        want = (COUNT, index, COUNT * DEVICES)
        if (told.processes, told.index, told.devices) != want:
            said = f"number {told.index} of {told.processes}, and sees {told.devices} devices"
            expected = f"process {index} is number {index} of {COUNT}, and sees {want[2]} devices"
            return Failure(expected, f"it is {said}", place)
        met = "the processes meet at the `address` that `join` is given"
        return None if told.met else Failure(met, "they met elsewhere: nobody listens there", place)

    return _each(record, judge)


@EXERCISE.check(
    ground="observed",
    after=("processes_know_each_other",),
    hints=(
        "The sharding speaks of all devices, the array of all rows; a process holds a part.",
        "jax.make_array_from_process_local_data(sharding, rows) works the whole shape out.",
    ),
    anchor="one-array-from-local-rows",
)
def one_array_of_all_rows(record: Record) -> Result:
    """`global_batch` is one array of both processes' rows, split over all devices."""
    rows = wanted(record).facts["rows"][0]
    shape, devices = (COUNT * len(rows), len(rows[0])), COUNT * DEVICES
    want = f"{shape} of float32 in shards of {shape[0] // devices} rows on {devices} devices"

    def judge(index: int, told: Told) -> Failure | None:
        if (lies := _lies(told.batch)) == want:
            return None
        observed, place = f"{lies}, in process {index}", definition(record, "global_batch")
        return Failure(f"`global_batch` returns {want}", observed, place)

    return _each(record, judge)


def _lies(leaves: list[Leaf]) -> str:
    """An array's shape and how it is split, in words."""
    if len(leaves) != 1 or leaves[0].kind != "jax":
        return f"a {leaves[0].type}" if len(leaves) == 1 else plural(len(leaves), "value")
    leaf = leaves[0]
    split = f"in shards of {(leaf.shard_shape or (0,))[0]} rows" if leaf.shape else "a number"
    if leaf.replicated and len(leaf.devices) > 1:
        split = "a full copy"
    return f"{leaf.shape} of {leaf.dtype} {split} on {plural(len(leaf.devices), 'device')}"


@EXERCISE.check(
    ground="observed",
    after=("one_array_of_all_rows",),
    hints=(
        "Each process has its rows already, and its devices are where they are to lie.",
        "To build the array, no process must know another one's rows. Only shapes must fit.",
    ),
    anchor="one-array-from-local-rows",
)
def rows_stay_at_home(record: Record) -> Result:
    """Each process puts its own rows on its own devices, and sends none."""
    rows, place = wanted(record).facts["rows"], definition(record, "global_batch")

    def judge(index: int, told: Told) -> Failure | None:
        held = [row for shard in told.own for row in shard]
        expected = f"process {index}'s devices hold the rows that it read, in order"
        if held != rows[index]:
            return Failure(expected, _held(held, rows, index), place)
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(told.programs))
        expected = "`global_batch` places rows, and runs no program to exchange any"
        observed = f"it compiled and ran {names} in process {index}"
        return Failure(expected, observed, place) if names else None

    return _each(record, judge)


def _held(held: list[list[float]], rows: list[list[list[float]]], index: int) -> str:
    """Whose rows a process's devices hold."""
    own = sum(row in rows[index] for row in held)
    order = ", in another order" if own == len(held) == len(rows[index]) else ""
    return f"{own} of the {plural(len(held), 'row')} that they hold are its own{order}"


@EXERCISE.check(
    ground="observed",
    after=("rows_stay_at_home",),
    hints=(
        "What does one process hold, and what does the array hold?",
        "batch.mean() of the global array is a program of all processes; each gets the result.",
    ),
    anchor="everybody-or-nobody",
)
def mean_is_global(record: Record) -> Result:
    """`mean` is the mean over the rows of both processes, in each of them."""
    own = [[x for row in rows for x in row] for rows in wanted(record).facts["rows"]]
    means = [sum(values) / len(values) for values in own]
    mean, place = sum(means) / COUNT, definition(record, "mean")

    def judge(index: int, told: Told) -> Failure | None:
        expected = f"`mean` is {mean:.6g} in process {index}, the mean over all rows"
        if isinstance(told.mean, str):
            return Failure("`mean` returns a finite Python float", f"`{told.mean}`", place)
        if math.isclose(told.mean, mean, rel_tol=1e-4):
            return None
        return Failure(expected, f"{told.mean:.6g}{_what_mean(told.mean, means, index)}", place)

    return _each(record, judge)


def _what_mean(mean: float, means: list[float], index: int) -> str:
    """What a wrong mean is, if it is something known."""
    known = {", the mean over its own rows alone": means[index], ", the sum of means": sum(means)}
    return next((n for n, value in known.items() if math.isclose(mean, value, rel_tol=1e-4)), "")
