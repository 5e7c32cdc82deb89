"""ex08_boundary_copy: each batch crosses to the device once, and constants once in a run.

JAX's own log counts the copies, but does not always say of what. That is seen at the
calls: an argument that is a NumPy array is copied there, and an array that no call got
before, and no step returned, was copied on the way; on the device, if the log is silent.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import msgspec

from grader.checking import Exercise, Failure, Observe, Result, unpack
from grader.evidence import culprit, culprits, definition, differing_leaf, events, probe_gap, seen
from grader.record import Event, Record
from grader.verdict import Culprit
from grader.words import line_on_stack, plural

PROMISE = "`train` returns (params, errors)"
BATCHES = (5, 8)
AHEAD = 2
"""Batches after its own that may have been taken when a step begins."""
NAMES = ("params", "stats", "batch")


class Run(msgspec.Struct):
    """What a run was given, and how it took it."""

    batches: int
    arrays: dict[str, int]
    """How many arrays there are in each of NAMES."""
    steps: int = 0
    ahead: int = 0
    """Batches after a step's own that had been taken when it began, at most."""
    came: dict[str, dict[str, list[tuple[str, int]]]] = {}
    """Of each of NAMES: array -> each time it was new to a call, how it came, and the line:
    as "numpy", in a buffer of its own ("anew"), or in one that another had ("again")."""

    @property
    def expected(self) -> int:
        """Copies of a run that makes no more than it must."""
        return self.batches * self.arrays["batch"] + self.arrays["params"] + self.arrays["stats"]

    def wanted(self, name: str) -> int:
        """Copies of each array of `name`."""
        return self.batches if name == "batch" else 1


class Loop:
    """Hands out batches, and the file's functions, and keeps `run` up to date."""

    def __init__(self, submission: ModuleType, observe: Observe, run: Run) -> None:
        self._step, self.own_error_of = submission.sgd_step, submission.error_of
        self._observe, self._run, self._file = observe, run, submission.__file__
        self._taken = 0
        # Kept, so that no new array has the identity of an old one, or its buffer.
        self._known: list[Any] = []
        self._buffers: set[int | None] = set()

    def incoming(self, batches: list[Any]) -> Iterator[Any]:
        """The batches, counted as they are taken."""
        for batch in batches:
            self._observe.mark()
            self._taken += 1
            yield batch

    def step(self, params: Any, stats: Any, batch: Any) -> Any:
        """The file's own step."""
        self._run.steps += 1
        self._run.ahead = max(self._run.ahead, self._taken - self._run.steps)
        self._look(params=params, stats=stats, batch=batch)
        params = self._step(params, stats, batch)
        self._known += params.values()
        self._buffers |= {_buffer(array) for array in params.values()}
        return params

    def error_of(self, params: Any, stats: Any, batch: Any) -> Any:
        """The file's own error; a step calls it too, while it is traced."""
        self._look(params=params, stats=stats, batch=batch)
        return self.own_error_of(params, stats, batch)

    def _look(self, **trees: Any) -> None:
        import jax

        for name, arrays in trees.items():
            for key, array in arrays.items() if isinstance(arrays, dict) else ():
                if isinstance(array, jax.core.Tracer) or any(array is k for k in self._known):
                    continue
                came = self._run.came.setdefault(name, {}).setdefault(key, [])
                came.append((self._how(array), line_on_stack(sys._getframe(1), self._file) or 0))

    def _how(self, array: Any) -> str:
        """How an array comes that no call has seen; from now on it is known."""
        if (buffer := _buffer(array)) is None:
            return "numpy"
        how = "again" if buffer in self._buffers else "anew"
        self._known.append(array)
        self._buffers.add(buffer)
        return how


def _buffer(array: Any) -> int | None:
    """Where an array begins on its (first) device; None of one in NumPy, or only traced."""
    import jax

    there = isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer)
    return array.addressable_data(0).unsafe_buffer_pointer() if there else None


def _inputs(rng: Any, count: int) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    """NumPy float32 params (16, width), (width,), stats (16,), (16,), and batches."""
    import numpy as np

    rows, width = int(rng.integers(40, 60)), int(rng.integers(20, 35))
    shapes = {"w1": (16, width), "w2": (width,)}
    params = {k: (rng.standard_normal(s) / 4).astype(np.float32) for k, s in shapes.items()}
    mean, deviation = rng.uniform(0.5, 1.5, (2, 16)).astype(np.float32)
    inputs = rng.standard_normal((count, rows, 16)).astype(np.float32)
    batches = [{"inputs": x, "targets": np.tanh(x[:, 0])} for x in inputs]
    return params, {"mean": mean, "deviation": deviation}, batches


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Train twice, and look at what each call of the file's functions gets."""
    runs = []
    for count in BATCHES:
        params, stats, batches = _inputs(rng, count)
        sizes = {k: len(v) for k, v in zip(NAMES, (params, stats, batches[0]), strict=True)}
        runs.append(Run(count, sizes))
        loop = Loop(submission, observe, runs[-1])
        setattr(submission, "error_of", loop.error_of)  # noqa: B010 (a module has no such name)
        with observe.phase(f"{count} batches"):
            returned = submission.train(loop.step, params, stats, loop.incoming(batches))
        setattr(submission, "error_of", loop.own_error_of)  # noqa: B010 (as above)
        params, errors = unpack(returned, 2, PROMISE)
        observe.value(f"params after {count}", params)
        observe.value(f"errors of {count}", errors)
    observe.fact("runs", msgspec.to_builtins(runs))


EXERCISE = Exercise(
    title="Copy at the boundary, and nowhere else",
    lesson="lessons/04-the-inner-loop",
    anchor="one-copy-for-each-batch",
    edits=("train",),
    drive=drive,
    hints=(
        "A jitted function accepts a NumPy array. What does it do with it, on every call?",
        "jax.device_put takes a dict, copies it to the device, and returns a dict of arrays "
        "that stay there.",
        "`params` and `stats` go over before the loop, each batch at the top of its body.",
    ),
)


def _runs(record: Record) -> list[Run]:
    return msgspec.convert(seen(record).facts.get("runs", []), list[Run])


def _copies(record: Record, run: Run) -> tuple[int, list[Event]]:
    """What JAX's log counted in a run."""
    found = list(events(seen(record), "h2d", phase=f"{run.batches} batches"))
    return sum(event.count for event in found), found


def _miscounted(record: Record, name: str) -> Result:
    """The first run that copies too much, if too much of it is `name`."""
    if gap := probe_gap(seen(record), "transfers"):
        return gap
    for run in _runs(record):
        total, found = _copies(record, run)
        for key, came in run.came.get(name, {}).items():
            in_numpy = [line for how, line in came if how == "numpy"]
            surely = [line for how, line in came if how != "again"]
            logged, wanted = total > run.expected, run.wanted(name)
            if (count := len(came if logged else surely)) > wanted:
                why = "an array placed anew" if logged else "a copy made on the device"
                why = "a NumPy array" if in_numpy else why
                own = _own_lines(record, in_numpy if logged else surely, count)
                rest = f". All lines that copy are below, {plural(total, 'copy')} in all"
                expected = f"{plural(wanted, 'copy')} of `{name}[{key!r}]` to the device"
                return Failure(
                    f"{expected} in a run of {run.batches} batches",
                    f"{plural(count, 'copy')}: calls got {why}{'' if own else rest}",
                    own or culprits(record, found),
                )
    return None


def _own_lines(record: Record, lines: list[int], copies: int) -> list[Culprit]:
    """The lines that copy an array, if they are known for all of its copies."""
    if 0 in lines or len(lines) < copies:
        return []
    return [culprit(record, line, times) for line, times in sorted(Counter(lines).items())]


@EXERCISE.check(
    ground="observed",
    hints=(
        "Two calls get the batch. Do both get what the first one copied?",
        "jax.device_put returns the array on the device; the NumPy array stays what it was. "
        "Use what it returns, in both calls.",
    ),
)
def batch_copied_once(record: Record) -> Result:
    """Each array of a batch is copied to the device once."""
    return _miscounted(record, "batch")


@EXERCISE.check(
    ground="observed",
    hints=("`stats` never change. Copy them where they are needed first: before the loop.",),
)
def stats_copied_once(record: Record) -> Result:
    """The constants are copied once in a run, not in each step."""
    return _miscounted(record, "stats")


@EXERCISE.check(
    ground="observed",
    hints=(
        "What `step` returns is on the device already. Nobody has to bring it there.",
        "The first batch needs care too: before it, params are NumPy arrays, and two calls "
        "get them.",
    ),
)
def params_copied_once(record: Record) -> Result:
    """The params are copied once, before the first step; from then on they stay."""
    return _miscounted(record, "params")


@EXERCISE.check(
    ground="observed",
    after=("batch_copied_once", "stats_copied_once", "params_copied_once"),
    hints=("A Python number, or a NumPy one, goes to the device like an array, on each call.",),
)
def nothing_else_is_copied(record: Record) -> Result:
    """Nothing but params, stats and batches is copied to the device."""
    gap = probe_gap(seen(record), "transfers")
    for run in _runs(record):
        total, found = _copies(record, run)
        if not gap and total != run.expected:
            sizes = ", ".join(f"{size} of `{name}`" for name, size in run.arrays.items())
            return Failure(
                f"{run.expected} copies to the device in a run of {run.batches} batches, of single "
                f"arrays ({sizes})",
                f"{plural(total, 'copy')} to the device",
                culprits(record, found),
            )
    return gap


@EXERCISE.check(
    ground="observed",
    after=("batch_copied_once", "stats_copied_once", "params_copied_once"),
    hints=(
        "float(), np.asarray(), print() and jax.device_get copy an array to the host.",
        "Keep the array that `error_of` returns as it is: the caller reads it, when it is needed.",
    ),
    anchor="reading-stops-the-loop",
)
def nothing_is_read(record: Record) -> Result:
    """No array is copied back to the host: errors and params stay on the device."""
    found = list(events(seen(record), "d2h"))
    if not found:
        return probe_gap(seen(record), "reads")
    observed = f"{plural(sum(event.count for event in found), 'read')} in two runs"
    return Failure("no read of an array in `train`", observed, culprits(record, found))


@EXERCISE.check(
    ground="observed",
    hints=(
        "A list of batches holds all of them in memory before the first step runs.",
        "Copy a batch when its turn comes, or one step before.",
    ),
)
def one_batch_at_a_time(record: Record) -> Result:
    """Batches are taken as the steps need them, and each gets its step."""
    for run in _runs(record):
        if run.steps != run.batches:
            expected = f"{plural(run.batches, 'call')} of `step`, one for each batch"
            return Failure(expected, plural(run.steps, "call"), definition(record, "train"))
        if run.ahead > AHEAD:
            expected = f"when a step begins, at most {AHEAD} batches after its own have been taken"
            observed = f"at one step, {run.ahead} had been taken, in a run of {run.batches} batches"
            return Failure(expected, observed, definition(record, "train"))
    return None


@EXERCISE.check(ground="observed")
def same_numbers(record: Record) -> Result:
    """Params and errors are the reference's."""
    names = [f"{what} {count}" for count in BATCHES for what in ("errors of", "params after")]
    found = (differing_leaf(record, name, rtol=1e-4, atol=1e-5) for name in names)
    return next((failure for failure in found if failure), None)
