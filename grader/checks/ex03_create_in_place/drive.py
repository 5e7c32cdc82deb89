"""Drives ex03_create_in_place: creates two layers, each on a device of its own.

Drawn: the default device, the two devices, neither of which is the default one, the keys, and the
numbers of rows. They differ: JAX logs no copy for a jitted call whose arguments have the shapes of
an earlier call.

A copy is not the only way from the host: an array made by NumPy inside a jitted function
becomes a constant of the program, and reaches the device with it. So the text of every
compiled program is searched for tables, of whatever type and shape.
"""

import re
from collections import OrderedDict
from math import prod
from types import ModuleType
from typing import Any

import jax

from grader.checks.ex03_create_in_place.facts import ROUNDS, programs, tables
from grader.probes import dumped
from grader.probes.observe import Observe

TABLE = 8
"""A constant of so many numbers that are not all alike was made by the host."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Create two layers of different sizes, and read the programs that JAX compiles for them."""
    default, *devices = rng.permutation(jax.devices())[: 1 + len(ROUNDS)]
    sizes = rng.choice(range(20, 60), len(ROUNDS), replace=False)
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
    observe.fact(tables(name), sum(map(_holds_table, texts)))


def _holds_table(program: str) -> bool:
    """Whether a program holds a constant of several numbers, which the host must have made.

    JAX's own random numbers need tables of 4.
    """
    found = re.findall(r'dense<["\[][^>]*> : tensor<((?:\d+x)+)', program)
    return any(prod(map(int, sizes.split("x")[:-1])) >= TABLE for sizes in found)
