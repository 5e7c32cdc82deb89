"""Drives ex02_mixed_devices: has four runs taken, each on a device that is asked for.

Drawn: for each run the steps (2 to 29, and once 100 to 129), the device asked for (two devices at
least once each), the default device (always another one), the sizes, the numbers, and where each
array lies. In each run one array lies on the device asked for, two are committed to others, and one
is uncommitted, on the default device; over the four runs, each array takes each of these places.
The drive keeps what each call of `step` is given and returns: an array that lies in another buffer
than before was copied, even where no copy between devices was seen.
"""

from types import ModuleType
from typing import Any

import jax
import numpy as np

from grader.checks.ex02_mixed_devices import facts
from grader.checks.ex02_mixed_devices.facts import ROUNDS
from grader.probes import dumped
from grader.probes.observe import Observe


def _inputs(rng: Any, homes: list[Any]) -> tuple[Any, Any]:
    """Arrays and a state, float32, where `homes` says; None is uncommitted.

    weights (n, n), bias (n,), scale (n,), state (rows, n).
    """
    n, rows = (int(size) for size in rng.integers(5, 30, 2))
    shapes = {"weights": (n, n), "bias": (n,), "scale": (n,), "state": (rows, n)}
    drawn = {k: rng.standard_normal(s).astype(np.float32) / 2 for k, s in shapes.items()}
    placed = {
        name: jax.device_put(drawn[name], home) for name, home in zip(shapes, homes, strict=True)
    }
    state = placed.pop("state")
    return placed, state


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Have each run taken, and look at what each step is given."""
    devices = rng.permutation(jax.devices())[:2].tolist()
    devices = rng.permutation([*devices, *rng.choice(jax.devices(), 2)]).tolist()
    numbers = [int(n) for n in rng.permutation([*rng.integers(2, 30, 3), rng.integers(100, 130)])]
    through = 0
    order, turns = rng.permutation(len(ROUNDS)), rng.permutation(len(ROUNDS))
    for target, steps, device, turn in zip(ROUNDS, numbers, devices, turns, strict=True):
        others = [one for one in jax.devices() if one != device]
        places = [None, device, *rng.choice(others, 2)]
        homes = [places[(place + turn) % len(places)] for place in order]
        with jax.default_device(rng.choice(others)), dumped.programs() as texts:
            _run(submission, observe, rng, target, steps, device, homes)
        through += sum(map(dumped.uses_the_host, texts))
    observe.fact(facts.THROUGH_HOST, through)
    observe.fact(facts.STEPS, numbers)


def _run(
    submission: ModuleType, observe: Observe, rng: Any, target: str, steps: int, device: Any,
    homes: list[Any],
) -> None:  # fmt: skip
    """Have one run taken."""
    with observe.unwatched():
        arrays, state = _inputs(rng, homes)
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
