"""Drives ex08_boundary_copy: trains three times, and looks at every array that a call gets.

JAX's own log counts the copies to the device, but does not always say of what. The calls of `step`
and `error_of` show that: a call copies an argument that is a NumPy array, and an array that no call
got before, and no step returned, was copied on its way to the call. If the log holds no copy for
it, it was copied on the device. When a step begins, the bytes of all arrays are counted that lie on
the device and that no call got.

Drawn: the batches of the runs (2 to 29 and 100 to 129, in any order, then 30 to 99, and at last a
single one), the rows of a batch, 1 to 4 in one of the first, the width of the network, and all
numbers: no array of a batch can be worked out from the other. The runs have different numbers of
batches, so that a copy in each step is told from a copy in each run. The last two runs get the
first one's dicts, filled with other arrays, of float64, and the params have two more arrays, of
drawn names, one of which begins with an underscore, that change no error; one of them is a single
number, without dimensions. The last batch of the third run has a number that is none. The last run
gets the very arrays of the one before, with other numbers in them. The caller's dicts are looked at
in each step, those of the batches that were taken as well. What the runs return, and what the
caller has, is looked at when all have ended, so a list that is filled again later shows. Where the
file names numbers, the long run has more batches, the short one more rows, and the last two a wider
network and params with more arrays than each of them, up to MOST_...; `train` is called more often
before these, and some of their numbers are further from 0. In two more runs, the second step
raises, or the batches do.
"""

import math
import sys
from collections.abc import Iterator
from itertools import chain, cycle, zip_longest
from string import ascii_lowercase
from types import ModuleType
from typing import Any

import jax
import msgspec
import numpy as np

from grader.checks.ex08_boundary_copy.facts import HIDES, NAMES, RUNS, SLIPS, How, Run
from grader.judging.words import line_on_stack, plural
from grader.probes import alive, dumped
from grader.probes.describe import address
from grader.probes.observe import Misused, Observe, own_list, unpack
from grader.stages.drawn import among, beside, beyond, far
from grader.stages.failing import hidden

PROMISE = "`train` returns (params, errors)"
OWN_LIST = "each call of `train` returns a list of its own"


LENGTHS, BETWEEN = ((2, 30), (100, 130)), (30, 100)
"""From how many batches on, and below how many, the first runs have, and the third one.

The last one has a single batch.
"""
COMPARED = 4
"""So many steps are looked at whether they get their own batch."""
LOOKED_AT = 2
"""So many of the batches that were taken last are looked at in a step: its own, and one ahead."""
ROWS, WIDTHS = ((1, 5), (5, 200)), ((5, 20), (20, 60))
"""Between which numbers the rows of a batch lie, and the width of the network, in two runs each."""


SMALL = ROWS[0], WIDTHS[0]
"""Below which numbers the sizes of the calls are that nobody looks at."""
PARAMS = ("w1", "w2")
"""The params that `error_of` needs."""
MOST_STEPS, MOST_ROWS, MOST_WIDTH, MOST_ARRAYS, MOST_CALLS = 1000, 20_000, 8192, 24, 200
"""Up to where the numbers are reached that the file names."""
MOST_NUMBER = 1e12
"""Up to where numbers of the last two runs reach them."""


class Given:
    """The file's jitted `error_of` with a look at what it gets; its methods are its own."""

    def __init__(self, jitted: Any, look: Any, keep: list[Any]) -> None:
        self._jitted, self._look, self._keep = jitted, look, keep

    def __call__(self, params: Any, stats: Any, batch: Any) -> Any:
        if isinstance(params, str):
            raise Misused(
                "`error_of` gets the params as a dict of arrays",
                f"it was called with {params!r}, a name of one, as its first argument: `step` "
                "returns one dict alone, and what unpacks it gets its names",
            )
        self._look(params=params, stats=stats, batch=batch)
        error = self._jitted(params, stats, batch)
        if not isinstance(error, jax.core.Tracer):
            self._keep.append(error)
        return error

    def __getattr__(self, name: str) -> Any:
        """`lower` and whatever else a jitted function has."""
        return getattr(self._jitted, name)


class Loop:
    """Hands out the batches and the file's functions, and writes down in `run` what calls get."""

    def __init__(
        self, submission: ModuleType, observe: Observe, run: Run, params: Any, stats: Any
    ) -> None:
        self._step, self.own_error_of = submission.sgd_step, submission.error_of
        self._observe, self._run, self._file = observe, run, submission.__file__
        self._taken = self._late = 0
        self.first: dict[str, Any] = {}
        self.errors: list[Any] = []
        """What calls of `error_of` returned."""
        self.last: Any = None
        """What the last step returned."""
        self._given = [
            (tree, name, [*tree.items()]) for name, tree in (("params", params), ("stats", stats))
        ]
        self._fresh: list[tuple[Any, str, list[Any]]] = []
        """The batches that were taken last, as `_given` is."""
        self.changed: set[str] = set()
        self.waiting: list[int] = []
        """The bytes that `_waiting` counted in each step."""
        # Kept, so that no new array has the identity of an old one, or its buffer.
        self._known: dict[int, Any] = {}
        self._buffers: set[int | None] = set()
        self._views: dict[int, Any] = {}
        self.stepped: list[Any] = []
        """The batches that the first steps got."""
        with observe.unwatched():
            self._before = {*alive.memory()}

    def incoming(self, batches: list[Any]) -> Iterator[Any]:
        """The batches, counted as they are taken."""
        for number, batch in enumerate(batches):
            self._observe.mark()
            self._taken += 1
            self._fresh.append((batch, f"batches[{number}]", [*batch.items()]))
            yield batch

    def step(self, params: Any, stats: Any, batch: Any) -> Any:
        """Call the file's own step; what it returns counts as known."""
        self._run.steps += 1
        self._late += len(self.errors) < self._run.steps
        self.stepped += [batch] if len(self.stepped) < COMPARED else []
        self._run.ahead = max(self._run.ahead, self._taken - self._run.steps)
        self._look(params=params, stats=stats, batch=batch)
        with self._observe.unwatched():
            self.waiting.append(self._waiting())
        for tree, name, items in (*self._given, *self._fresh):
            self.changed |= _replaced(name, items, [*tree.items()])
        self._fresh = self._fresh[-LOOKED_AT:]
        self.last = params = self._step(params, stats, batch)
        for array in jax.tree.leaves(params):
            self._known[id(array)] = array
            self._buffers.add(_buffer(array))
        return params

    @property
    def error_of(self) -> Given:
        """The file's own `error_of`; a step calls it too, while it is traced."""
        return Given(self.own_error_of, self._look, self.errors)

    def _waiting(self) -> int:
        """The bytes of the arrays, but single numbers, that lie on a device and came to no call."""
        new = (
            x for x in jax.live_arrays() if id(x) not in self._known and id(x) not in self._views
        )
        there = {_buffer(array): array for array in new if array.ndim and not array.is_deleted()}
        # JAX itself makes an array of each part of one: these are looked at once.
        old = self._buffers | self._before
        self._views |= {id(x): x for buffer, x in there.items() if buffer in old}
        return sum(array.nbytes for buffer, array in there.items() if buffer not in old)

    def late(self) -> int:
        """`Run.late`, where all calls of `error_of` were seen."""
        return self._late if len(self.errors) >= self._run.batches else 0

    def placed(self) -> int:
        """`Run.placed`: in the last step, no batch is left that could come after it."""
        more = max(self.waiting, default=0) - sum(self.waiting[-1:])
        return math.ceil(more * self._run.batches / self._run.nbytes["batch"])

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


def _other_batch(stepped: list[Any], batches: list[Any]) -> list[int]:
    """The first step that got another batch than its own, and the number of that; or nothing."""
    for step, got in enumerate(stepped):
        found = (number for number, batch in enumerate(batches) if _is_batch(got, batch))
        if (number := next(found, step)) != step:
            return [step, number]
    return []


def _is_batch(got: Any, batch: Any) -> bool:
    """Whether a step got the arrays of a batch, on the device or not."""
    if not isinstance(got, dict) or got.keys() != batch.keys():
        return False
    pairs = [(got[name], batch[name]) for name in batch]
    gone = any(isinstance(one, jax.Array) and one.is_deleted() for one, _ in pairs)
    return not gone and all(np.array_equal(one, np.float32(right)) for one, right in pairs)


def _replaced(name: str, old: list[Any], new: list[Any]) -> set[str]:
    """The entries of a dict that are not what they were, or stand in another place."""
    pairs = zip_longest(old, new, fillvalue=(None, None))
    changed = ((was, now) for was, now in pairs if was[0] != now[0] or was[1] is not now[1])
    return {f"`{name}[{key!r}]`" for both in changed for key, _ in both if key is not None}


def _buffer(array: Any) -> int | None:
    """The address of an array on its first device; None for a NumPy array or a tracer."""
    if isinstance(array, jax.core.Tracer) or not isinstance(array, jax.Array):
        return None
    # Each part that is asked for is one more array, which JAX lists as alive from then on.
    alone = len(array.sharding.device_set) == 1
    return address(array if alone else array.addressable_data(0))


def _inputs(rng: Any, count: int, rows: int, width: int) -> tuple[Any, Any, list[Any]]:
    """NumPy float32 params (16, width), (width,), stats (16,), (16,), and `count` batches.

    Each batch holds inputs (rows, 16) and targets (rows,). Params are small in a wide network,
    where steps of 0.05 would be too long for others.
    """
    shapes = {"w1": (16, width), "w2": (width,)}
    part = 4 if width < WIDTHS[-1][-1] else 3 * math.sqrt(width)
    params = {k: (rng.standard_normal(s) / part).astype(np.float32) for k, s in shapes.items()}
    mean, deviation = rng.uniform(0.5, 1.5, (2, 16)).astype(np.float32)
    inputs = rng.standard_normal((count, rows, 16)).astype(np.float32)
    targets = np.tanh(rng.standard_normal((count, rows))).astype(np.float32)
    batches = [{"inputs": x, "targets": y} for x, y in zip(inputs, targets, strict=True)]
    return params, {"mean": mean, "deviation": deviation}, batches


def _filled_again(rng: Any, inputs: tuple[Any, Any, list[Any]], old: list[Any]) -> None:
    """Let the arrays of `inputs` come in the `old` dicts, and all arrays in float64.

    An array that an old dict has of the same kind gets the numbers alone. The last batch of
    several gets a NaN, and that before it a number that makes a large error. Where the file names
    numbers, some of that batch, or of params and stats, are further from 0.
    """
    *new, batches = inputs
    for tree, values in zip([*old, *batches], [*new, *batches], strict=True):
        for name, array in values.items():
            there = tree.get(name, array)
            if (there.shape, there.dtype) == (array.shape, np.float64):
                there[...] = array
            else:
                tree[name] = array.astype(np.float64)
    large = far(rng, MOST_NUMBER)
    found = (np.nan, rng.choice([-1, 1]) * max(1e4, large)) if len(batches) > 1 else ()
    if large and found:
        _at_a_place(rng, batches[-2]["inputs"], large)
    elif large:
        for name, array in old[0].items():
            _at_a_place(rng, array, large if name in PARAMS else -large)
        column = rng.integers(16)
        for array in old[1].values():
            array[column] = large * rng.uniform(0.5, 1)
    for batch, odd in zip(batches[::-1], found, strict=False):
        targets = batch["targets"]
        targets[rng.integers(len(targets))] = odd


def _at_a_place(rng: Any, array: Any, number: float) -> None:
    array.flat[rng.integers(array.size)] = number


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
    kept = list[tuple[Run, set[str], _Entries, list[Any], tuple[list[Any], Any]]]()
    spans, sizes = _sizes(rng)
    shapes: list[tuple[int, ...]] = [(), (int(rng.integers(*WIDTHS[1])),)]
    shapes *= beyond(rng, 4, MOST_ARRAYS) // 2 - 1
    begins = cycle(beside(rng).permutation(("_", "")).tolist())
    more = {next(begins) + "".join(rng.choice([*ascii_lowercase], 6)): shape for shape in shapes}
    generators = beside(rng).permutation([True, True, False, False]).tolist()
    calls = beyond(rng, len(spans), MOST_CALLS)
    for span, (rows, width) in zip(spans, sizes, strict=True):
        count = _length(rng, span)
        params, stats, batches = _inputs(rng, count, rows, width)
        if len(runs) >= len(LENGTHS):
            _more_calls(submission, rng, calls - len(spans))
            calls = len(spans)
            for name, shape in more.items():
                params[name] = np.asarray(rng.standard_normal(shape), np.float32)
            if len(runs) > len(LENGTHS):
                kept[-1] = _without_given(*kept[-1])
            _filled_again(rng, (params, stats, batches), dicts)
            params, stats = dicts
        dicts = dicts or [params, stats]
        run = _run(count, params, stats, batches)
        runs.append(run)
        before = _entries(params, stats, batches)
        loop = Loop(submission, observe, run, params, stats)
        vars(submission)["error_of"] = loop.error_of
        with dumped.programs() as programs, observe.phase(run.phase):
            returned = _train(submission, loop, params, stats, batches, generators.pop())
        run.constants = [size for text in programs for size in dumped.constants(text)]
        run.through_host = sum(map(dumped.uses_the_host, programs))
        run.placed = loop.placed()
        run.late = loop.late()
        with observe.unwatched():
            run.other = _other_batch(loop.stepped, batches)
        vars(submission)["error_of"] = loop.own_error_of
        loop.changed |= _changed(before, _entries(params, stats, batches))
        kept.append((run, loop.changed, before, batches, (loop.errors, loop.last)))
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
    for run, changed, before, batches, (errors, last) in kept:
        run.changed = sorted(changed | _changed_later(before, batches))
        for name, tree in zip(run.gave, (errors, last), strict=True):
            observe.value(name, tree)
    observe.fact(RUNS, msgspec.to_builtins(runs))
    with observe.unwatched():
        observe.fact(HIDES, _hides_errors(submission, rng))


def _train(
    submission: ModuleType,
    loop: Loop,
    params: Any,
    stats: Any,
    batches: list[Any],
    generator: bool,
) -> Any:
    """What a run returns; where a batch is missing, the error says of how many.

    The batches come from a generator, or else from an iterator that is none.
    """
    incoming: Iterator[Any] = loop.incoming(batches)
    try:
        given = incoming if generator else chain(incoming)
        return submission.train(loop.step, params, stats, given)
    except StopIteration as error:
        error.add_note(f"in a run of {plural(len(batches), 'batch')}")
        raise


def _hides_errors(submission: ModuleType, rng: Any) -> list[str]:
    """Of what `train` hides an error: of `step`, of `batches`."""
    params, stats, batches = _inputs(rng, 3, SMALL[0][1], SMALL[1][1])
    train = submission.train
    return hidden(lambda step, some: train(step, params, stats, some), submission.sgd_step, batches)


def _sizes(rng: Any) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Between which numbers the batches of each run are, and its rows and width."""
    both = zip(rng.permutation(ROWS), rng.permutation(WIDTHS), strict=True)
    sizes = [(among(rng, rows), among(rng, width)) for rows, width in both]
    lengths = [LENGTHS[index] for index in rng.permutation(len(LENGTHS))]
    short = lengths.index(LENGTHS[0])
    rows, width = sizes[0]
    sizes += [(rows, beyond(rng, width, MOST_WIDTH, each=16))] * 2
    sizes[short] = beyond(rng, sizes[short][0], MOST_ROWS, each=16), sizes[short][1]
    return [*lengths, BETWEEN, (1, 2)], sizes


def _length(rng: Any, span: tuple[int, int]) -> int:
    """How many batches a run has."""
    count = among(rng, span)
    return beyond(rng, count, MOST_STEPS) if span == LENGTHS[-1] else count


def _more_calls(submission: ModuleType, rng: Any, times: int) -> None:
    """Train so many times with a single batch each."""
    for _ in range(times):
        params, stats, batches = _inputs(rng, 1, SMALL[0][1], SMALL[1][1])
        submission.train(submission.sgd_step, params, stats, iter(batches))


def _without_given(
    run: Run, changed: set[str], before: "_Entries", batches: list[Any], calls: Any
) -> tuple[Run, set[str], "_Entries", list[Any], Any]:
    """What is kept of a run before its params and stats get other numbers: they are looked at now.

    So nothing that the run computes from them may still be under way.
    """
    jax.block_until_ready(calls)
    of_batches = {name: entry for name, entry in before.items() if name.startswith("`batches")}
    return run, changed | _changed_later(before, batches), of_batches, batches, calls


_Entries = dict[str, tuple[Any, Any, int]]


def _entries(params: Any, stats: Any, batches: list[Any]) -> _Entries:
    """The arrays that the caller has, each with a copy, by the names that a report gives them.

    And the place of each in its dict.
    """
    trees = {"params": params, "stats": stats}
    trees |= {f"batches[{number}]": batch for number, batch in enumerate(batches)}
    return {
        f"`{name}[{key!r}]`": (one, np.array(one) if isinstance(one, np.ndarray) else one, place)
        for name, tree in trees.items()
        for place, (key, one) in enumerate(tree.items())
    }


def _changed_later(before: _Entries, batches: list[Any]) -> set[str]:
    """What has other numbers when all runs have ended, and what of the batches is no longer there.

    The dicts of params and stats were filled with other arrays meanwhile.
    """
    arrays = {name: entry for name, entry in before.items() if isinstance(entry[0], np.ndarray)}
    written = {n for n, (x, old, _) in arrays.items() if not np.array_equal(x, old, equal_nan=True)}
    of_batches = {name: entry for name, entry in before.items() if name.startswith("`batches")}
    return written | _changed(of_batches, _entries({}, {}, batches))


def _changed(before: _Entries, after: _Entries) -> set[str]:
    """What the caller no longer has, has got, or has with other numbers or in another place."""
    kept = (
        name
        for name in before.keys() & after.keys()
        if before[name][0] is after[name][0]
        and before[name][2] == after[name][2]
        and np.array_equal(before[name][1], after[name][1], equal_nan=True)
    )
    return {*before, *after} - {*kept}


def _run(count: int, params: Any, stats: Any, batches: list[Any]) -> Run:
    """A run with what it is given."""
    arrays = dict(zip(NAMES, (params, stats, batches[0]), strict=True))
    trees = dict(zip(NAMES, (params, stats, batches), strict=True))
    # JAX makes float32 of all numbers here.
    nbytes = {name: sum(4 * x.size for x in jax.tree.leaves(tree)) for name, tree in trees.items()}
    return Run(count, {name: len(tree) for name, tree in arrays.items()}, nbytes)
