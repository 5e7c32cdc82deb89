"""ex03_create_in_place: arrays are born on their device, and nothing is copied there."""

import re
from dataclasses import replace
from types import ModuleType
from typing import Any

from grader.checking import Exercise, Failure, Observe, Result, Unable
from grader.evidence import culprits, definition, differing_leaf, events, probe_gap, seen, wanted
from grader.record import Event, EventKind, Leaf, Record
from grader.words import plural, where

ROUNDS = ("first layer", "second layer")
NUMBER = 8
"""The bytes of one number, at most."""


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Create two layers of fresh sizes: on a device that is neither first nor last, on the last.

    Fresh sizes: of arguments as it had them before, a jitted function logs no copy.
    """
    import jax

    from grader.probes import dumped

    devices = jax.devices()[1], jax.devices()[-1]
    sizes = rng.choice(range(20, 60), len(ROUNDS), replace=False)
    for name, device, rows in zip(ROUNDS, devices, sizes, strict=True):
        with observe.unwatched():
            key = jax.device_put(jax.random.key(int(rng.integers(1 << 30))), device)
        with dumped.programs() as programs, observe.phase(name):
            created = submission.create(key, int(rows), device)
        observe.value(name, created)
        observe.fact(f"{name}: programs", len(programs))
        observe.fact(f"{name}: tables", sum(_holds_table(text, int(rows)) for text in programs))


def _holds_table(program: str, rows: int) -> bool:
    """Whether a program holds `rows` whole numbers, one by one: the host has made them."""
    return re.search(rf'dense<["\[][^>]*> : tensor<{rows}xu?i\d', program) is not None


EXERCISE = Exercise(
    title="Create arrays on the device where they are needed",
    lesson="lessons/02-arrays-live-somewhere",
    anchor="make-arrays-where-they-are-needed",
    edits=("create",),
    drive=drive,
    devices=3,
    hints=(
        "`jnp.ones(16, device=device)` is made on the default device and then copied. Which calls "
        "make something where the program runs?",
        "Inside a jitted function, jnp.ones is a part of the program: it is made where the program "
        "runs. So is arange, and the random numbers.",
        "A jitted function runs where its committed arguments are, or where `out_shardings` "
        "says: jax.sharding.SingleDeviceSharding(device).",
    ),
)


@EXERCISE.check(
    ground="observed",
    hints=("The weights are jax.random.normal(key, (rows, 16)), from the key as it was given.",),
)
def same_arrays(record: Record) -> Result:
    """The dict holds the four arrays: right names, shapes, types and values."""
    for name in ROUNDS:
        failure = differing_leaf(record, name, rtol=1e-5, atol=1e-6)
        if failure:
            return replace(failure, culprits=definition(record, "create"))
    return None


def _unlike(record: Record, name: str, judge: Any) -> list[Leaf]:
    """The leaves of a layer that `judge(mine, reference's)` is true of."""
    pairs = zip(seen(record).values[name], wanted(record).values[name], strict=True)
    return [mine for mine, want in pairs if judge(mine, want)]


@EXERCISE.check(
    ground="observed",
    after=("same_arrays",),
    hints=("Without a place, an array is made on the default device.",),
    anchor="every-array-has-a-place",
)
def on_the_device(record: Record) -> Result:
    """Every array lies on the device, and on no other."""
    for name in ROUNDS:
        wrong = _unlike(record, name, lambda mine, want: where(mine) != where(want))
        if wrong:
            listed = ", ".join(f"`{leaf.path}` on {where(leaf)}" for leaf in wrong)
            place = where(wanted(record).values[name][0])
            return Failure(f"all arrays on {place}", listed, definition(record, "create"))
    return None


@EXERCISE.check(
    ground="observed",
    after=("on_the_device",),
    hints=(
        "jax.default_device says where new arrays are made, and leaves them free to move.",
        "`out_shardings` commits. So does device_put, which copies nothing if the array is "
        "there already.",
    ),
    anchor="two-committed-places-are-an-error",
)
def committed(record: Record) -> Result:
    """Every array is committed to the device."""
    for name in ROUNDS:
        free = _unlike(record, name, lambda mine, _: not mine.committed)
        if free:
            listed = ", ".join(f"`{leaf.path}`" for leaf in free)
            return Failure(
                "all arrays are committed",
                f"{len(free)} on the device, but free to move: {listed}",
                definition(record, "create"),
            )
    return None


def _copied(record: Record, kind: EventKind, expected: str) -> Failure | None:
    """The failure for copies of one kind, whenever: also while the file is imported."""
    found = list(events(seen(record), kind))
    if not found:
        return None
    expected += ", in two calls of `create`"
    return Failure(expected, _told(kind, found), culprits(record, found))


def _told(kind: EventKind, found: list[Event]) -> str:
    """How many copies there are, of what size, and what that says of their origin."""
    sizes = sorted({event.nbytes for event in found if event.nbytes is not None}, reverse=True)
    total = plural(sum(event.count for event in found), "copy")
    size = f" of {', '.join(map(str, sizes))} bytes" if sizes else ""
    if kind == "d2d":
        return f"{total}{size}: made on the default device, and copied from there"
    numbers = bool(sizes) and sizes[0] <= NUMBER
    made = "single numbers, which calls outside jit send along" if numbers else "made by the host"
    return f"{total}{size}: {made}"


@EXERCISE.check(
    ground="observed",
    after=("on_the_device",),
    hints=(
        "device_put(jnp.ones(...), device) makes an array in one place and copies it to another. "
        "`jnp.ones(..., device=device)` does the same, in one line.",
        "zeros_like does it too, for an array that lies elsewhere than the default device. "
        "Only what is jitted is made in place.",
    ),
)
def not_from_another_device(record: Record) -> Result:
    """No array is made on one device and copied to the other."""
    expected = "0 copies from device to device"
    failure = _copied(record, "d2d", expected)
    return failure or probe_gap(seen(record), "transfers")


@EXERCISE.check(
    ground="observed",
    after=("not_from_another_device",),
    hints=(
        "A NumPy array or a list is made in host memory, and crosses to the device.",
        "Outside jit, jnp.ones sends its fill value to the device: one number, and one copy. "
        "Inside jit, the number is part of the program.",
        "A NumPy array or a list inside jit is made by the host all the same, and goes to the "
        "device with the program. jnp.arange there is an instruction: the device makes it.",
    ),
)
def not_from_the_host(record: Record) -> Result:
    """Nothing is made in host memory and copied to the device."""
    expected = "0 copies from the host: no array, and no number"
    failure = _copied(record, "h2d", expected) or _in_the_program(record, expected)
    return failure or probe_gap(seen(record), "transfers")


def _in_the_program(record: Record, expected: str) -> Failure | Unable | None:
    facts = seen(record).facts
    if any(facts[f"{name}: tables"] for name in ROUNDS):
        told = "`order` is made by the host, and goes to the device inside the compiled program"
        return Failure(expected, told, definition(record, "create"))
    if not any(facts[f"{name}: programs"] for name in ROUNDS):
        return Unable("what JAX compiled was not seen")
    return None
