"""Drives ex03_create_in_place: creates two layers, each on a device of its own.

Drawn: the default device, the two devices, neither of which is the default one, the keys, and the
numbers of rows. They differ: JAX logs no copy for a jitted call whose arguments have the shapes of
an earlier call.

A copy is not the only way from the host: an array made by NumPy inside a jitted function
becomes a constant of the program, and reaches the device with it. So the texts of all compiled
programs are searched for tables, of whatever type and shape, whole or in pieces, and for numbers
that stand there one by one. They also tell on how many devices each program runs.
"""

import re
from collections import OrderedDict
from math import prod
from types import ModuleType
from typing import Any

import jax

from grader.checks.ex03_create_in_place.facts import ROUNDS, programs, spread, tables
from grader.probes import dumped
from grader.probes.observe import Observe

TABLE = 16
"""So many numbers in different constants were made by the host. JAX's random numbers need 8."""
SINGLE = 20
"""The smallest number of rows. About so many integers, one by one, may be `order`."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Create two layers of different sizes, and read the programs that JAX compiles for them."""
    default, *devices = rng.permutation(jax.devices())[: 1 + len(ROUNDS)]
    sizes = rng.choice(range(SINGLE, 60), len(ROUNDS), replace=False)
    for name, device, rows in zip(ROUNDS, devices, sizes, strict=True):
        with jax.default_device(default):
            _create(submission, observe, rng, name, device, int(rows))


def _create(
    submission: ModuleType, observe: Observe, rng: Any, name: str, device: Any, rows: int
) -> None:
    with observe.unwatched():
        key = jax.device_put(jax.random.key(int(rng.integers(1 << 30))), device)
    with dumped.programs() as texts, observe.phase(name):
        created = submission.create(key, rows, device)
    if type(created) is OrderedDict:
        created = dict(created)  # its arrays are the same; only their order may be another
    observe.value(name, created)
    observe.fact(programs(name), len(texts))
    observe.fact(tables(name), _hold_table("".join(texts)))
    observe.fact(spread(name), max(map(_devices, texts), default=0))


def _hold_table(programs: str) -> bool:
    """Whether programs hold a table that the host must have made: whole, or in pieces."""
    pieces = set(re.findall(r'dense<(["\[(][^>]*)> : tensor<((?:\d+x)+)', programs))
    single = set(re.findall(r"dense<(\d+)(?:\.0+e\+00)?> : tensor<(?:1x)*[a-z]+\d+>", programs))
    in_pieces = sum(prod(map(int, sizes.split("x")[:-1])) for _, sizes in pieces)
    return in_pieces >= TABLE or len(single & {str(n) for n in range(SINGLE)}) >= SINGLE - 4


def _devices(program: str) -> int:
    """On how many devices a program runs."""
    counts = re.findall(r"mhlo.num_(?:partitions|replicas) = (\d+)", program)
    return prod(map(int, counts))
