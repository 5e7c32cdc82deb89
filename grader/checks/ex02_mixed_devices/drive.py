"""Drives ex02_mixed_devices: has four runs taken, each on a device that is asked for.

Drawn: for each run the steps (2 to 29, and once 100 to 129), the device asked for (two devices at
least once each, and one of them twice), the default device (always another one), the numbers, the
sizes (the same on one device), and where each array lies. In each run one array lies on the device
asked for, two are committed to others, and one is uncommitted, on the default device; over the four
runs, each array takes each of these places.
The drive keeps what each call of `step` is given and returns: an array that lies in another buffer
than before was copied, even where no copy between devices was seen.
"""

from types import ModuleType
from typing import Any

import jax
import numpy as np

from grader.checks.ex02_mixed_devices import facts
from grader.checks.ex02_mixed_devices.facts import ROUNDS, argument
from grader.judging.words import where
from grader.probes import dumped
from grader.probes.describe import describe
from grader.probes.observe import Observe


def _inputs(rng: Any, sizes: Any, homes: list[Any]) -> tuple[Any, Any]:
    """Arrays and a state, float32, where `homes` says; None is uncommitted.

    weights (n, n), bias (n,), scale (n,), state (rows, n).
    """
    n, rows = map(int, sizes)
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
    more = [rng.choice(devices), rng.choice(jax.devices())]
    devices = rng.permutation([*devices, *more]).tolist()
    sizes = {device: rng.integers(5, 30, 2) for device in devices}
    numbers = [int(n) for n in rng.permutation([*rng.integers(2, 30, 3), rng.integers(100, 130)])]
    through = 0
    order, turns = rng.permutation(len(ROUNDS)), rng.permutation(len(ROUNDS))
    for target, steps, device, turn in zip(ROUNDS, numbers, devices, turns, strict=True):
        others = [one for one in jax.devices() if one != device]
        places = [None, device, *rng.choice(others, 2)]
        homes = [places[(place + turn) % len(places)] for place in order]
        with jax.default_device(rng.choice(others)), dumped.programs() as texts:
            with observe.unwatched():
                inputs = _inputs(rng, sizes[device], homes)
            _run(submission, observe, target, steps, device, inputs)
        through += sum(map(dumped.uses_the_host, texts))
    observe.fact(facts.THROUGH_HOST, through)
    observe.fact(facts.STEPS, numbers)


def _run(
    submission: ModuleType, observe: Observe, target: str, steps: int, device: Any, inputs: Any
) -> None:
    """Have one run taken."""
    arrays, state = inputs
    observe.value(facts.start(target), (arrays, state), data=False)
    given: list[Any] = []
    gave: list[Any] = []

    def step(arrays: Any, state: Any) -> Any:
        observe.mark()
        given.append((arrays, state))  # keeps them alive, so that no address comes twice
        try:
            gave.append(submission.layer(arrays, state))
        except ValueError as error:
            with observe.unwatched():
                error.add_note(_elsewhere((arrays, state), device))
            raise
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


def _elsewhere(given: Any, device: Any) -> str:
    """Which arrays of those that a step is given are committed to another device, in words."""
    asked = f"{device.platform}:{device.id}"
    leaves, _ = describe(given, data=False)
    left = [leaf for leaf in leaves if leaf.committed and where(leaf) != asked]
    listed = ", ".join(f"{argument(leaf)} on {where(leaf)}" for leaf in left)
    return f"`device` is {asked}, and the step was given {listed}"
