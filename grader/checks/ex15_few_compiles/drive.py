"""Drives ex15_few_compiles: serves lists of batches, and writes down each call of `model`.

Drawn: how many lists there are (3 to 5 of several batches, 5 to 7 of one batch, and one of 110 to
149), their order, and the sizes of their batches: each process gets batches of one row, of 256, of
one size from each of 19 bands, and of 3 to 6 other sizes, which come again in the long list. 24 to
32 lists of one batch of these sizes follow, so that there are many calls. The lists of one batch
show how much padding one size costs, which the rows of larger batches would hide. One of the first
lists, but not that of a single row, comes again after them, filled with arrays of the same numbers,
and with other params, which give other predictions. Before that comes a list of one array that has
been served, filled with other numbers. One of the later lists has 16 rows, as many as columns, and
before another one, the dict of params gets new arrays. In the longest list, one array stands twice.
At the end, where `model` got arrays of a few sizes only, there is a list for each of them: of one
batch that has one row more. Drawn, too, are the width of the network, where the rows lie (far from
zero, so that a padding of zeros shifts the mean of its batch if it is not masked out; in a batch of
three rows and more, two are equal, and one may be 0, or hold a number of hundreds), whether a batch
lies in memory row by row or column by column, or is a part of a wider table, and whether it can be
written to, and a large factor by which `model` multiplies the predictions, so that `network` by
itself does not give its numbers. The params lie on another device than the first, if there is one.
Where the file names numbers, the long list is longer than each of them that is below MOST_BATCHES,
there are more later lists, up to MOST_LISTS, the network is wider, up to MOST_WIDTH, the number of
hundreds is larger, up to MOST_FAR, and some batches have as many rows as a number says.

`model` is a plain function that counts, so it refuses to be traced.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import ModuleType
from typing import Any

import jax
import msgspec
import numpy as np

from grader.checks.ex15_few_compiles.facts import (
    EMPTIED,
    FACTOR,
    FORMER,
    MOST_ROWS,
    OLD_PARAMS,
    OTHER_END,
    REFUSED,
    RENEWED,
    SCRAMBLED,
    SERVED,
    SERVED_MORE,
    TWICE,
    UNSEEN,
    ZEROS,
    Call,
    Served,
    one_row_more,
    served_list,
)
from grader.judging.words import plural, typed
from grader.probes import dumped, launches
from grader.probes.observe import Misused, Observe
from grader.stages.drawn import beside as aside
from grader.stages.drawn import beyond, far, named

PROMISE = "`predict_all` returns a list: for each batch, its predictions"
MODEL = "`model` is called as model(params, rows, mask)"
FEATURES = 16
NETWORK = dumped.bare("jit(network)")
"""The network's program: one for each size, so that it computes the rows that it is given."""
WIDTHS, OTHERS, LONG = (16, 41), (3, 7), (110, 150)
BANDS = (2, 3, 5, 8, 10, 13, 16, 20, 25, 31, 39, 48, 61, 76, 95, 119, 149, 186, 232, 256)
"""Where bands of sizes begin and end: whoever serves all with more programs needs each of them."""
FAR = (150, 400)
"""How far a number of some batches is from the others."""
MOST_BATCHES, MOST_LISTS, MOST_WIDTH, MOST_FAR, NAMED = 1000, 300, 512, 999.0, 6
"""Up to where all these reach the numbers that the file names, and how many sizes are such."""
SEVERAL, ALONE, LATER = (3, 6), (3, 6), (24, 33)
"""How many lists hold several batches, how many hold one of any size, and how many later ones."""


def _batches(rng: Any, sizes: Sequence[int], mean: float) -> list[Any]:
    """float32 rows (n, 16) for each size n."""
    return [_rows(rng, size, mean) for size in sizes]


def _rows(rng: Any, size: int, mean: float) -> Any:
    """One batch."""
    drawn = rng.standard_normal((size, FEATURES)) + mean
    if size >= 3:
        one, same, other = rng.permutation(size)[:3]
        drawn[same] = drawn[one]
        drawn[other] *= rng.integers(2)
        if rng.integers(2):
            away = max(rng.uniform(*FAR), far(rng, MOST_FAR))
            drawn[other, int(rng.integers(FEATURES))] = rng.choice((-1, 1)) * away
    rows = drawn.astype("float32", order="CF"[int(rng.integers(2))])
    apart = aside(rng)
    if not apart.integers(3):
        table = np.ones((size, FEATURES + int(apart.integers(1, 9))), "float32")
        table[:, :FEATURES] = rows
        rows = table[:, :FEATURES]
    rows.flags.writeable = bool(apart.integers(2))
    return rows


def _sizes(rng: Any) -> list[int]:
    """Different sizes from 2 to 255, one of each band and a few others, in random order."""
    bands = [int(rng.integers(low, high)) for low, high in pairwise(BANDS)]
    more = (2 + rng.permutation(MOST_ROWS - 2)[: int(rng.integers(*OTHERS))]).tolist()
    meant = [int(number) for number in named(rng) if 2 <= number < MOST_ROWS]
    more += rng.choice(meant, min(len(meant), NAMED), False).tolist() if meant else []
    return [int(size) for size in rng.permutation([*{*bands, *more}])]


def _lists(rng: Any) -> list[list[int]]:
    """The sizes of the batches of each list, in a drawn order."""
    sizes = _sizes(rng)
    several = np.array_split(np.array(sizes), int(rng.integers(*SEVERAL)))
    found = [[int(size) for size in part] for part in several]
    found[int(rng.integers(len(found)))].append(MOST_ROWS)
    long = beyond(rng, int(rng.integers(*LONG)), MOST_BATCHES)
    found.append([int(size) for size in rng.choice(sizes, long)])
    found += [[1], [17 + int(rng.integers(4))]]
    found += [[size] for size in rng.choice(sizes, int(rng.integers(*ALONE)), False).tolist()]
    return [found[int(index)] for index in rng.permutation(len(found))]


def _put_twice(rng: Any, batches: list[Any]) -> tuple[int, int]:
    """Let an array of a long list stand there for another one, too, of its size; returns where."""
    sizes = [len(rows) for rows in batches]
    often = sorted(size for size in {*sizes} if sizes.count(size) > 1)
    size = int(rng.choice(often))
    first, second = [n for n, other in enumerate(sizes) if other == size][:2]
    batches[second] = batches[first]
    return first, second


def _params(rng: Any, width: int) -> dict[str, Any]:
    """The network's parameters on the last device: (16, width), (width,)."""
    shapes = {"w1": (FEATURES, width), "w2": (width,)}
    drawn = {k: rng.standard_normal(shape).astype("float32") / 4 for k, shape in shapes.items()}
    placed: dict[str, Any] = jax.device_put(drawn, jax.devices()[-1])
    return placed


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Serve all lists, one after another, in one process."""
    with observe.unwatched():
        watch = launches.Places()
        width = beyond(rng, int(rng.integers(*WIDTHS)), MOST_WIDTH, each=FEATURES)
        params = _params(rng, width)
    observe.fact(UNSEEN, watch.problem)
    factor = np.float32(10 ** rng.uniform(2, 4))
    observe.fact(FACTOR, float(factor))
    mean = float(rng.choice((-1, 1)) * rng.uniform(1.5, 3))
    given = [(params, _batches(rng, sizes, mean)) for sizes in _lists(rng)]
    lists = [[len(rows) for rows in batches] for _, batches in given]
    long = int(np.argmax([*map(len, lists)]))
    observe.fact(TWICE, [long + 1, *_put_twice(aside(rng), given[long][1])])
    told = [n for n, sizes in enumerate(lists) if len(sizes) < LONG[0] and sizes != [1]]
    again = int(rng.choice(told))  # a single row is its own mean: any params make 0 of it
    with observe.unwatched():
        others = _params(rng, width)
    apart = rng.spawn(1)[0]
    drawn = sorted({size for sizes in lists for size in sizes})
    many = beyond(rng, int(apart.integers(*LATER)), MOST_LISTS)
    later = [*apart.choice(drawn, many).tolist(), FEATURES]
    given += [(params, _batches(apart, [size], mean)) for size in later]
    some = [n for n, (_, (rows, *_)) in enumerate(given) if n >= len(lists) and len(rows) > 1]
    filled = int(apart.choice(some))
    renewed = 1 + int(aside(apart).choice([n for n in some if n <= filled]))
    observe.fact(RENEWED, renewed)
    given.append((params, [*given[filled][1]]))
    asked = [(batches, list(batches), [*map(np.copy, batches)]) for _, batches in given]
    given.append((others, given[again][1]))
    filled_again = [rows.copy() for rows in given[again][1]]
    sizes: dict[str, int] = {}
    served = []
    returned: list[tuple[Any, list[Any]]] = []
    for number, (params, batches) in enumerate(given, 1):
        if number == len(given) - 1:
            batches[0].flags.writeable = True
            batches[0][...] = _rows(apart, len(batches[0]), mean)
            asked[filled][2][0] = asked[number - 1][2][0] = batches[0].copy()
            if observe.reference:
                observe.value(f"{served_list(number)}, {FORMER}", list(returned[filled][1]))
        if number == len(given):
            batches[:] = filled_again
        if number == renewed:
            with observe.unwatched():
                if observe.reference:
                    ones = np.ones(len(batches[0]), np.float32)
                    old = factor * np.asarray(submission.network(params, batches[0], ones))
                    observe.value(f"{served_list(number)}, {OLD_PARAMS}", [old])
                params.update(_params(aside(apart), width))
        beside = _Beside(params, sizes)
        one, found = _serve(submission, observe, watch, beside, factor, number, batches)
        served.append(one)
        returned.append((found, [np.array(part) for part in found]))
    more = []
    for number, size in enumerate(one_row_more(served), len(given) + 1):
        beside, batches = _Beside(others, sizes), _batches(apart, [size], mean)
        one, _ = _serve(submission, observe, watch, beside, factor, number, batches)
        more.append(one)
    for one, (batches, mine, before) in zip(served, asked, strict=False):
        now = mine if batches is given[-1][1] else batches  # the list that came again
        one.changed = one.changed or (_changed(now, mine, before) and EMPTIED)
    for one, (found, before) in zip(served, returned, strict=True):
        one.overwritten = abs(len(found) - len(before))
        one.overwritten += sum(not _alike(*pair) for pair in zip(found, before, strict=False))
    observe.fact(SERVED, msgspec.to_builtins(served))
    observe.fact(SERVED_MORE, msgspec.to_builtins(more))


def _serve(
    submission: ModuleType,
    observe: Observe,
    watch: launches.Places,
    beside: "_Beside",
    factor: Any,
    number: int,
    batches: list[Any],
) -> tuple[Served, Any]:
    """Serve one list, and write down how; returns what `predict_all` returned, too."""
    calls: list[Call] = []
    answers: list[tuple[Any, Any, Any]] = []
    mine, before = list(batches), [np.array(rows) for rows in batches]
    held = dict(beside.params)
    sorted_batches = [_sorted(rows) for rows in before]

    def model(params: Any, rows: Any, mask: Any) -> Any:
        with observe.unwatched():
            calls.append(_counted(rows, mask, sorted_batches, {call.batch for call in calls}))
            counts = np.asarray(mask) != 0
            own = np.asarray(rows, np.float32)[counts]
        with beside.paused():
            found = submission.network(params, rows, mask)
            with observe.unwatched():
                answer = beside.known(_times(found, factor))
                answers.append((own, counts, answer))
                return answer

    refused = ""
    with beside.reading(), observe.phase(served_list(number)), watch.launched(beside.launched):
        try:
            found = submission.predict_all(model, beside.params, batches)
        except ValueError as error:
            if "read-only" not in str(error) or all(rows.flags.writeable for rows in mine):
                raise
            refused = REFUSED
            calls.clear()
            answers.clear()
            found = submission.predict_all(model, beside.params, [*map(np.copy, before)])
    if not isinstance(found, list | tuple) or len(found) != len(mine):
        rows = isinstance(found, list | tuple) and len(found) == sum(map(len, before))
        each = ", one entry for each row, not for each batch" * rows
        said = f"for a list of {plural(len(mine), 'batch')}, it returned {_what(found)}{each}"
        raise Misused(PROMISE, said)
    observe.value(served_list(number), list(found))
    sizes = [len(rows) for rows in before]
    made = _made(calls, answers, before, list(found))
    changed = _changed(batches, mine, before) or refused or _other_params(beside.params, held)
    return Served(sizes, calls, beside.rows, changed, made), found


def _made(
    calls: list[Call], answers: list[tuple[Any, Any, Any]], batches: list[Any], found: list[Any]
) -> int:
    """For how many batches a prediction is no number that `model` returned for such a row.

    `answers` holds for each call the rows that its mask counts, which they are, and the answer.
    """
    told: dict[tuple[int | None, bytes], list[float]] = {}
    for call, (own, counts, answer) in zip(calls, answers, strict=True):
        for row, number in zip(own, np.asarray(answer)[counts].tolist(), strict=True):
            told.setdefault((call.batch, row.tobytes()), []).append(number)

    def is_told(batch: int, row: Any, number: float) -> bool:
        return number in told.get((batch, row.tobytes()), [number])

    pairs = ((n, rows, part) for n, (rows, part) in enumerate(zip(batches, found, strict=True)))
    return sum(
        not all(is_told(n, *pair) for pair in zip(rows, np.ravel(part).tolist(), strict=False))
        for n, rows, part in pairs
    )


class _Beside:
    """Counts the rows that programs are given, or make themselves, beside those of `model`.

    The params and what `model` returned are no rows. Of each launch, the largest array counts: a
    mask goes with its rows. An array of any shape holds as many rows as its numbers suffice for,
    and a loop makes a row in each round. `sizes` gets the numbers of the largest array in the
    programs of a name, all that were compiled.
    """

    def __init__(self, params: Any, sizes: dict[str, int]) -> None:
        self.params, self._sizes = params, sizes
        self._paused = False
        self._known = {id(leaf): leaf for leaf in jax.tree.leaves(params)}
        self._launched: list[tuple[str, int]] = []

    @property
    def rows(self) -> int:
        """The rows of all launches so far."""
        numbers = (
            given if given >= FEATURES and name == NETWORK else max(given, self._sizes.get(name, 0))
            for name, given in self._launched
        )
        return sum(number // FEATURES for number in numbers)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A block whose programs are read."""
        with dumped.programs() as texts:
            yield
        for text in texts:
            name = dumped.name(text)
            looped = FEATURES * dumped.rounds(text)
            self._sizes[name] = max(self._sizes.get(name, 0), dumped.largest(text), looped)

    def known(self, array: Any) -> Any:
        """`array`, which does not count from now on."""
        self._known[id(array)] = array
        return array

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A block whose launches do not count."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def launched(self, name: str, _: list[str], given: Sequence[Any]) -> None:
        """Note one launch, and what the program is given."""
        if not self._paused:
            sizes = [np.size(array) for array in given if id(array) not in self._known]
            self._launched.append((dumped.bare(name), max(sizes, default=0)))


def _alike(predictions: Any, before: Any) -> bool:
    """Whether predictions are as they were."""
    return np.array_equal(predictions, before, equal_nan=True)


@jax.jit
def _times(found: Any, factor: Any) -> Any:
    return found * factor


def _what(found: Any) -> str:
    """What `predict_all` returned, if it is no list of the right length."""
    if isinstance(found, list | tuple):
        return f"a {type(found).__name__} of {len(found)}"
    if isinstance(found, jax.Array | np.ndarray):
        return f"one array of shape {found.shape}"
    return typed(type(found).__name__)


def _sorted(rows: Any) -> bytes:
    """The rows in an order of their own, as bytes."""
    rows = np.ascontiguousarray(rows, np.float32)
    found: bytes = rows[np.lexsort(rows.T)].tobytes()
    return found


def _changed(batches: list[Any], mine: list[Any], before: list[Any]) -> str:
    """What became of the list `batches`, or ""; it held the arrays `mine`, equal to `before`."""
    if len(batches) != len(mine):
        return f"`batches` has {len(batches)} arrays after the call, and had {len(mine)}"
    for index, (rows, own, old) in enumerate(zip(batches, mine, before, strict=True)):
        if rows is not own:
            return f"`batches[{index}]` is another array after the call, of shape {np.shape(rows)}"
        if not np.array_equal(rows, old):
            return f"`batches[{index}]` has other numbers or another shape after the call"
    return ""


def _other_params(params: dict[str, Any], held: dict[str, Any]) -> str:
    """What became of the dict `params`, or ""; it held these arrays."""
    if params.keys() != held.keys():
        return f"`params` has the names {', '.join(map(str, params))} after the call"
    other = next((name for name in held if params[name] is not held[name]), "")
    kind = typed(type(params[other]).__name__) if other else ""
    return f"`params['{other}']` is another array after the call, {kind}" if other else ""


def _same_numbers(rows: bytes, others: bytes) -> bool:
    """Whether rows hold the numbers of others, in whatever places."""
    mine, theirs = (np.sort(np.frombuffer(one, np.float32)) for one in (rows, others))
    return np.array_equal(mine, theirs)


def _counted(rows: Any, mask: Any, batches: list[bytes], before: set[int | None]) -> Call:
    """What one call of `model` gets; `batches` are those of the list, sorted.

    Of equal batches, it is one that no call `before` was about, if there is one.
    """
    if isinstance(mask, jax.core.Tracer) or isinstance(rows, jax.core.Tracer):
        raise Misused(
            "`model` is called with arrays: it counts their rows, and calls the jitted `network`",
            "it is called inside jit or vmap",
        )
    given, keep = np.asarray(rows), np.asarray(mask)
    if given.shape[1:] != (FEATURES,) or keep.shape != given.shape[:1]:
        shapes = f"rows of shape {given.shape} and a mask of shape {keep.shape}"
        of_padding = ": the rows of padding have a number in the mask, too"
        longer = (
            given.shape[1] - FEATURES if given.ndim == 2 and keep.shape == given.shape[:1] else 0
        )
        if 0 < longer == len(given) - np.count_nonzero(keep):
            shapes += f": each row has {longer} numbers more, as many as there are rows of padding"
        raise Misused(
            f"{MODEL}, with rows (n, {FEATURES}) and a mask (n,)",
            f"it is called with {shapes}{of_padding * (0 < keep.size < len(given))}",
        )
    counts = keep != 0
    found, why = _sorted(given[counts]), ""
    equal = [number for number, batch in enumerate(batches) if batch == found]
    batch = next((number for number in equal if number not in before), next(iter(equal), None))
    if batch is None and not given[counts].any():
        why = ZEROS
    elif batch is None and _sorted(given[counts[::-1]]) in batches:
        why = OTHER_END
    elif batch is None and any(_same_numbers(found, other) for other in batches):
        why = SCRAMBLED
    form = ", ".join(f"{x.dtype}{list(x.shape)}" for x in (given, keep))
    finite = bool(np.isfinite(given).all())
    return Call(len(given), int(np.sum(counts)), batch, why, finite, int(np.argmax(counts)), form)
