"""Checks of ex29_two_processes: all processes end well, and hold one array and one mean.

What the processes tell is text that the learner's code could write too: it is read into
`facts.Told`, and whatever does not fit is a failure.
"""

import math
from collections.abc import Callable
from functools import partial

import msgspec

from grader.checks.ex29_two_processes import EXERCISE
from grader.checks.ex29_two_processes.facts import HOST, Given, Process, Round, Told
from grader.judging.arrays import FORM
from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import culprit, definition, seen, wanted
from grader.judging.said import hint_for, in_words, is_known
from grader.judging.words import plural, typed
from grader.records.record import Leaf, Record
from grader.records.verdict import Culprit
from grader.source import statements


def _given(record: Record) -> list[Given]:
    """What the processes of each run were given; the reference's drive drew the same."""
    return msgspec.convert(wanted(record).facts["given"], list[Given])


def _runs(record: Record) -> list[list[Process]] | Failure | Unable:
    """The processes of each run, by index, or why there is nothing to judge."""
    if why := seen(record).facts.get("not started"):
        return Unable(f"several processes could not be run here: {why}")
    try:
        runs = msgspec.convert(seen(record).facts.get("ran"), list[list[Process]], str_keys=True)
    except msgspec.ValidationError as error:
        return Failure("what the processes tell can be read", str(error))
    given = _given(record)
    fit = all(len(run) == each.count for run, each in zip(runs, given, strict=False))
    if runs and fit and (len(runs) == len(given) or any(map(_failed, runs[-1]))):
        return runs
    return Failure("each process tells how it ended", f"{plural(len(runs), 'run')} told")


def _each(record: Record, judge: Callable[[Given, int, Told], Failure | None]) -> Result:
    """The failure of the first process in which `judge` finds one."""
    runs = _runs(record)
    if not isinstance(runs, list):
        return runs
    for given, run in zip(_given(record), runs, strict=False):
        for index, process in enumerate(run):
            if found := judge(given, index, process.told):
                return found
    return None


def _each_round(record: Record, judge: Callable[[Given, int, int, Round], Result]) -> Result:
    """The first result for a batch of a process that is no pass."""
    runs = _runs(record)
    if not isinstance(runs, list):
        return runs
    for given, run in zip(_given(record), runs, strict=False):
        for index, process in enumerate(run):
            told = process.told.rounds
            for number, _ in enumerate(given.rows[index]):
                if number >= len(told):
                    return Failure("each process tells of all batches", f"it tells of {number}")
                if found := judge(given, index, number, told[number]):
                    return found
    return None


def _failure(record: Record, fails: Callable[[Process], bool], expected: str) -> Result:
    """How both ended, if `fails` is true of one of them."""
    runs = _runs(record)
    if not isinstance(runs, list):
        return runs
    processes = next((run for run in runs if any(map(fails, run))), [])
    if not processes:
        return None
    told = [_ended(process, processes) for process in processes]
    raised = [_words(p.message) for p in processes if p.end == "raised" and is_known(p.message)]
    own = "".join(f"\n{words}" for words in raised[:1])
    apart = "; ".join(f"process {i} {text}" for i, text in enumerate(told))
    alike = "both" if len(told) == 2 else f"all {len(told)}"
    observed = f"{alike} {told[0]}" if len(set(told)) == 1 else apart
    return Failure(expected, observed + own, _places(record, processes), _hint(processes))


NOT_SHARED = (
    "A process has its own rows and no others, and can read no shard on another process's devices. "
    "What needs all rows is a program that all processes run."
)
BEFORE = "before any JAX calls"
STARTING = ("process_count", "process_index", "device_count", "local_device_count", "devices")
"""Functions of JAX that start a backend."""
STARTED = (
    "A backend had started already: jax.devices() starts one, and so do jax.process_count() and "
    "any array."
)
HANDED_OVER = (
    "`address` is host and port, `count` says how many processes there are, and `index` is this "
    "one's number. Under which names does the marked line hand over all three?"
)
FEWER = "process_id < num_processes"
COUNTED_BY_HAND = (
    "Each index is below the number of processes. Where does the marked line get that number from, "
    "and does it count from 0?"
)
NO_PORT = (
    "JAX takes an address apart at its colon, and finds no port behind it. Does the marked line "
    "hand over `address` as it is?"
)
BLOCKS = (
    "The shape, and the index that a callback gets, are those of the array of all processes. Where "
    "in it do the rows of this process begin?"
)
COUNTS = (
    "In a run of two processes, this line raised nothing. Where does the shape of the whole come "
    "from, and what in it knows how many processes there are?"
)
CAUSE = "The error names its cause. What does the marked line hand over, and what is asked for?"


def _hint(processes: list[Process]) -> str:
    """The hint for what the first process that failed in a function raised."""
    failed = next((p for p in processes if _failed(p) and p.end == "raised"), None)
    if failed is None or failed.told.doing not in ("join", "global_batch", "mean"):
        return ""
    if failed.told.doing == "join":
        known = {BEFORE: STARTED, "list index out of range": NO_PORT, FEWER: COUNTED_BY_HAND}
        return next((hint for words, hint in known.items() if words in failed.message), HANDED_OVER)
    if "shard shape" in failed.message:
        return BLOCKS if len(processes) == 2 else COUNTS
    words = ("non-addressable", "same on each process")
    if any(word in failed.message for word in words):
        return ""
    return hint_for(failed.message) or CAUSE


def _failed(process: Process) -> bool:
    """Whether it ended badly by itself, not because the other one did."""
    return process.end not in ("finished", "stopped")


@EXERCISE.check(
    ground="observed",
    hints=(
        "Look at the line. Did it raise, or wait? An error names its cause. If it waited, the "
        "process that it waited for never joined.",
        "All processes must agree on `count`, and each needs an `index` of its own.",
        "Join before a backend starts. jax.devices() starts one, and so does any array.",
    ),
)
def both_processes_join(record: Record) -> Result:
    """`join` returns in all processes."""
    return _failure(
        record,
        lambda process: _failed(process) and process.told.doing in ("", "join"),
        "`join` returns in all processes",
    )


@EXERCISE.check(
    ground="observed",
    after=("both_processes_join",),
    hints=(
        "The error names what is refused. Whose rows is it about?",
        NOT_SHARED,
        "All processes compute what needs the whole array, and each of them reads the result.",
    ),
    anchor="one-array-from-local-rows",
)
def neither_process_raises(record: Record) -> Result:
    """No process raises in `global_batch` or `mean`."""
    found = _failure(
        record,
        lambda process: _failed(process) and process.end != "stuck",
        "no process raises in `global_batch` or `mean`",
    )
    return None if _wrong_before(record) else found


def _wrong_before(record: Record) -> bool:
    """Whether an array was another one before anything raised: that tells more than an exception.

    Some shapes cannot be split over all devices. `one_array_of_all_rows` judges the others.
    """
    runs = _runs(record)
    return isinstance(runs, list) and any(
        _other_array(record, given, index, number, told)
        for given, run in zip(_given(record), runs, strict=False)
        for index, process in enumerate(run)
        for number, told in enumerate(process.told.rounds)
    )


@EXERCISE.check(
    ground="observed",
    after=("neither_process_raises",),
    hints=(
        "Look at the line, and at what the other process did meanwhile. Which of them waits, and "
        "for what?",
        "A program over all devices runs only once every process has called it.",
    ),
    anchor="everybody-or-nobody",
)
def both_processes_finish(record: Record) -> Result:
    """All processes run to the end, and none waits for another forever."""
    found = _failure(record, _failed, "`global_batch` and `mean` return in all processes")
    return None if _wrong_before(record) else found


def _ended(process: Process, processes: list[Process]) -> str:
    """How one of some processes ended, as the rest of a sentence."""
    inside = f"in `{process.told.doing}`" if process.told.doing else "while it was imported"
    if process.end == "finished":
        alone = _is_alone(process, processes)
        return "had finished, and was joined to no other" if alone else "had finished"
    if process.end == "stopped":
        return f"was stopped {inside}, because another process failed"
    if process.end == "raised":
        return f"raised {inside}: {in_words(_words(process.message)).partition('\n')[0]}"
    return f"stopped {inside}: {process.message}{_cause(process, processes)}"


def _is_alone(process: Process, processes: list[Process]) -> bool:
    """Whether a process has ended well, and had joined too few others."""
    return process.end == "finished" and process.told.processes < len(processes)


def _cause(process: Process, processes: list[Process]) -> str:
    """What a process waited for, or what killed it, where that is known."""
    joining = process.told.doing == "join"
    if process.message == "it waited":
        if joining and any(_is_alone(other, processes) for other in processes):
            return " for one that never joined"
        more = f"for more than {len(processes)} processes, or for one with another index"
        return f" {more}" if joining else " for a process that runs another program"
    if joining and "ALREADY_EXISTS" in process.message:
        return "; two processes joined with the same index"
    return ""


def _words(message: str) -> str:
    """An error's first line, without the values that JAX compared."""
    return message.partition("\n")[0].partition(". Expected: [")[0]


def _places(record: Record, processes: list[Process]) -> list[Culprit]:
    """The lines on which processes ended, or else the function in which one failed."""
    if any(BEFORE in p.message for p in processes):
        started = statements.call(record, "join", *STARTING)
        if started != definition(record, "join"):
            return started
    lines = [p.line for p in processes if p.line is not None]
    doing = [p.told.doing for p in processes if _failed(p)]
    if not lines:
        return definition(record, next(iter(doing), "") or "join")
    return [culprit(record, line, lines.count(line)) for line in dict.fromkeys(lines)]


@EXERCISE.check(
    ground="observed",
    after=("both_processes_finish",),
    hints=(
        "Which argument of jax.distributed.initialize gets the address, the count and the index "
        "that `join` is given?",
        "jax.distributed.initialize(address, num_processes=count, process_id=index)",
    ),
)
def processes_know_each_other(record: Record) -> Result:
    """Each process is one of those that meet at `address`, and sees the devices of all."""
    place = statements.call(record, "join", "initialize")

    def judge(given: Given, index: int, told: Told) -> Failure | None:
        want = (given.count, index, given.count * given.devices)
        if (told.processes, told.index, told.devices) != want:
            said = f"number {told.index} of {told.processes}, and sees {told.devices} devices"
            expected = (
                f"process {index} is number {index} of {given.count}, and sees {want[2]} devices"
            )
            return Failure(expected, f"it is {said}", place)
        expected = "the processes meet at the `address` that `join` is given"
        if not told.met:
            return Failure(expected, "they met elsewhere: no process listens there", place)
        if told.host != (host := wanted(record).facts[HOST]):
            observed = f"process {index} asked the host {told.host}, and `address` names {host}"
            return Failure(expected, observed, place, ANY_HOST)
        if told.visible != "all":
            expected = f"process {index} has all devices of its machine"
            observed = f"where there are GPUs, it would see these alone: {told.visible}"
            return Failure(expected, observed, place, OF_A_MACHINE)
        return None

    return _each(record, judge)


ANY_HOST = (
    "The processes may run on several machines, and then only `address` knows where number 0 is. "
    "Does the marked line hand over all of it?"
)
OF_A_MACHINE = (
    "`local_device_ids` hides all other GPUs of a machine. A process has all of them here: which "
    "argument can be left out?"
)
ALL_ITS_ROWS = (
    "`rows` are the rows of this process alone, and all of them belong in the array. Which line "
    "leaves some out?"
)
WHOLE = "A spec that names no axis puts the whole array on every device."
KEPT = "The rows keep the dtype that they have. Which line changes it?"


@EXERCISE.check(
    ground="observed",
    after=("processes_know_each_other",),
    hints=(
        "The sharding names all devices, and the array has all rows. A process holds only a part.",
        "jax.make_array_from_process_local_data(sharding, rows) works out the shape of the whole.",
    ),
    anchor="one-array-from-local-rows",
)
def one_array_of_all_rows(record: Record) -> Result:
    """`global_batch` returns one array of all processes' rows, split over all devices."""
    return _each_round(record, partial(_other_array, record))


def _other_array(record: Record, given: Given, index: int, number: int, told: Round) -> Result:
    """The failure where an array is another one, or is split otherwise."""
    place = statements.result(record, "global_batch")
    rows, devices = given.rows[index][number], given.count * given.devices
    shape = (given.count * len(rows), len(rows[0]))
    shards = f"in shards of {plural(shape[0] // devices, 'row')} on {devices} devices"
    want = f"an array of {shape}, float32, {shards}"
    if (lies := _lies(told.batch)) == want:
        return _other_axis(record, index, told)
    expected, observed = f"`global_batch` returns {want}", f"in process {index}, {lies}"
    put = sum(len(shard) for shard in told.own)
    if 0 < put < len(rows):
        given_rows = f"it was given {plural(len(rows), 'row')}, and put {put} of them in"
        return Failure(expected, f"{observed}: {given_rows}", place, ALL_ITS_ROWS)
    if told.batch and told.batch[0].replicated and len(told.batch[0].devices) == devices:
        return Failure(expected, observed, statements.left_whole(record, "global_batch", ""), WHOLE)
    if told.batch and 0 < len(told.batch[0].devices) < devices:
        observed += ", and not on all those of `mesh`"
        here = definition(record, "global_batch")
        return Failure(expected, observed, here, made=place)
    same = lies.split(", ")[:2] == want.split(", ")[:2] and "float32" not in lies
    return Failure(expected, observed, place, KEPT if same else "")


AXIS = "data"
OF_THE_MESH = (
    "`mesh` names its axis. A program that splits over it looks for this name in the array's "
    "sharding. On which mesh is the array?"
)
LEFT_ALONE = "Whoever read the rows may look at them again. Which line writes into them?"


def _other_axis(record: Record, index: int, told: Round) -> Failure | None:
    """The failure where the rows are split over an axis of another name, or were written into."""
    spec = told.batch[0].spec
    if spec is not None and f"'{AXIS}'" not in spec:
        expected = f'the array is split over the axis "{AXIS}" of `mesh`'
        place = statements.call(record, "global_batch", "P", "PartitionSpec", "NamedSharding")
        return Failure(expected, f"in process {index}, its spec is {spec}", place, OF_THE_MESH)
    if told.changed:
        expected = "`global_batch` leaves the `rows` that it is given as they are"
        place = definition(record, "global_batch")
        observed = f"in process {index}, they are other numbers afterwards"
        return Failure(expected, observed, place, LEFT_ALONE)
    return None


def _lies(leaves: list[Leaf]) -> str:
    """An array's shape and how it is split, in words."""
    if len(leaves) != 1 or leaves[0].kind != "jax":
        return f"a {leaves[0].type}" if len(leaves) == 1 else plural(len(leaves), "value")
    leaf = leaves[0]
    rows = plural((leaf.shard_shape or (0,))[0], "row")
    split = f"in shards of {rows}" if leaf.shape else "a number"
    if leaf.replicated and len(leaf.devices) > 1:
        split = "a full copy"
    devices = plural(len(leaf.devices), "device")
    return f"an array of {leaf.shape}, {leaf.dtype}, {split} on {devices}"


FILLED_AGAIN = (
    "Whoever reads may fill one array of NumPy's anew for each batch. What does `global_batch` "
    "keep from one call to the next?"
)
ORDER = (
    "The first device of a process holds its first rows. In which order does yours hand them out?"
)


@EXERCISE.check(
    ground="observed",
    after=("one_array_of_all_rows",),
    hints=(
        "Each process already has its rows, and they belong on its own devices.",
        "To build the array, no process needs another one's rows. Only the shapes must fit.",
    ),
    anchor="one-array-from-local-rows",
)
def rows_stay_at_home(record: Record) -> Result:
    """Each process puts its own rows on its own devices, and sends none."""
    place = definition(record, "global_batch")

    def judge(given: Given, index: int, number: int, told: Round) -> Result:
        rows = [batches[number] for batches in given.rows]
        held = [row for shard in told.own for row in shard]
        expected = f"process {index}'s devices hold the rows that it read, in order"
        if told.same is False:
            return Failure(expected, f"not all of the {len(rows[index]):,} rows are so", place)
        before = given.rows[index][:number]
        if told.same is None and held and held in before:
            observed = f"they hold the rows of array {before.index(held) + 1}, which came before"
            return Failure(expected, observed, place, FILLED_AGAIN)
        if told.same is None and held != rows[index]:
            observed = _held(held, rows, index)
            return Failure(expected, observed, place, ORDER if observed.endswith("order") else "")
        expected = "`global_batch` places rows, and runs no program that exchanges any"
        if told.programs:
            names = ", ".join(f"`{name}`" for name in dict.fromkeys(told.programs))
            return Failure(expected, f"it ran {names} in process {index}", place)
        return None

    return _each_round(record, judge)


def _held(held: list[list[float]], rows: list[list[list[float]]], index: int) -> str:
    """How many of the rows on a process's devices are its own."""
    own = sum(row in rows[index] for row in held)
    order = ", in another order" if own == len(held) == len(rows[index]) else ""
    return f"{own} of the {plural(len(held), 'row')} that they hold are its own{order}"


LEFT = (
    "`join` is called once, and `mean` for each batch. Which line ends what `join` began, and what "
    "if another batch comes?"
)


@EXERCISE.check(
    ground="observed",
    after=("rows_stay_at_home",),
    hints=(
        "Which rows does one process hold, and which does the array hold?",
        "batch.mean() of the global array is a program that all processes run. Each of them gets "
        "the result.",
    ),
    anchor="everybody-or-nobody",
)
def mean_is_global(record: Record) -> Result:
    """In each process, `mean` returns the mean over the rows of all, and leaves the array."""
    place = statements.result(record, "mean")

    def judge(given: Given, index: int, number: int, told: Round) -> Result:
        mean = _mean_over(given, number)
        expected = f"`mean` returns {mean:.6g} in process {index}, the mean over all rows"
        if isinstance(told.mean, str):
            return Failure(
                "`mean` returns a finite Python float",
                f"in process {index}, it returned {_kind(told.mean)}",
                *_of_no_float(record, place, told.mean),
            )
        if math.isclose(told.mean, mean, rel_tol=1e-5):
            if not told.deleted:
                return None
            gone = f"in process {index}, the array is deleted after it"
            deleting = statements.call(record, "mean", "delete", "jit")
            return Failure("`mean` leaves the array that it is given", gone, deleting, LEAVES)
        what = _what_mean(told.mean, given, index, number)
        hint = "How many values are in a row?" if "a row" in what else ""
        if "divided" in what:
            hint = SUMMED if "the sum" in what else DIVIDED
        elif what.endswith("sum of all means"):
            hint = OF_MEANS
        elif what.startswith(EXTREME):
            hint = OF_ALL_MEANS
        if not what and (digits := _digits(told.mean, mean)):
            what, hint = f", rounded at digit {digits} after the point", AS_IT_IS
        return Failure(expected, f"{told.mean:.6g}{what}", place, hint)

    def stays(_: Given, index: int, told: Told) -> Failure | None:
        expected = (
            f"process {index} is joined to the others after `mean`, which may be called again"
        )
        leaving = statements.call(record, "mean", "shutdown")
        return None if told.joined else Failure(expected, "it has left them", leaving, LEFT)

    return _each_round(record, judge) or _each(record, stays)


@EXERCISE.check(
    ground="observed",
    after=("mean_is_global",),
    hints=(
        "Each process can add up its own rows. What do the others need of them?",
        "batch.mean() of the global array is an all-reduce: a few numbers travel, and no row.",
    ),
    anchor="everybody-or-nobody",
)
def no_rows_are_gathered(record: Record) -> Result:
    """To take the mean, the processes exchange much less than the rows of one of them."""

    def judge(given: Given, index: int, number: int, told: Round) -> Result:
        own = given.rows[index][number]
        rows = 4 * len(own) * len(own[0])
        total = sum(nbytes for _, nbytes, _ in told.exchanged)
        if total < SOME * rows or len(own) == given.devices:  # a row is no more than a sum of rows
            return None
        name, _, line = max(told.exchanged, key=lambda each: each[1])
        most = f"{SOME * rows:,.0f} bytes"
        expected = f"less than {most} are exchanged; the rows of process {index} are {rows:,}"
        many = f"{total:,} bytes" if total < 1 << 30 else "nobody knows how many bytes"
        observed = f"{many} come from other devices, by the program `{name}`"
        place = [culprit(record, line)] if line else statements.result(record, "mean")
        return Failure(expected, observed, place)

    return _each_round(record, judge)


SOME = 0.3
"""The part of the rows of a process that may be exchanged: a number for each row is less."""
EXTREME = ", the largest of the rows' means", ", the least of the rows' means"
OF_ALL_MEANS = (
    "Rows of one length have the mean of their means. What does this line make of the means?"
)
OF_MEANS = (
    "The mean of some means is their sum, divided by how many they are. And a sum over all numbers "
    "is divided by how many there are in all, not in one process."
)
AS_IT_IS = "Some rows have small numbers. Which line cuts digits off?"
SUMMED = "A mean is the sum of all values, divided by their number. How many does the array hold?"
DIVIDED = "The mean of the global array is over all rows already. Which division is left?"


LEAVES = "Whoever called `mean` may need the array again. Which line gives its memory back?"
ALL_RETURN = "Every process asks for the mean. Which line returns it in some of them alone?"


def _of_no_float(record: Record, place: list[Culprit], told: str) -> tuple[list[Culprit], str]:
    """The place and the hint where `mean` returned no float."""
    asking = statements.call(record, "mean", "process_index")
    if told == "NoneType" and asking != definition(record, "mean"):
        return asking, ALL_RETURN
    return place, FORM


def _kind(told: str) -> str:
    """What `mean` returned, of which a process tells the type, or the figure if it is no number."""
    return f"`{told}`" if told in ("nan", "inf", "-inf") else typed(told)


def _mean_over(given: Given, number: int, process: int | None = None) -> float:
    """The mean over the rows of a batch: those of one process, or of all."""
    some = given.rows if process is None else [given.rows[process]]
    values = [x for batches in some for row in batches[number] for x in row]
    return sum(values) / len(values)


def _mean_of_a_device(given: Given, index: int, number: int) -> float:
    """The mean over the rows of a batch on the first device of a process."""
    own = given.rows[index][number]
    values = [x for row in own[: len(own) // given.devices] for x in row]
    return sum(values) / len(values)


def _digits(got: float, mean: float) -> int:
    """To how many digits after the point a mean was rounded; 0 if it was not."""
    fits = (n for n in range(1, 8) if got == round(got, n) and abs(got - mean) < 0.6 * 10**-n)
    return next(fits, 0)


def _what_mean(mean: float, given: Given, index: int, number: int) -> str:
    """What a wrong mean is the mean or the sum of, where that is known."""
    rows = [row for batches in given.rows for row in batches[number]]
    columns = [sum(column) / len(column) for column in zip(*rows, strict=True)]
    whole, own = sum(map(len, rows)), _mean_over(given, number)
    means = [sum(row) / len(row) for row in rows]
    totals = {"the mean": own, "the sum over all rows and their values,": whole * own}
    counts = {"processes": given.count, "devices": given.count * given.devices}
    known = {
        ", the mean over its own rows alone": _mean_over(given, number, index),
        ", the sum over all rows and their values, not the mean": (whole * own),
        ", the sum over its own rows and their values, not the mean": (
            whole / given.count * _mean_over(given, number, index)
        ),
        ", the sum of all means": given.count * own,
        **{
            f", {what} divided by the number of {things}": total / count
            for what, total in totals.items()
            for things, count in counts.items()
        },
        ", the mean over the rows of one of its devices": _mean_of_a_device(given, index, number),
        f", a sum over the {len(columns)} values of a row, and a mean over the rows": sum(columns),
        **dict(zip(EXTREME, (max(means), min(means)), strict=True)),
        **{f", the mean of column {n} alone: a row has more": x for n, x in enumerate(columns)},
        **{
            f", the mean over the rows of array {earlier + 1}, which came before": _mean_over(
                given, earlier
            )
            for earlier in range(number)
        },
    }
    return next((n for n, value in known.items() if math.isclose(mean, value, rel_tol=1e-4)), "")
