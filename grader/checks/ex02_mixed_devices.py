"""ex02_mixed_devices: arrays of several devices meet on one, copied once, before the loop."""

from dataclasses import replace
from types import ModuleType
from typing import Any

from grader.checking import Exercise, Failure, Observe, Result
from grader.evidence import culprits, definition, differing_leaf, events, probe_gap, seen, wanted
from grader.record import Leaf, Observed, Record
from grader.words import plural, where

ROUNDS = {"the last device": 6, "the first device": 4}
"""The device that is asked for, and how many steps are taken there."""


def _inputs(rng: Any, target: str) -> tuple[Any, Any]:
    """Arrays and a state, float32: on the first device and on the last, committed, and free.

    weights (n, n), bias (n,), scale (n,), state (rows, n).
    """
    import jax
    import numpy as np

    first, last = jax.devices()[0], jax.devices()[-1]
    n, rows = (int(size) for size in rng.integers(5, 30, 2))
    shapes = {"weights": (n, n), "bias": (n,), "scale": (n,), "state": (rows, n)}
    drawn = {k: rng.standard_normal(s).astype(np.float32) / 2 for k, s in shapes.items()}
    homes = {"weights": last, "bias": first, "scale": None, "state": last}
    placed = {name: jax.device_put(drawn[name], home) for name, home in homes.items()}
    state = placed.pop("state")
    return placed, state


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Run on the last device, then on the first, looking at what each step is given."""
    import jax

    devices = dict(zip(ROUNDS, (jax.devices()[-1], jax.devices()[0]), strict=True))
    for target, steps in ROUNDS.items():
        with observe.unwatched():
            arrays, state = _inputs(rng, target)
        observe.value(f"{target}, start", (arrays, state), data=False)
        given: list[Any] = []
        gave: list[Any] = []

        def step(arrays: Any, state: Any, given: list[Any] = given, gave: list[Any] = gave) -> Any:
            observe.mark()
            given.append((arrays, state))  # keeps them alive, so that no address comes twice
            gave.append(submission.layer(arrays, state))
            return gave[-1]

        with observe.phase(target):
            result = submission.run(step, arrays, state, steps, devices[target])
        observe.value(f"state on {target}", result)
        observe.fact(f"calls on {target}", len(given))
        for index, arguments in enumerate(given[: 2 * steps]):
            observe.value(f"{target}, step {index}", arguments, data=False)
        observe.value(f"{target}, gave", gave, data=False)


EXERCISE = Exercise(
    title="Compute with arrays on different devices",
    lesson="lessons/02-arrays-live-somewhere",
    anchor="two-committed-places-are-an-error",
    edits=("run",),
    drive=drive,
    devices=2,
    hints=(
        "JAX refuses two committed places in one call. Which line of `run` could bring all "
        "arrays to one place, and how often does it run?",
        "jax.device_put(tree, device) takes a whole tree. An array that is on the device "
        "already is not copied.",
        "One tuple of `arrays` and `state`, placed before the loop, is enough.",
    ),
)


def _given(record: Record, target: str) -> list[list[Leaf]]:
    """What each step on a device was given, leaf by leaf."""
    values, names = seen(record).values, range(2 * ROUNDS[target])
    found = (values.get(f"{target}, step {index}") for index in names)
    return [leaves for leaves in found if leaves is not None]


def _name(leaf: Leaf) -> str:
    """`state` or `arrays['bias']`: what `run` calls a leaf of what a step is given."""
    part, rest = leaf.path[:3], leaf.path[3:]
    return f"`{'arrays' if part == '[0]' else 'state'}{rest}`"


@EXERCISE.check(
    ground="observed",
    hints=(
        "A traced `step` is called once, whatever runs later, and shows no array. Leave the loop "
        "in Python, and call `step` there.",
    ),
)
def every_step_is_called(record: Record) -> Result:
    """`run` calls `step` once for each step, with arrays."""
    for target, steps in ROUNDS.items():
        calls, given = seen(record).facts[f"calls on {target}"], _given(record, target)
        traced = any(leaf.kind == "other" for leaves in given for leaf in leaves)
        if calls != steps or traced:
            tracers = ", with tracers: `run` compiles the step into something else" * traced
            return Failure(
                f"{steps} calls of `step` with arrays, for {steps} steps",
                plural(calls, "call") + tracers,
                definition(record, "run"),
            )
    return None


@EXERCISE.check(
    ground="observed",
    after=("every_step_is_called",),
    hints=("Each step starts from the state that the step before returned.",),
)
def same_state(record: Record) -> Result:
    """The last state is the reference's."""
    for target in ROUNDS:
        failure = differing_leaf(record, f"state on {target}", rtol=1e-4, atol=1e-5)
        if failure:
            return replace(failure, culprits=definition(record, "run"))
    return None


@EXERCISE.check(
    ground="observed",
    after=("every_step_is_called",),
    hints=(
        "A step runs where its committed arrays are. A free array elsewhere is no error: each "
        "call copies it again, and from the second call on no guard tells you.",
        "Move all that `step` takes, and not only what the error message names.",
    ),
    anchor="a-free-array-is-copied-at-every-call",
)
def steps_on_the_device(record: Record) -> Result:
    """Every array that a step is given lies on the device asked for, and nowhere else."""
    for target in ROUNDS:
        place = where(wanted(record).values[f"state on {target}"][0])
        for index, leaves in enumerate(_given(record, target)):
            wrong = [leaf for leaf in leaves if where(leaf) != place]
            if wrong:
                listed = ", ".join(f"{_name(leaf)} on {_place(leaf)}" for leaf in wrong)
                return Failure(
                    f"step {index + 1} is given arrays on {place} only",
                    listed,
                    definition(record, "run"),
                )
    return None


def _place(leaf: Leaf) -> str:
    """Where a leaf is, and what the call does about it."""
    free = leaf.kind == "jax" and not leaf.committed
    return where(leaf) + (", free: each call copies it" if free else "")


@EXERCISE.check(
    ground="observed",
    after=("same_state", "steps_on_the_device"),
    hints=("The last state is where the last step ran. It needs no further move.",),
)
def result_on_the_device(record: Record) -> Result:
    """The last state is committed to the device asked for."""
    for target in ROUNDS:
        name = f"state on {target}"
        (mine,), place = seen(record).values[name], where(wanted(record).values[name][0])
        if where(mine) != place or not mine.committed:
            free = ", uncommitted" * (mine.kind == "jax" and not mine.committed)
            return Failure(
                f"the result is committed to {place}",
                f"it is on {where(mine)}{free}",
                definition(record, "run"),
            )
    return None


@EXERCISE.check(
    ground="observed",
    after=("every_step_is_called",),  # a compiled loop takes its bounds from the host
    hints=("np.asarray and jax.device_get go through the host. device_put does not have to.",),
)
def not_through_the_host(record: Record) -> Result:
    """No array goes to another device through the host."""
    found = list(events(seen(record), "d2h", "h2d"))
    if not found:
        return probe_gap(seen(record), "reads", "transfers")
    reads = sum(event.count for event in found if event.kind == "d2h")
    total = sum(event.count for event in found)
    return Failure(
        "arrays are copied from device to device",
        f"{plural(reads, 'read')} by the host, {plural(total - reads, 'copy')} from the host",
        culprits(record, found),
    )


def _renewed(record: Record, target: str) -> list[tuple[Leaf, int]]:
    """Leaves of `arrays` that lie in more than one buffer over the steps, and in how many."""
    buffers: dict[str, dict[int | None, Leaf]] = {}
    for leaf in (leaf for leaves in _given(record, target) for leaf in leaves):
        if leaf.path.startswith("[0]"):
            buffers.setdefault(leaf.path, {}).setdefault(leaf.buffer, leaf)
    several = [list(leaves.values()) for leaves in buffers.values() if len(leaves) > 1]
    return [(leaves[0], len(leaves)) for leaves in several]


def _states_copied(record: Record, target: str) -> int:
    """How often a state that a step returned went on from another buffer of its device."""
    values = seen(record).values
    went_on = [leaves[-1] for leaves in _given(record, target)[1:]] + values[f"state on {target}"]
    pairs = zip(values[f"{target}, gave"], went_on, strict=True)
    return sum(gave.buffer != leaf.buffer for gave, leaf in pairs)


def _copied_in_place(observed: Observed, target: str) -> set[str]:
    """Arrays that were on the device from the start, and reach the first step as copies."""
    before = {leaf.path: leaf for leaf in observed.values[f"{target}, start"]}
    pairs = [(before.get(leaf.path), leaf) for leaf in observed.values[f"{target}, step 0"]]
    there = [(old, new) for old, new in pairs if old and where(old) == where(new)]
    return {_name(new) for old, new in there if old.buffer != new.buffer}


@EXERCISE.check(
    ground="observed",
    after=("result_on_the_device", "not_through_the_host"),
    hints=(
        "The dict that you were given still holds the old arrays: device_put changes nothing, "
        "it returns new ones. Keep those, and let every step use them.",
        "Move the line with device_put to before the loop.",
    ),
    anchor="copy-at-the-boundary",
)
def no_copy_in_the_loop(record: Record) -> Result:
    """From the first step on, nothing is copied."""
    for target, steps in ROUNDS.items():
        found = [e for e in events(seen(record), "d2d", phase=target) if e.step > 0]
        renewed, states = _renewed(record, target), _states_copied(record, target)
        if not (found or renewed or states):
            continue
        total = f"{plural(sum(event.count for event in found), 'copy')} between devices"
        anew = "".join(f"; {_name(leaf)} lies in {n} different buffers" for leaf, n in renewed)
        copied = f"; {plural(states, 'state')} copied on the same device" * bool(states)
        return Failure(
            f"0 copies after the first of {steps} steps, and each array in one buffer",
            total + anew + copied,
            culprits(record, found) or definition(record, "run"),
        )
    return probe_gap(seen(record), "transfers")


@EXERCISE.check(
    ground="observed",
    after=("no_copy_in_the_loop",),
    hints=("Name the device that is asked for, and no other on the way.",),
    anchor="copy-at-the-boundary",
)
def copied_at_most_once(record: Record) -> Result:
    """Each array is copied at most once, and not at all if it is there."""
    for target in ROUNDS:
        mine = list(events(seen(record), "d2d", phase=target))
        fewest = sum(e.count for e in events(wanted(record), "d2d", phase=target))
        total = sum(event.count for event in mine)
        needless = _copied_in_place(seen(record), target)
        needless -= _copied_in_place(wanted(record), target)
        if total > fewest or needless:
            listed = f"; {', '.join(sorted(needless))} copied, and there already" * bool(needless)
            return Failure(
                f"{plural(fewest, 'copy')}, to run on {target}",
                f"{plural(total, 'copy')} between devices{listed}",
                culprits(record, mine) if total > fewest else definition(record, "run"),
            )
    return probe_gap(seen(record), "transfers")
