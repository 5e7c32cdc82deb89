"""Drives ex02_mixed_devices: has three runs taken, each on a device that is asked for.

Drawn: for each run the steps (2 to 29, and once 100 to 129), the device asked for (each device
at least once), the default device, the sizes, the numbers, and where each array lies: on one of
the devices, committed, or nowhere in particular, uncommitted. At least one array is committed to
another device than the one asked for, and at least one is uncommitted; in the first run, that
one too lies elsewhere. The drive keeps what
each call of `step` is given and returns: an array that lies in another buffer than before was
copied, even where no copy between devices was seen.
"""

from types import ModuleType
from typing import Any

import jax
import numpy as np

from grader.checks.ex02_mixed_devices import facts
from grader.checks.ex02_mixed_devices.facts import ROUNDS
from grader.probes.observe import Observe


def _homes(rng: Any, device: Any) -> list[Any]:
    """Where four arrays lie: one uncommitted, one on `device` and one elsewhere.

    Without one that is on `device`, a way round another device could cost nothing.
    """
    other = rng.choice([one for one in jax.devices() if one != device])
    last = rng.choice([None, *jax.devices()])
    homes: list[Any] = rng.permutation(np.array([None, device, other, last], object)).tolist()
    return homes


def _inputs(rng: Any, device: Any) -> tuple[Any, Any]:
    """Arrays and a state, float32, for a run on `device`.

    weights (n, n), bias (n,), scale (n,), state (rows, n).
    """
    n, rows = (int(size) for size in rng.integers(5, 30, 2))
    shapes = {"weights": (n, n), "bias": (n,), "scale": (n,), "state": (rows, n)}
    drawn = {k: rng.standard_normal(s).astype(np.float32) / 2 for k, s in shapes.items()}
    homes = dict(zip(shapes, _homes(rng, device), strict=True))
    placed = {name: jax.device_put(drawn[name], home) for name, home in homes.items()}
    state = placed.pop("state")
    return placed, state


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Have each run taken, and look at what each step is given."""
    devices = rng.permutation(jax.devices())[:2].tolist()
    devices = rng.permutation([*devices, rng.choice(jax.devices())]).tolist()
    numbers = [int(n) for n in rng.permutation([*rng.integers(2, 30, 2), rng.integers(100, 130)])]
    for target, steps, device in zip(ROUNDS, numbers, devices, strict=True):
        others = [one for one in jax.devices() if one != device]
        anywhere = others if target == ROUNDS[0] else jax.devices()
        with jax.default_device(rng.choice(anywhere)):
            _run(submission, observe, rng, target, steps, device)
    observe.fact(facts.STEPS, numbers)


def _run(
    submission: ModuleType, observe: Observe, rng: Any, target: str, steps: int, device: Any
) -> None:
    """Have one run taken."""
    with observe.unwatched():
        arrays, state = _inputs(rng, device)
    observe.value(facts.start(target), (arrays, state), data=False)
    given: list[Any] = []
    gave: list[Any] = []

    def step(arrays: Any, state: Any) -> Any:
        observe.mark()
        given.append((arrays, state))  # keeps them alive, so that no address comes twice
        gave.append(submission.layer(arrays, state))
        return gave[-1]

    with observe.phase(target):
        result = submission.run(step, arrays, state, steps, device)
    observe.value(facts.result(target), result)
    if len(gave) > 1:
        with observe.unwatched():
            observe.value(f"{facts.result(target)}, the state one step short", gave[-2])
    observe.fact(facts.calls(target), len(given))
    for call, arguments in zip(facts.kept_calls(steps), given, strict=False):
        observe.value(facts.given(target, call), arguments, data=False)
    observe.value(facts.gave(target), gave, data=False)
