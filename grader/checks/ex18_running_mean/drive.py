"""Drives ex18_running_mean: exports the mean for nine numbers of updates.

Drawn for each program are the size of `x`, its scale, and the number of updates. Six programs run:
1 to 40 updates for an `x` of the size 128 to 199, which lies on another device than the default
one, where there are two; 41 to 299 for one of 64 to 127, or 41 to 999 for one of 24 to 63; as many
as the rows of one of 24 to 63; exactly 1000; 301 to 2899; and 3000 to 8719, three times as many as
those or more.
So a mean over the first 1000, or a division by 1000, gives other numbers; and the number of updates
is odd at least once. Three more are compiled and not run: 41 to 8,999 updates for an `x` of the
size 64 to 2999; 9,000 to 3 million, of the size 24 to 2999; and 30 to 80 million, of the size 3000
to 3999. Memory that grows with the updates, however slowly, shows there. The last is left out where
a constant of the program grows with the updates. Of one with 1 to 4 million, for a small `x`, what
its loops carry and stack is read. The rates differ, so that the order of the updates counts, and
one in ten is 0. Either they let the states fall, in the end to a part between a third and a
fiftieth (in the shortest program, one of them is above 1, and turns the signs), or they have both
signs, so that the states neither grow nor fade: in the long program and in that of a thousand they
are up to 0.6 and down to -1.7, and in another one small. So each state has its share in the mean.
Where the file names numbers, the most updates that run are more than each of them that is below
MOST_UPDATES, the `x` of the fewest is larger, up to MOST_SIZE, that of 64 to 127 has more updates,
up to MOST_FEWER, and the largest scale and rate are larger, up to MOST_SCALE and MOST_RATE.
"""

import math
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from grader.checks.ex18_running_mean.facts import (
    AS_MANY,
    AS_ROWS,
    BY_NUMBER,
    DIVIDED,
    DONATED,
    EXCHANGED,
    FEWER,
    FIRST,
    FIRST_RATE,
    HALVED,
    HUGE,
    KEPT,
    KEPT_BY_LOOPS,
    LAST,
    LENGTHS,
    LONG,
    MORE,
    NAME,
    NUMBERED,
    NUMBERS,
    OF_THE_SUM,
    ONE_MORE,
    RATES,
    REPEATED,
    REVERSED,
    SHORT,
    SIZES,
    SKIPPED,
    SLOW,
    SMOOTHED,
    STUCK,
    THOUSAND,
    WEIGHTED,
    WITHOUT_FIRST,
    X,
    grows,
)
from grader.probes.observe import Observe
from grader.stages.drawn import Draw, among, beside, beyond, far, named, one_of

SIZE, LARGER, WIDE = (24, 64), (64, 128), (128, 200)
"""From which size of `x` on, and below which, programs run."""
LARGE, ABOVE_1 = (5, 100_000), (1.3, 2)
"""The scale of a large `x`, and rates above 1."""
MOST_UPDATES, MOST_FEWER, MOST_SIZE = 20_000, 2000, 512
MOST_SCALE, MOST_RATE = 1e12, 30
"""Up to where all these reach the numbers that the file names."""
SWING, LESS = 0.5, 0.05
"""How far the logarithm of a state goes up and down, where rates have both signs."""
MILLIONS = (1_000_000, 4_000_000)
"""How many updates a program has whose loops are looked at."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Export the mean; keep `x` and the last state, by which the checks recognise mistakes."""
    observe.without_trace()
    mean = submission.mean_of_updates
    if not observe.jitted(NAME, mean):
        return
    updates, lengths = _between(rng, 301, 2900), dict[str, int]()
    updates = one_of(rng, updates, range(1001, 2900))  # a thousand is the number of another one
    longer = beyond(rng, _between(rng, max(3000, 3 * updates), 8720), MOST_UPDATES)
    sizes, fewer = (LARGER, 300) if rng.integers(2) else (SIZE, 1000)
    scale = max(math.exp(rng.uniform(*map(math.log, LARGE))), far(rng, MOST_SCALE))
    some = _between(rng, 41, fewer) if named(rng) else 0
    sizes, some = (LARGER, beyond(rng, some, MOST_FEWER)) if some else (sizes, some)
    apart = beside(rng)
    square = _x(apart, apart.uniform(0.1, 3))
    arguments = {
        NAME: (_x(rng, scale), _falling(rng, updates)),
        SHORT: (_x(rng, rng.uniform(0.1, 3), WIDE), _above_1(rng, int(rng.integers(1, 41)))),
        LONG: (_x(rng, rng.uniform(0.001, 0.003)), _turning(rng, longer)),
        FEWER: (
            _x(rng, rng.uniform(0.1, 3), sizes),
            _odd_beside(updates, _turning(rng, some or _between(rng, 41, fewer), LESS)),
        ),
        THOUSAND: (_x(rng, rng.uniform(0.001, 0.003)), _turning(rng, 1000)),
        AS_MANY: (square, _turning(apart, len(square), LESS)),
        MORE[0]: _shapes(_between(rng, 64, 3000), _between(rng, 41, 9_000)),
        MORE[1]: _shapes(_between(rng, 24, 3000), _between(rng, 9_000, 3_000_000)),
        HUGE: _shapes(int(rng.integers(3000, 4000)), _between(rng, 30_000_000, 80_000_000)),
    }
    few, few_rates = arguments[SHORT]
    arguments[SHORT] = (jax.device_put(few, jax.devices()[-1]), few_rates)
    observe.fact(DONATED, _donates(mean, *arguments[SHORT]))
    with observe.unwatched():
        lengths[NAME], constants = _written(mean, *arguments[NAME])
        lengths[LONG], more = _written(mean, *arguments[LONG]) if lengths[NAME] else (0, 0)
    # What is written out would be compiled for minutes, or traced for hours, and so may be what
    # cannot be traced.
    names = (SHORT,) if grows(lengths) else tuple(arguments) if lengths[NAME] else (NAME,)
    for name in names:
        if name != HUGE or more <= constants:
            observe.program(name, mean, *arguments[name])
    observe.fact(LENGTHS, lengths)
    observe.fact(NUMBERED, more > constants)
    observe.fact(KEPT_BY_LOOPS, 0 if grows(lengths) else _kept_of_many(mean, rng))
    about = {
        name: [math.prod(x.shape) * x.dtype.itemsize, rates.shape[0]]
        for name, (x, rates) in arguments.items()
    }
    observe.fact(SIZES, about)
    if not observe.reference:
        return
    with observe.unwatched():
        for name in (NAME, LONG, SHORT, FEWER):
            # On a GPU, twenty loops for each would take a minute.
            there = jax.device_put(arguments[name], jax.devices("cpu")[0])
            known = jax.jit(partial(_known, submission.update))(*there)
            for word, value in known.items():
                observe.value(f"{word} of {name}", value)


def _known(update: Any, x: Any, rates: Any) -> dict[str, Any]:
    """What the checks recognise known mistakes by: states, and sums of states."""

    def add(carry: Any, rate: Any) -> Any:
        state, total = carry
        state = update(state, rate)
        return (state, total + state), None

    def add_otherwise(carry: Any, rate: Any) -> Any:
        state, weighted, halved, divided = carry
        state = update(state, rate)
        divided = (divided + state) / len(rates)
        return (state, weighted + rate * state, (halved + state) / 2, divided), None

    def smooth(carry: Any, rate: Any) -> Any:
        state = update(carry[0], rate)
        return (
            state,
            [k * mean + (1 - k) * state for k, mean in zip(KEPT, carry[1], strict=True)],
        ), None

    def add_to_x(total: Any, rate: Any) -> Any:
        return total + update(x, rate), None

    def add_to_itself(total: Any, rate: Any) -> Any:
        return total + update(total, rate), None

    def creep(carry: Any, rate: Any) -> Any:
        state = update(carry[0], rate)
        return (state, carry[1] + (state - carry[1]) / len(rates)), None

    def exchange(carry: Any, rate: Any) -> Any:
        return add(carry, rate)[0][::-1], None

    def unpack_exchanged(carry: Any, rate: Any) -> Any:
        return add(carry[::-1], rate)

    def run(rates: Any, body: Any = add) -> Any:
        return jax.lax.scan(body, (x, 0 * x), rates)[0]

    smoothed = jax.lax.scan(smooth, (x, [0 * x for _ in KEPT]), rates)[0][1]
    start = (x, 0 * x, 0 * x, 0 * x)
    last, weighted, halved, divided = jax.lax.scan(add_otherwise, start, rates)[0]
    return {
        X: x,
        FIRST: update(x, rates[0]),
        LAST: last,
        WEIGHTED: weighted,
        HALVED: halved,
        DIVIDED: divided,
        RATES: jnp.sum(rates) + 0 * x,
        WITHOUT_FIRST: run(rates[1:])[1],
        FIRST_RATE: run(0 * rates + rates[0])[1],
        ONE_MORE: run(jnp.append(rates, rates[-1:]))[1],
        BY_NUMBER: run(jnp.arange(len(rates)))[1],
        OF_THE_SUM: jax.lax.scan(add_to_itself, x, rates)[0],
        STUCK: jax.lax.scan(add_to_x, 0 * x, rates)[0],
        REVERSED: run(rates[::-1])[1],
        EXCHANGED[0]: run(rates, exchange)[1],
        EXCHANGED[1]: run(rates, unpack_exchanged)[1],
        REPEATED: run(jnp.append(rates[:1], rates[:-1]))[1],
        SLOW: run(rates, creep)[1],
        AS_ROWS: run(rates[jnp.minimum(jnp.arange(len(x)), len(rates) - 1)])[1],
        SKIPPED: run(jnp.append(rates[1:], rates[-1:]))[1],
        **dict(zip(SMOOTHED, smoothed, strict=True)),
    }


def _x(rng: Any, scale: float, sizes: tuple[int, int] = SIZE) -> Any:
    size = among(rng, sizes)
    if sizes == WIDE:
        sides = (math.sqrt(number / part) for number in named(rng) for part in (1, 4))
        size = beyond(Draw(rng.bit_generator, (*named(rng), *sides)), size, MOST_SIZE)
    return jax.device_put((scale * rng.standard_normal((size, size))).astype("float32"))


def _falling(rng: Any, updates: int) -> Any:
    """Rates that let the states fall, but of many updates not to nothing."""
    most = min(0.05, rng.uniform(2, 7) / updates)
    rates = rng.uniform(0.2, 1, updates) * most * _counts(rng, updates)
    return jax.device_put(rates.astype("float32"))


def _above_1(rng: Any, updates: int) -> Any:
    """Rates as those of `_falling`, but for one."""
    rates = np.array(_falling(rng, updates))
    rates[int(rng.integers(updates))] = max(rng.uniform(*ABOVE_1), far(rng, MOST_RATE))
    return jax.device_put(rates)


def _turning(rng: Any, updates: int, swing: float = SWING) -> Any:
    """Rates that let states rise and fall: their logarithm by up to `swing`.

    A small state is multiplied by 1 - rate, for tanh adds next to nothing to it. To a large one it
    adds little where rates are small.
    """
    stands = np.where([True, *_counts(rng, updates)], np.arange(updates + 1), 0)
    walk = rng.uniform(-swing, swing, updates + 1)[np.maximum.accumulate(stands)]
    return jax.device_put((1 - np.exp(np.diff(walk))).astype("float32"))


def _odd_beside(others: int, rates: Any) -> Any:
    """The rates; if these and `others` are both even numbers of updates, the first one twice."""
    even = others % 2 == 0 and rates.size % 2 == 0
    return jax.device_put(np.insert(rates, 0, rates[0])) if even else rates


def _counts(rng: Any, updates: int) -> Any:
    """Which rates are not 0: of ten or more all but one in ten, and the first and the last."""
    found = rng.random(updates) >= (0.1 if updates >= 10 else 0)
    found[[0, -1]] = True
    return found


def _between(rng: Any, fewest: int, most: int) -> int:
    """A number of updates, from `fewest` and below `most`; each magnitude is as likely."""
    return int(math.exp(rng.uniform(math.log(fewest), math.log(most))))


def _shapes(size: int, updates: int) -> tuple[Any, Any]:
    """Shapes of `x` and of the rates alone, for a program that is not run."""
    like: Any = jax.ShapeDtypeStruct
    return like((size, size), "float32"), like((updates,), "float32")


def _donates(mean: Any, x: Any, rates: Any) -> bool:
    """Whether an argument of the mean is donated, so that each call deletes it."""
    try:
        given = mean.lower(x, rates).args_info
    except Exception:  # noqa: BLE001 (whatever is raised, the exported program reports it)
        return False
    return any(argument.donated for argument in jax.tree.leaves(given))


def _traced(mean: Any, x: Any, rates: Any) -> Any:
    """The closed jaxpr of the mean; an empty one if it cannot be traced."""
    try:
        return mean.trace(x, rates).jaxpr
    except Exception:  # noqa: BLE001 (whatever is raised, the exported program reports it)
        return jax.make_jaxpr(lambda: ())()


def _written(mean: Any, x: Any, rates: Any) -> tuple[int, int]:
    """How many operations a program is written in, and the bytes of its constants.

    Both are 0 if it cannot be traced.
    """
    traced = _traced(mean, x, rates)
    return _length(traced.jaxpr), sum(const.nbytes for const in traced.consts)


def _kept_of_many(mean: Any, rng: Any) -> int:
    """How many arrays like a small `x` a loop keeps, for millions of updates."""
    size = int(rng.integers(*SIZE))
    traced = _traced(mean, *_shapes(size, int(rng.integers(*MILLIONS))))
    return _kept(traced.jaxpr) // size**2


def _kept(jaxpr: Any) -> int:
    """The numbers that a loop of a program carries, or stacks, at most.

    Left out are what is stacked one by one, since a loop may number its rounds, and what is carried
    in one row, as the rates are.
    """
    found = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("scan", "while"):
            carried = equation.params.get("num_carry", len(equation.outvars))
            rounds = equation.params.get("length", 1)
            outs = [out.aval for out in equation.outvars]
            kept = [out.size for out in outs[:carried] if out.ndim != 1]
            kept += [out.size for out in outs[carried:] if out.size > NUMBERS * rounds]
            found = max(found, sum(kept))
        found = max(found, *map(_kept, _inner(equation)), 0)
    return found


def _length(jaxpr: Any) -> int:
    """How many operations a program is written in: those in a loop once."""
    found = len(jaxpr.eqns)
    for equation in jaxpr.eqns:
        found += sum(map(_length, _inner(equation)))
    return found


def _inner(equation: Any) -> Iterator[Any]:
    """The programs that an operation runs, such as the body of a loop."""
    for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
        if _is_jaxpr(inner):
            yield getattr(inner, "jaxpr", inner)


def _is_jaxpr(value: object) -> bool:
    return hasattr(getattr(value, "jaxpr", value), "eqns")
