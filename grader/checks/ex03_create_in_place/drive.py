"""Drives ex03_create_in_place: creates two layers, each on a device of its own, and then two more.

Drawn: the default device, the two devices, neither of which is the default one, the keys, and the
numbers of rows. They differ: JAX logs no copy for a jitted call whose arguments have the shapes of
an earlier call. The third layer is like the first one, but for its key: what is kept of an earlier
layer does not fit it, and a number that only its programs hold came from its key. The second one's
device is the default one then. The fourth has the third one's key, and another number of rows.

A copy is not the only way from the host: an array made by NumPy inside a jitted function
becomes a constant of the program, and reaches the device with it. So the constants of all compiled
programs are listed, of whatever type and shape, tables and single numbers; those of the reference
are the ones that JAX needs. The texts also tell whether a program uses memory of the host. On which
devices programs run is watched. What the file made when it was imported lies somewhere else: the
bytes of such arrays are counted before the first layer.
"""

import re
from collections import OrderedDict
from math import prod
from types import ModuleType
from typing import Any

import jax
import numpy as np

from grader.checks.ex03_create_in_place import facts
from grader.checks.ex03_create_in_place.facts import (
    ROUNDS,
    numbers,
    programs,
    ran_on,
    through_host,
)
from grader.probes import alive, dumped, launches
from grader.probes.observe import Observe

_CONSTANT = re.compile(r"constant(?: dense)?<(.*?)> : tensor<((?:\d+x)*)")
ROWS, BETWEEN = ((20, 60), (1000, 3000)), (60, 1000)
"""From how many rows on, and below how many, the layers have, and the last one."""
MAX_LISTED, MAX_SHOWN = 300, 60
"""How many constants are listed, and how many characters of each."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Create layers, and read the programs that JAX compiles for them."""
    observe.fact(facts.MADE_BEFORE, alive.nbytes())
    default, one, two = rng.permutation(jax.devices())[:3]
    few, many = (int(rng.integers(*span)) for span in rng.permutation(ROWS))
    between = int(rng.integers(*BETWEEN))
    words = rng.integers(1 << 20, 1 << 30, (3, 2), dtype=np.uint32)
    with observe.unwatched():
        watch = launches.Places()
        pairs = zip(words, (one, two, one), strict=True)
        keys = [jax.device_put(jax.random.wrap_key_data(pair), device) for pair, device in pairs]
    observe.fact(facts.UNSEEN, watch.problem)
    layers = [(default, one, few, 0), (default, two, many, 1), (two, one, few, 2)]
    layers.append((rng.choice([default, two]), one, between, 2))
    for name, (elsewhere, device, rows, key) in zip(ROUNDS, layers, strict=True):
        observe.fact(facts.key(name), words[key].tolist())
        with jax.default_device(elsewhere):
            _create(submission, observe, name, keys[key], device, rows, watch)


def _create(
    submission: ModuleType,
    observe: Observe,
    name: str,
    key: Any,
    device: Any,
    rows: int,
    watch: launches.Places,
) -> None:
    with dumped.programs() as texts, watch.seen() as ran, observe.phase(name):
        created = submission.create(key, rows, device)
    if type(created) is OrderedDict:
        created = dict(created)  # its arrays are the same; only their order may be another
    observe.value(name, created)
    observe.fact(programs(name), len(texts))
    observe.fact(numbers(name), _numbers("".join(texts)))
    observe.fact(through_host(name), any(map(dumped.uses_the_host, texts)))
    observe.fact(ran_on(name), sorted(ran))


def _numbers(programs: str) -> list[list[str | int]]:
    """The different constants of programs: how each begins, and how many numbers it holds.

    One number for all of an array is a single one.
    """
    found = {
        (text, prod(map(int, sizes.split("x")[:-1]))) for text, sizes in _CONSTANT.findall(programs)
    }
    tables = {(text[:MAX_SHOWN], size if text[:1] in '["(' else 1) for text, size in found}
    return [[text, size] for text, size in sorted(tables)[:MAX_LISTED]]
