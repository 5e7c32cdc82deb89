"""Drives ex02_mixed_devices: has five runs taken, each on a device that is asked for.

Drawn: for each run the steps (once 1, twice 2 to 29, once 30 to 99, once 100 to 109), the device
asked for (at least two, and one of them twice), the default device (once the one asked for, else
another one), the numbers, the sizes (the same on one device; 1 is one of them, and so is 64, the
largest), which of bias and scale holds whole numbers or bools and which half-precision floats, of
which dtypes, and where each array lies. In each run but one, one array lies on the device asked
for, one is committed to another, one is uncommitted, on the default device, and one is as any of
these; in that one, none lies there. Over all runs, each array takes each of these places. Runs on
one device get one dict, filled with other arrays. In the last two runs, arrays have numbers that
are none, infinite, -0.0 or tiny, and the whole numbers among them the ends of their range. The
drive keeps what each call of `step` is given and returns: an array that lies in another buffer than
before was copied, even where no copy between devices was seen. It counts what programs are given
beside the steps, before the first one only where it lies on the device asked for: they may copy
what no step gets. When the first step begins, it counts the bytes of all other arrays that the run
has made. What the caller has is looked at in each step, and once more when all runs have ended, as
are the states that they returned. Where the file names numbers, the longest run has more steps than
each of them that is below MOST_STEPS, `run` is called more often before the last run, and others
have just so many steps, rows or columns. At last, the second step of a run raises.
"""

from collections.abc import Sequence
from itertools import cycle
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from grader.checks.ex02_mixed_devices import facts
from grader.checks.ex02_mixed_devices.facts import ROUNDS, argument
from grader.judging.words import where
from grader.probes import alive, dumped, launches
from grader.probes.describe import describe, in_other_order
from grader.probes.observe import Observe
from grader.stages.drawn import among, beside, beyond, one_of, some_odd
from grader.stages.failing import failing_at_second, returns

WHOLE, HALVES = (np.int32, np.uint8, bool), (jnp.bfloat16, np.float16)
"""The dtypes of bias and scale, of which one is of the first ones, and the other of the others."""
RARE = (np.int8, np.int16, np.uint16, np.uint32)
"""What is in the place of the first ones on one device."""
LENGTHS = ((1, 2), (2, 30), (2, 30), (30, 100), (100, 110))
"""From how many steps on, and below how many, the runs have."""
MOST_STEPS, MOST_CALLS, SIZES = 1000, 300, range(2, 65)
"""Up to where the longest run, and the calls of `run`, reach the numbers that the file names; and
which rows and columns there are."""
WITH_ODD = ROUNDS[-2:]
"""The runs whose arrays hold numbers such as NaN."""


def _inputs(
    rng: Any, sizes: Any, kinds: list[Any], homes: list[Any], *, odd: bool
) -> tuple[Any, Any]:
    """Arrays and a state, where `homes` says; None is uncommitted.

    weights (n, n) and state (rows, n) float32, bias (n,) and scale (n,) of `kinds`; whole numbers
    and bools are 0 or 1. With `odd`, some numbers are those of `some_odd`.
    """
    n, rows = map(int, sizes)
    shapes = {"weights": (n, n), "bias": (n,), "scale": (n,), "state": (rows, n)}
    drawn = {k: rng.standard_normal(s).astype(np.float32) / 2 for k, s in shapes.items()}
    for name, kind in zip(("bias", "scale"), kinds, strict=True):
        drawn[name] = (drawn[name] > 0 if kind not in HALVES else drawn[name]).astype(kind)
    if odd:
        some_odd(rng, *drawn.values())
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
    sizes = {device: rng.integers(2, 65, 2) for device in devices}
    for size, device in zip((1, 64), rng.permutation([*sizes]), strict=False):
        sizes[device][rng.integers(2)] = size
    sizes = {device: [_size(rng, int(n)) for n in both] for device, both in sizes.items()}
    pairs = zip(cycle(rng.permutation(WHOLE)), cycle(rng.permutation(HALVES)))
    kinds = {device: rng.permutation(next(pairs)).tolist() for device in sizes}
    rare = beside(rng)
    one = kinds[[*sizes][rare.integers(len(sizes))]]
    one[:] = [kind if kind in HALVES else RARE[rare.integers(len(RARE))] for kind in one]
    numbers = [among(rng, span) for span in LENGTHS]
    numbers[-1] = beyond(rng, numbers[-1], MOST_STEPS)
    numbers = rng.permutation(numbers).tolist()
    through, runs, dicts = 0, list[_Run](), dict[Any, dict[str, Any]]()
    with observe.unwatched():
        programs = launches.Places()
    order, turns = rng.permutation(4), rng.permutation(4).tolist()
    fourths = rng.permutation([0, 1, 2, 2]).tolist()
    by_default = int(rng.integers(len(ROUNDS)))
    # The array that lies on the device by turns does so in this run, as none does in one other.
    turn = int(rng.integers(4))
    turns.insert(by_default, turn)
    fourths.insert(by_default, rng.integers(3))
    for index, (target, steps, device) in enumerate(zip(ROUNDS, numbers, devices, strict=True)):
        others = [one for one in jax.devices() if one != device]
        default = device if index == by_default else rng.choice(others)
        nowhere = turns[index] == turn and index != by_default
        places = [None, rng.choice(others) if nowhere else device, rng.choice(others)]
        places.append(places[fourths[index]])
        homes = [places[(place + turns[index]) % 4] for place in order]
        with jax.default_device(default), dumped.programs() as texts:
            with observe.unwatched():
                odd = target in WITH_ODD
                arrays, state = _inputs(rng, sizes[device], kinds[device], homes, odd=odd)
            dicts.setdefault(device, arrays).update(arrays)
            if target == ROUNDS[-1]:
                for _ in range(beyond(rng, 0, MOST_CALLS)):
                    submission.run(submission.layer, {**arrays}, state, 1, device)
            run = _Run(submission, observe, device)
            with programs.launched(run.launched):
                run.take(target, steps, (dicts[device], state))
        runs.append(run)
        through += sum(map(dumped.uses_the_host, texts))
    for target, run in zip(ROUNDS, runs, strict=True):
        observe.value(facts.result(target), run.result)
        run.look_for_deleted()
    observe.fact(facts.THROUGH_HOST, through)
    observe.fact(facts.IN_OTHER_ORDER, [run.in_other_order for run in runs])
    observe.fact(facts.SPARE, [run.spare for run in runs])
    observe.fact(facts.BESIDE, [run.beside for run in runs])
    observe.fact(facts.MADE, [run.made for run in runs])
    observe.fact(facts.BEFORE, [run.before for run in runs])
    observe.fact(facts.CHANGED, [sorted(map(str, run.changed)) for run in runs])
    observe.fact(facts.UNSEEN, programs.problem)
    observe.fact(facts.STEPS, numbers)
    with observe.unwatched():
        observe.fact(facts.HIDES, _hides_an_error(submission, arrays, state, device))


def _hides_an_error(submission: ModuleType, arrays: Any, state: Any, device: Any) -> bool:
    """Whether `run` returns although its second step raises."""
    step = failing_at_second(lambda _, before: before)
    return returns(submission.run, step, {**arrays}, state, 3, device)


def _size(rng: Any, usual: int) -> int:
    """Rows or columns: the usual ones, or as many as the file names."""
    return usual if usual in (1, max(SIZES)) else one_of(rng, usual, SIZES)


class _Run:
    """Has one run taken on a device; counts arrays that other programs than steps got.

    `before` counts those before the first step which lay where the program ran, `beside` all later.
    `made` counts the later programs that got none.
    `spare` are the bytes of what no step gets, and is there when the first one begins.
    """

    def __init__(self, submission: ModuleType, observe: Observe, device: Any) -> None:
        self._submission, self._observe, self._device = submission, observe, device
        self._given: list[Any] = []
        self._gave: list[Any] = []
        self._in_a_step = False
        self.before = self.beside = self.made = self.spare = 0
        self.changed: set[str] = set()
        self.in_other_order: list[str] = []
        self.result: Any = None

    def launched(self, _name: str, devices: Sequence[str], given: Sequence[Any]) -> None:
        """A program was launched."""
        if not self._given:
            self.before += launches.given_there(devices, given)
        elif not self._in_a_step:
            self.beside += len(given)
            self.made += not given

    def step(self, arrays: Any, state: Any) -> Any:
        """Take one step, and keep what it is given and returns."""
        self._observe.mark()
        if not self._given:
            with self._observe.unwatched():
                self.spare = alive.left_elsewhere((arrays, state), self._memory)
                self.in_other_order = in_other_order((arrays, state))
        # Kept alive, so that no address comes twice; in a tree of its own, as it is now.
        self._given.append(jax.tree.map(lambda leaf: leaf, (arrays, state)))
        self._look()
        self._in_a_step = True
        try:
            self._gave.append(self._submission.layer(arrays, state))
        except (TypeError, ValueError) as error:
            with self._observe.unwatched():
                given = (self._before, self._state)
                note = _elsewhere((arrays, state), self._device) or _unfitting(
                    (arrays, state), given
                )
                error.add_note(note)
            raise
        finally:
            self._in_a_step = False
        return self._gave[-1]

    def take(self, target: str, steps: int, inputs: Any) -> None:
        """Take the run."""
        observe, (arrays, state) = self._observe, inputs
        self._dict, self._before, self._state = arrays, {**arrays}, state
        observe.value(facts.start(target), (arrays, state), data=False)
        with observe.unwatched():
            self._memory = alive.memory()
        with observe.phase(target):
            self.result = self._submission.run(self.step, arrays, state, steps, self._device)
        self._look()
        if len(self._gave) > 1:
            with observe.unwatched():
                observe.value(f"{facts.result(target)}, the state one step short", self._gave[-2])
        observe.fact(facts.calls(target), len(self._given))
        observe.value(facts.first(target), self._first())
        for call, arguments in zip(facts.kept_calls(steps), self._given, strict=False):
            observe.value(facts.given(target, call), arguments, data=False)
        observe.value(facts.gave(target), self._gave, data=False)

    def _first(self) -> Any:
        """What the first step was given, in a plain dict, since any kind of dict will do."""
        arrays, state = self._given[0] if self._given else ((), ())
        return dict(arrays) if isinstance(arrays, dict) else arrays, state

    def _look(self) -> None:
        """Note what of the caller's dict is not as it was, and what it has lost."""
        before, now = self._before, self._dict
        self.changed |= {name for name, one in before.items() if now.get(name) is not one}
        self.changed |= {name for name, old in zip(now, before, strict=False) if name != old}
        self.changed |= now.keys() - before.keys()
        self.look_for_deleted()

    def look_for_deleted(self) -> None:
        """Note which of the caller's arrays are gone."""
        had = {**self._before, "state": self._state}
        self.changed |= {name for name, one in had.items() if one.is_deleted()}


def _elsewhere(given: Any, device: Any) -> str:
    """Which arrays of those that a step is given are committed to another device, in words."""
    asked = f"{device.platform}:{device.id}"
    leaves, _ = describe(given, data=False)
    left = [leaf for leaf in leaves if leaf.committed and where(leaf) != asked]
    listed = ", ".join(f"{argument(leaf)} on {where(leaf)}" for leaf in left)
    return f"`device` is {asked}, and the step was given {listed}" if left else ""


MIXED = ": the names of the dict and its arrays were put together in another order"


def _unfitting(given: Any, asked: Any) -> str:
    """The first array that a step is given in another shape than `run` was, in words; or "".

    Where the names have each other's shapes, that is said, too.
    """
    (mine, _), (theirs, _) = (describe(tree, data=False) for tree in (given, asked))
    shapes, now = ({leaf.path: leaf.shape for leaf in leaves} for leaves in (theirs, mine))
    mixed = shapes.keys() == now.keys() and sorted(shapes.values()) == sorted(now.values())
    for leaf in mine:
        if (right := shapes.get(leaf.path, leaf.shape)) != leaf.shape:
            same = [argument(one) for one in theirs if one.shape == leaf.shape]
            under = f", as {same[0]} was there" if len(same) == 1 else ""
            told = (
                f"the step was given {argument(leaf)} of shape {leaf.shape}, and `run` of {right}"
            )
            return told + under + MIXED * mixed
    return ""
