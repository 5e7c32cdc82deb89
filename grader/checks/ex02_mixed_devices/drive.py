"""Drives ex02_mixed_devices: has five runs taken, each on a device that is asked for.

Drawn: for each run the steps (once 1, once 100 to 129, else 2 to 29), the device asked for (at
least two, and one of them twice), the default device (once the one asked for, else another one),
the numbers, the sizes (the same on one device), and where each array lies. In each run one array
lies on the device asked for, one is committed to another, one is uncommitted, on the default
device, and one is as any of these. Over the other four runs, each array takes each of these places.
The drive keeps what each call of `step` is given and returns: an array that lies in another buffer
than before was copied, even where no copy between devices was seen. It counts what programs are
given beside the steps, before the first one only where it lies on the device asked for: they may
copy what no step gets.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import jax
import numpy as np

from grader.checks.ex02_mixed_devices import facts
from grader.checks.ex02_mixed_devices.facts import ROUNDS, argument
from grader.judging.words import where
from grader.probes import dumped, launches
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
    more = [rng.choice(devices), rng.choice(jax.devices()), rng.choice(devices)]
    devices = rng.permutation([*devices, *more]).tolist()
    sizes = {device: rng.integers(5, 30, 2) for device in devices}
    numbers = [
        int(n) for n in rng.permutation([1, *rng.integers(2, 30, 3), rng.integers(100, 130)])
    ]
    through, runs = 0, list[_Run]()
    with observe.unwatched():
        programs = launches.Places()
    order, turns = rng.permutation(4), rng.permutation(4).tolist()
    fourths = rng.permutation([0, 1, 2, 2]).tolist()
    by_default = int(rng.integers(len(ROUNDS)))
    turns.insert(by_default, rng.integers(4))
    fourths.insert(by_default, rng.integers(3))
    for index, (target, steps, device) in enumerate(zip(ROUNDS, numbers, devices, strict=True)):
        others = [one for one in jax.devices() if one != device]
        default = device if index == by_default else rng.choice(others)
        places = [None, device, rng.choice(others)]
        places.append(places[fourths[index]])
        homes = [places[(place + turns[index]) % 4] for place in order]
        with jax.default_device(default), dumped.programs() as texts:
            with observe.unwatched():
                inputs = _inputs(rng, sizes[device], homes)
            run = _Run(submission, observe, device)
            with programs.launched(run.launched):
                run.take(target, steps, inputs)
        runs.append(run)
        through += sum(map(dumped.uses_the_host, texts))
    observe.fact(facts.THROUGH_HOST, through)
    observe.fact(facts.BESIDE, [run.beside for run in runs])
    observe.fact(facts.BEFORE, [run.before for run in runs])
    observe.fact(facts.CHANGED, [run.changed for run in runs])
    observe.fact(facts.UNSEEN, programs.problem)
    observe.fact(facts.STEPS, numbers)


class _Run:
    """Has one run taken on a device; counts arrays that other programs than steps got.

    `before` counts those before the first step which lay where the program ran, `beside` all later.
    """

    def __init__(self, submission: ModuleType, observe: Observe, device: Any) -> None:
        self._submission, self._observe, self._device = submission, observe, device
        self._given: list[Any] = []
        self._gave: list[Any] = []
        self._in_a_step = False
        self.before = self.beside = 0
        self.changed: list[str] = []

    def launched(self, _name: str, devices: Sequence[str], given: Sequence[Any]) -> None:
        """A program was launched."""
        if not self._given:
            self.before += launches.given_there(devices, given)
        elif not self._in_a_step:
            self.beside += len(given)

    def step(self, arrays: Any, state: Any) -> Any:
        """Take one step, and keep what it is given and returns."""
        self._observe.mark()
        self._given.append((arrays, state))  # keeps them alive, so that no address comes twice
        self._in_a_step = True
        try:
            self._gave.append(self._submission.layer(arrays, state))
        except ValueError as error:
            with self._observe.unwatched():
                error.add_note(_elsewhere((arrays, state), self._device))
            raise
        finally:
            self._in_a_step = False
        return self._gave[-1]

    def take(self, target: str, steps: int, inputs: Any) -> None:
        """Take the run."""
        observe, (arrays, state) = self._observe, inputs
        before = {**arrays, "state": state}
        observe.value(facts.start(target), (arrays, state), data=False)
        with observe.phase(target):
            result = self._submission.run(self.step, arrays, state, steps, self._device)
        after = {**arrays, "state": state}
        same = {name for name, one in before.items() if after.get(name) is one}
        self.changed = sorted(n for n in before if n not in same or before[n].is_deleted())
        observe.value(facts.result(target), result)
        if len(self._gave) > 1:
            with observe.unwatched():
                observe.value(f"{facts.result(target)}, the state one step short", self._gave[-2])
        observe.fact(facts.calls(target), len(self._given))
        for call, arguments in zip(facts.kept_calls(steps), self._given, strict=False):
            observe.value(facts.given(target, call), arguments, data=False)
        observe.value(facts.gave(target), self._gave, data=False)


def _elsewhere(given: Any, device: Any) -> str:
    """Which arrays of those that a step is given are committed to another device, in words."""
    asked = f"{device.platform}:{device.id}"
    leaves, _ = describe(given, data=False)
    left = [leaf for leaf in leaves if leaf.committed and where(leaf) != asked]
    listed = ", ".join(f"{argument(leaf)} on {where(leaf)}" for leaf in left)
    return f"`device` is {asked}, and the step was given {listed}"
