"""Drives ex08_boundary_copy: trains three times, and looks at every array that a call gets.

JAX's own log counts the copies to the device, but does not always say of what. The calls of `step`
and `error_of` show that: a call copies an argument that is a NumPy array, and an array that no call
got before, and no step returned, was copied on its way to the call. If the log holds no copy for
it, it was copied on the device.

Drawn: the batches of the runs (2 to 29 and 100 to 129, in any order, then 30 to 99), the rows of a
batch, the width of the network, and all numbers: no array of a batch can be worked out from the
other. The runs have different numbers of batches, so that a copy in each step is told from a copy
in each run. The last run gets the first one's dicts, filled with other arrays, and its last batch
has a number that is none. What the runs return is looked at when all have ended, so a list that is
filled again later shows.
"""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import jax
import msgspec
import numpy as np

from grader.checks.ex08_boundary_copy.facts import NAMES, RUNS, SLIPS, How, Run
from grader.judging.words import line_on_stack
from grader.probes import dumped
from grader.probes.describe import address
from grader.probes.observe import Observe, own_list, unpack

PROMISE = "`train` returns (params, errors)"
OWN_LIST = "each call of `train` returns a list of its own"


LENGTHS, BETWEEN = ((2, 30), (100, 130)), (30, 100)
"""From how many batches on, and below how many, each run has, and the last one."""


class Given:
    """The file's jitted `error_of` with a look at what it gets; its methods are its own."""

    def __init__(self, jitted: Any, look: Any) -> None:
        self._jitted, self._look = jitted, look

    def __call__(self, params: Any, stats: Any, batch: Any) -> Any:
        self._look(params=params, stats=stats, batch=batch)
        return self._jitted(params, stats, batch)

    def __getattr__(self, name: str) -> Any:
        """`lower` and whatever else a jitted function has."""
        return getattr(self._jitted, name)


class Loop:
    """Hands out the batches and the file's functions, and writes down in `run` what calls get."""

    def __init__(self, submission: ModuleType, observe: Observe, run: Run) -> None:
        self._step, self.own_error_of = submission.sgd_step, submission.error_of
        self._observe, self._run, self._file = observe, run, submission.__file__
        self._taken = 0
        self.first: dict[str, Any] = {}
        # Kept, so that no new array has the identity of an old one, or its buffer.
        self._known: dict[int, Any] = {}
        self._buffers: set[int | None] = set()

    def incoming(self, batches: list[Any]) -> Iterator[Any]:
        """The batches, counted as they are taken."""
        for batch in batches:
            self._observe.mark()
            self._taken += 1
            yield batch

    def step(self, params: Any, stats: Any, batch: Any) -> Any:
        """Call the file's own step; what it returns counts as known."""
        self._run.steps += 1
        self._run.ahead = max(self._run.ahead, self._taken - self._run.steps)
        self._look(params=params, stats=stats, batch=batch)
        params = self._step(params, stats, batch)
        for array in jax.tree.leaves(params):
            self._known[id(array)] = array
            self._buffers.add(_buffer(array))
        return params

    @property
    def error_of(self) -> Given:
        """The file's own `error_of`; a step calls it too, while it is traced."""
        return Given(self.own_error_of, self._look)

    def _look(self, **trees: Any) -> None:
        """Write down each array that no call got before; tracers are no arrays."""
        self.first = self.first or trees
        for name, arrays in trees.items():
            for key, array in arrays.items() if isinstance(arrays, dict) else ():
                if isinstance(array, jax.core.Tracer) or id(array) in self._known:
                    continue
                came = self._run.came.setdefault(name, {}).setdefault(key, [])
                came.append((self._how(array), line_on_stack(sys._getframe(1), self._file) or 0))

    def _how(self, array: Any) -> How:
        """How an array comes that no call got before; from now on it is known."""
        if (buffer := _buffer(array)) is None:
            return "numpy"
        how: How = "again" if buffer in self._buffers else "anew"
        self._known[id(array)] = array
        self._buffers.add(buffer)
        return how


def _buffer(array: Any) -> int | None:
    """The address of an array on its first device; None for a NumPy array or a tracer."""
    there = isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer)
    return address(array.addressable_data(0)) if there else None


def _inputs(rng: Any, count: int, rows: int, width: int) -> tuple[Any, Any, list[Any]]:
    """NumPy float32 params (16, width), (width,), stats (16,), (16,), and `count` batches.

    Each batch holds inputs (rows, 16) and targets (rows,).
    """
    shapes = {"w1": (16, width), "w2": (width,)}
    params = {k: (rng.standard_normal(s) / 4).astype(np.float32) for k, s in shapes.items()}
    mean, deviation = rng.uniform(0.5, 1.5, (2, 16)).astype(np.float32)
    inputs = rng.standard_normal((count, rows, 16)).astype(np.float32)
    targets = np.tanh(rng.standard_normal((count, rows))).astype(np.float32)
    batches = [{"inputs": x, "targets": y} for x, y in zip(inputs, targets, strict=True)]
    return params, {"mean": mean, "deviation": deviation}, batches


def _filled_again(rng: Any, inputs: tuple[Any, Any, list[Any]], old: list[Any]) -> None:
    """Let the arrays of `inputs` come in the `old` dicts, and give its last batch a NaN."""
    *new, batches = inputs
    for tree, values in zip(old, new, strict=True):
        tree.update(values)
    targets = batches[-1]["targets"]
    targets[rng.integers(len(targets))] = np.nan


def _slips(submission: ModuleType, params: Any, stats: Any, batches: list[Any]) -> list[Any]:
    """The errors that each of SLIPS would give."""
    first, stats = jax.device_put((params, stats))
    late, params = [], first
    for batch in batches:
        params = submission.sgd_step(params, stats, batch)
        late.append(submission.error_of(params, stats, batch))
    return [late, [submission.error_of(first, stats, batch) for batch in batches]]


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Train three times, and look at what each call of the file's functions gets."""
    runs, results, dicts = list[Run](), list[tuple[str, Any]](), list[Any]()
    sizes = [(int(rng.integers(40, 60)), int(rng.integers(20, 35))) for _ in LENGTHS]
    spans = [*rng.permutation(LENGTHS), BETWEEN]
    for span, (rows, width) in zip(spans, [*sizes, sizes[0]], strict=True):
        count = int(rng.integers(*span))
        params, stats, batches = _inputs(rng, count, rows, width)
        if len(runs) == len(LENGTHS):
            _filled_again(rng, (params, stats, batches), dicts)
            params, stats = dicts
        dicts = dicts or [params, stats]
        run = _run(count, params, stats, batches)
        runs.append(run)
        before = _entries(params, stats)
        loop = Loop(submission, observe, run)
        vars(submission)["error_of"] = loop.error_of
        with dumped.programs() as programs, observe.phase(run.phase):
            returned = submission.train(loop.step, params, stats, loop.incoming(batches))
        run.constants = [size for text in programs for size in dumped.constants(text)]
        run.through_host = sum(map(dumped.uses_the_host, programs))
        vars(submission)["error_of"] = loop.own_error_of
        after = _entries(params, stats)
        run.changed = sorted(
            name for name in before | after if before.get(name) is not after.get(name)
        )
        trained, errors = unpack(returned, 2, PROMISE)
        own_list(errors, [tree for _, tree in results], OWN_LIST)
        observe.value(run.first_call, loop.first)
        results += zip(run.results, (errors, trained), strict=True)
        if observe.reference:
            with observe.unwatched():
                slips = _slips(submission, params, stats, batches)
                for words, slip in zip(SLIPS, slips, strict=True):
                    observe.value(f"{run.results[0]}, {words}", slip)
    for name, tree in results:
        observe.value(name, tree)
    observe.fact(RUNS, msgspec.to_builtins(runs))


def _entries(params: Any, stats: Any) -> dict[str, Any]:
    """The arrays that the caller has, by the names that a report gives them."""
    trees = {"params": params, "stats": stats}
    return {f"`{name}[{key!r}]`": one for name, tree in trees.items() for key, one in tree.items()}


def _run(count: int, params: Any, stats: Any, batches: list[Any]) -> Run:
    """A run with what it is given."""
    arrays = dict(zip(NAMES, (params, stats, batches[0]), strict=True))
    trees = dict(zip(NAMES, (params, stats, batches), strict=True))
    nbytes = {name: sum(x.nbytes for x in jax.tree.leaves(tree)) for name, tree in trees.items()}
    return Run(count, {name: len(tree) for name, tree in arrays.items()}, nbytes)
