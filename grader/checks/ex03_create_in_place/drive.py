"""Drives ex03_create_in_place: creates two layers, each on its own device, and then three more.

Drawn: the default device, the two devices, neither of which is the default one, the keys, of which
one begins with 0, as that of a small seed does, and one ends with 2**31 or more, and the numbers of
rows, 1 to 7 for one layer. They differ: JAX logs no copy for a jitted call whose arguments have the
shapes of an earlier call. The third layer is like the first one, but for its key: what is kept of
an earlier layer does not fit it, and a number that only its programs hold came from its key. The
second one's device is the default one then. The fourth has the third one's key, and another number
of rows. The fifth call is the fourth one again, with the same key, rows and device: its arrays are
new ones all the same, and so are those of one more such call.

A copy is not the only way from the host: an array made by NumPy inside a jitted function becomes a
constant of the program, and reaches the device with it. So the constants of all compiled programs
are listed, of whatever type and shape, tables and single numbers; those of the reference are the
ones that JAX needs. The texts also tell whether a program uses memory of the host. On which devices
programs run is watched, and what they are given: an array that one got, and that is equal to one
that is returned, lay in another place before. One that a program got, and that was deleted before
`create` returned, is counted if nothing that is returned lies where it lay. What the file made when
it was imported lies somewhere else: the bytes of such arrays are counted before the first layer.
Once a layer is made, the bytes of all other arrays are counted that were made with it. The layers
are looked at when all are made, in which order their dimensions lie in memory, whether two of them
share an array, and what the default device is after a call. Where the file names numbers, the layer
with most rows has more than each of them that is below MOST_ROWS, others have just so many, and the
fifth layer is made again and again.
"""

import re
from collections import OrderedDict
from collections.abc import Sequence
from math import prod
from types import ModuleType
from typing import Any

import jax
import numpy as np

from grader.checks.ex03_create_in_place import facts
from grader.checks.ex03_create_in_place.facts import (
    ROUNDS,
    default_left,
    deleted,
    made_twice,
    numbers,
    programs,
    ran_on,
    shared,
    spare,
    through_host,
    turned,
)
from grader.probes import alive, dumped, launches
from grader.probes.describe import address, in_other_order
from grader.probes.observe import Observe
from grader.stages.drawn import among, beside, beyond

_CONSTANT = re.compile(r"constant(?: dense)?<(.*?)> : tensor<((?:\d+x)*)")
ROWS, BETWEEN = ((1, 8), (1000, 4100)), (8, 1000)
"""From how many rows on, and below how many, the layers have, and the last two."""
MOST_ROWS, MOST_CALLS = 20_000, 40
"""Up to where rows, and calls, reach the numbers that the file names."""
OF_JAX = "_identity_fn"
"""The program in which jnp.asarray(array, device=...) ends, which is given that array alone."""
MAX_LISTED, MAX_SHOWN = 300, 60
"""How many constants are listed, and how many characters of each."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Create layers, and read the programs that JAX compiles for them."""
    observe.fact(facts.MADE_BEFORE, alive.nbytes())
    default, one, two = rng.permutation(jax.devices())[:3]
    few, many = (_rows(rng, span) for span in rng.permutation(ROWS).tolist())
    between = _rows(rng, BETWEEN)
    words = rng.integers(1 << 20, 1 << 30, (3, 2), dtype=np.uint32)
    words[rng.integers(len(words)), 0] = 0
    words[beside(rng).integers(len(words)), 1] |= 1 << 31
    with observe.unwatched():
        watch = launches.Places()
        pairs = zip(words, (one, two, one), strict=True)
        keys = [jax.device_put(jax.random.wrap_key_data(pair), device) for pair, device in pairs]
    observe.fact(facts.UNSEEN, watch.problem)
    layers = [(default, one, few, 0), (default, two, many, 1), (two, one, few, 2)]
    layers += [(rng.choice([default, two]), one, between, 2)] * 2
    made, calls = [], beyond(rng, len(ROUNDS), MOST_CALLS)
    observe.fact(facts.CALLS, calls)
    for name, (elsewhere, device, rows, key) in zip(ROUNDS, layers, strict=True):
        observe.fact(facts.key(name), words[key].tolist())
        usual = jax.config.jax_default_device
        with jax.default_device(elsewhere):
            times = 1 if name != ROUNDS[-1] else 1 + calls - len(ROUNDS)
            made.append(_create(submission, observe, name, keys[key], device, rows, watch, times))
            left = jax.config.jax_default_device
        now = jax.config.jax_default_device
        if (left, now) != (elsewhere, usual):
            jax.config.update("jax_default_device", usual)
            observe.fact(default_left(name), True)
    for index, (name, created) in enumerate(zip(ROUNDS, made, strict=True)):
        observe.value(name, created)
        with observe.unwatched():
            observe.fact(shared(name), _shared(created, made[:index]))
            observe.fact(turned(name), in_other_order(created))
    elsewhere, device, rows, key = layers[-1]
    with observe.unwatched(), jax.default_device(elsewhere):
        again = submission.create(keys[key], rows, device)
        observe.fact(shared(facts.ONCE_MORE), _shared(again, made))


def _rows(rng: Any, span: Sequence[int]) -> int:
    """The rows of a layer: just so many as the file names, or more if it has most."""
    rows = among(rng, span, each=16)
    return rows if span[0] < ROWS[-1][0] else beyond(rng, rows, MOST_ROWS, each=16)


def _create(
    submission: ModuleType,
    observe: Observe,
    name: str,
    key: Any,
    device: Any,
    rows: int,
    watch: launches.Places,
    times: int,
) -> Any:
    """The layer of the last of so many calls; all of them are watched."""
    ran, given, lay = set[str](), list[Any](), list[dict[int, int]]()

    def launched(program: str, devices: Sequence[str], arrays: Sequence[Any]) -> None:
        ran.update(devices)
        own = OF_JAX in program and len(arrays) == 1
        found = [one for one in arrays if isinstance(one, jax.Array) and not own]
        given.extend(found)
        lay.extend(map(alive.memory, found))

    with observe.unwatched():
        before = alive.memory()
    with dumped.programs() as texts, watch.launched(launched), observe.phase(name):
        for _ in range(times):
            created = submission.create(key, rows, device)
    if type(created) is OrderedDict:
        created = dict(created)  # its arrays are the same; only their order may be another
    observe.fact(programs(name), len(texts))
    observe.fact(numbers(name), _numbers("".join(texts)))
    observe.fact(through_host(name), any(map(dumped.uses_the_host, texts)))
    observe.fact(ran_on(name), sorted(ran))
    with observe.unwatched():
        observe.fact(made_twice(name), _made_twice(given, created))
        observe.fact(deleted(name), _deleted(given, lay, {*before, *alive.memory(created)}))
        observe.fact(spare(name), alive.left_elsewhere(created, before))
    return created


def _shared(created: Any, earlier: Sequence[Any]) -> list[str]:
    """The path of an array of a layer that an earlier one has, too, and its path there."""
    for one in earlier:
        if both := alive.in_one_memory({"earlier": one, "now": created}):
            return [path.partition("]")[2] for path in both[::-1]]
    return []


def _deleted(given: Sequence[Any], lay: Sequence[dict[int, int]], known: set[int]) -> int:
    """The bytes of deleted arrays that programs were given, in other memory than what is `known`.

    `lay` says where each of them lay. What a donated array became may lie in its memory.
    """
    pairs = zip(given, lay, strict=True)
    gone: dict[int, int] = {}
    for array, places in pairs:
        if array.is_deleted() and not places.keys() & known:
            gone |= places
    return sum(gone.values())


def _made_twice(given: Sequence[Any], created: Any) -> list[str]:
    """The paths of arrays that lie elsewhere than an equal one, which a program was given."""
    return [
        jax.tree_util.keystr(path)
        for path, leaf in jax.tree_util.tree_leaves_with_path(created)
        if isinstance(leaf, jax.Array) and any(_copied(one, leaf) for one in given)
    ]


def _copied(old: Any, new: Any) -> bool:
    """Whether both arrays hold the same numbers in two places."""
    if old.is_deleted() or new.is_deleted() or (old.shape, old.dtype) != (new.shape, new.dtype):
        return False
    if address(old.addressable_data(0)) == address(new.addressable_data(0)):
        return False
    return bool(np.array_equal(old, new))


def _numbers(programs: str) -> list[list[str | int]]:
    """The different constants of programs: how each begins, and how many numbers it holds.

    One number for all of an array is a single one.
    """
    found = {
        (text, prod(map(int, sizes.split("x")[:-1]))) for text, sizes in _CONSTANT.findall(programs)
    }
    tables = {(text[:MAX_SHOWN], size if text[:1] in '["(' else 1) for text, size in found}
    return [[text, size] for text, size in sorted(tables)[:MAX_LISTED]]
