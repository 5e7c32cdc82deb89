"""Checks of ex03_create_in_place: the four arrays, their device, and what was copied there."""

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace

from grader.checks.ex03_create_in_place import EXERCISE
from grader.checks.ex03_create_in_place.facts import (
    CALLS,
    MADE_BEFORE,
    ONCE_MORE,
    ROUNDS,
    UNSEEN,
    default_left,
    deleted,
    key,
    made_twice,
    numbers,
    programs,
    ran_on,
    shared,
    spare,
    through_host,
    turned,
)
from grader.judging.arrays import compare
from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import (
    culprits,
    definition,
    events,
    in_other_order,
    probe_gap,
    seen,
    to_host,
    wanted,
)
from grader.judging.results import bits_cut_off, differing_leaf, renamed, zeros_of_other_sign
from grader.judging.words import plural, where
from grader.records.record import Event, EventKind, Leaf, Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File

NUMBER = 8
"""A copy of at most so many bytes is a single number."""


KEPT = (
    "The layers before came out right. What does your code keep of an earlier call, and does that "
    "depend on the key, on the rows and on the device?"
)
CAST = "Three of the arrays are float32, and `order` is int32. Which arrays does this line change?"
CONSTANTS = "What does the docstring say of this array: zeros, ones, or a range?"


@EXERCISE.check(
    ground="observed",
    hints=("The weights are jax.random.normal(key, (rows, 16)), from the key as it was given.",),
)
def same_arrays(record: Record) -> Result:
    """The dict holds the four arrays: right names, shapes, types and values."""
    for name in ROUNDS:
        failure = differing_leaf(record, name, rtol=2e-6, atol=1e-7)
        failure = failure or _constants(record, name) or zeros_of_other_sign(record, name)
        if failure:
            failure = renamed(failure, name, "create(...)")
            if name in ROUNDS[2:]:
                return replace(failure, culprits=statements.result(record, "create"), hint=KEPT)
            casts = statements.every(record, "create", "astype")
            if failure.observed.startswith("dtype ") and len(casts) == 1:
                return replace(failure, culprits=casts, hint=CAST)
            hint = failure.hint or ("" if "'weights'" in failure.expected else CONSTANTS)
            return replace(failure, culprits=definition(record, "create"), hint=hint)
    failure = bits_cut_off(record, ROUNDS, lambda leaf: leaf.path == "['weights']")
    return failure and replace(failure, culprits=statements.entry(record, "create", "weights"))


def _constants(record: Record, name: str) -> Failure | None:
    """The failure for zeros, ones and a range that are not exactly these."""
    mine, theirs = (
        [leaf for leaf in side(record).values[name] if leaf.path != "['weights']"]
        for side in (seen, wanted)
    )
    return compare(name, mine, theirs, "", "", rtol=0, atol=0)


def _unlike(record: Record, name: str, judge: Callable[[Leaf, Leaf], bool]) -> list[Leaf]:
    """The leaves of a layer for which `judge(submission's leaf, reference's leaf)` is true."""
    pairs = zip(seen(record).values[name], wanted(record).values[name], strict=True)
    return [mine for mine, want in pairs if judge(mine, want)]


@EXERCISE.check(
    ground="observed",
    after=("same_arrays",),
    hints=(
        "If you name no place, an array is made on the default device. If you name one, is it "
        "`device`?",
    ),
    anchor="every-array-has-a-place",
)
def on_the_device(record: Record) -> Result:
    """Every array lies on the device, and on no other."""
    for name in ROUNDS:
        wrong = _unlike(record, name, lambda mine, want: where(mine) != where(want))
        if wrong:
            listed = ", ".join(f"`{leaf.path}` on {where(leaf)}" for leaf in wrong)
            place = where(wanted(record).values[name][0])
            return Failure(f"all arrays on {place}", listed, _of_program(record, wrong))
    return None


@EXERCISE.check(
    ground="observed",
    after=("on_the_device",),
    hints=(
        "jax.default_device says where new arrays are made, and leaves them uncommitted.",
        "`out_shardings` commits. So does device_put, which copies nothing if the array is "
        "there already.",
    ),
    anchor="two-committed-places-are-an-error",
)
def committed(record: Record) -> Result:
    """Every array is committed to the device."""
    for name in ROUNDS:
        uncommitted = _unlike(record, name, lambda mine, _: not mine.committed)
        if uncommitted:
            listed = ", ".join(f"`{leaf.path}`" for leaf in uncommitted)
            return Failure(
                "all arrays are committed",
                f"{len(uncommitted)} on the device, but uncommitted: {listed}",
                _of_program(record, uncommitted),
            )
    return None


def _of_program(record: Record, leaves: Sequence[Leaf]) -> list[Culprit]:
    """Where arrays get their place: `jit`, if a function inside `create` makes them."""
    file, text = File(record.source), " ".join(f"`{leaf.path}`" for leaf in leaves)
    made = [file.function_at(place.line) for place in statements.of_keys(file, "create", text)]
    inside = "create" not in made and statements.uses(record, "create", "device")
    return statements.call(record, "create", "jit") if inside else definition(record, "create")


FILL = (
    "Outside jit, jnp.ones sends its fill value to the device: one number, and one copy. Inside "
    "jit, the number is part of the program."
)


AS_NUMBERS = (
    "A number that is passed to a jitted function is an argument, and is copied at each call. "
    "Inside the function, it is part of the program; so is a static argument."
)
LIKE = (
    "zeros_like makes an array in one place and copies it to another, too, if its array is not on "
    "the default device. Only a jitted function makes arrays in place."
)


FEW = 4
"""So many single numbers that the reference's programs do not hold are no table of `order`."""
THE_KEY = "`key` was read, and goes to the device inside the program, as a constant"
AS_ARGUMENT = (
    "What a jitted function gets as an argument stays where it is. What it finds outside of itself "
    "becomes a part of its program. How does `key` come into the function?"
)
WORKED_OUT = (
    "a number that the host works out goes to the device inside the program: it is another one in "
    "the program of each layer"
)
CONSTANT = (
    "`order` was made before its program ran, and goes to the device inside the program, as "
    "constants"
)
TRAVELS = (
    "A NumPy array, a list, a Python number, or an array that was made outside: each of these is a "
    "constant inside jit. Which function of jnp is an instruction to make 0, 1, 2, ... there?"
)
THROUGH_HOST = "a program keeps arrays in host memory, or computes on the host"
WITHOUT = (
    "A device's usual memory is used where no memory is named, and nothing is computed elsewhere."
)


def _copied(record: Record, kind: EventKind, expected: str) -> Failure | None:
    """The failure for copies of one kind, those made while the file is imported included."""
    found = list(events(seen(record), kind))
    if not found:
        return None
    expected += f", in {wanted(record).facts[CALLS]} calls of `create`"
    small = all((event.nbytes or NUMBER + 1) <= NUMBER for event in found)
    places = culprits(record, found)
    like = kind == "d2d" and places and all("_like(" in place.text for place in places)
    filled = any("jnp." in place.text for place in places)
    numbers_hint = FILL if filled or not places else AS_NUMBERS
    hint = numbers_hint if kind == "h2d" and small else LIKE if like else ""
    return Failure(expected, _told(record, kind, found), places, hint)


def _told(record: Record, kind: EventKind, found: list[Event]) -> str:
    """How many copies there are, of which sizes, and what was copied."""
    sizes = sorted({event.nbytes for event in found if event.nbytes is not None}, reverse=True)
    total = plural(sum(event.count for event in found), "copy")
    size = f" of {', '.join(map(str, sizes))} bytes" if sizes else ""
    if kind == "d2d" and any(seen(record).facts[through_host(name)] for name in ROUNDS):
        return f"{total}{size}: from another device, or from another memory"
    if kind == "d2d":
        return f"{total}{size}: made on the default device, and copied from there"
    if sizes and sizes[0] <= NUMBER:
        return f"{total}{size}: single numbers, which calls outside jit send along"
    return f"{total}{size}: made by the host"


@EXERCISE.check(
    ground="observed",
    after=("on_the_device",),
    hints=(
        "device_put(jnp.ones(...), device) makes an array in one place and copies it to another. "
        "`jnp.ones(..., device=device)` does the same, in one line.",
        LIKE,
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
        "A NumPy array or a list is made in host memory, and is copied to the device.",
        FILL,
        "Inside jit too, the host makes a NumPy array or a list: it goes to the device with the "
        "program. jnp.arange inside jit is an instruction, and the device makes the array.",
    ),
)
def not_from_the_host(record: Record) -> Result:
    """Nothing is made in host memory and copied to the device."""
    expected = "0 copies from the host: no array, and no number"
    failure = _copied(record, "h2d", expected) or _in_the_program(record, expected)
    return failure or probe_gap(seen(record), "transfers")


TWICE = "The arrays are right as they are made first. Which line makes them once more?"
SHARED = (
    "A step that donates one layer deletes this array of the other one, too. What does your code "
    "keep of an earlier call?"
)
ELSEWHERE = (
    "Over which devices does the mesh, the sharding or the default device of your code reach?"
)


@EXERCISE.check(
    ground="observed",
    after=("not_from_the_host",),
    hints=("float(), np.asarray(), print and jax.device_get bring an array to the host.",),
)
def nothing_beside(record: Record) -> Result:
    """Each array comes out of one program, nothing else is kept or made elsewhere, none is read."""
    made = int(seen(record).facts[MADE_BEFORE]) - int(wanted(record).facts[MADE_BEFORE])
    if made > 0:
        return Failure(
            "no array is made before `create` is called",
            f"when the file is imported, it makes arrays of {made:,} bytes, and keeps them",
            _at_import(record) or definition(record, "create"),
            "The file does not know `device` when it is imported. Which line makes an array there?",
        )
    if problem := seen(record).facts[UNSEEN]:
        return Unable(str(problem))
    for name in ROUNDS:
        place = where(wanted(record).values[name][0])
        if others := [one for one in seen(record).facts[ran_on(name)] if one != place]:
            return Failure(
                f"programs run on {place} alone",
                f"a program ran on {', '.join(others)}, too: what it made there takes memory there",
                definition(record, "create"),
                ELSEWHERE,
            )
        if twice := seen(record).facts[made_twice(name)]:
            return Failure(
                "each array is made once, where it stays",
                f"a program was given an array equal to `{twice[0]}`, and made that one of it: for "
                "a moment there were two of them",
                statements.call(record, "create", "copy", "map", "jit"),
                TWICE,
            )
        if gone := seen(record).facts[deleted(name)]:
            return Failure(
                "each array is made once, and no other is made on the way",
                f"a program was given arrays of {gone:,} bytes that were deleted afterwards: for a "
                "moment they took memory, too",
                statements.call(record, "create", "delete", "copy", "map", "jit"),
                TWICE,
            )
        if kept := seen(record).facts[spare(name)]:
            return Failure(
                "each array is made once, and `create` keeps no other",
                f"{kept:,} bytes of other arrays were made, and are kept",
                statements.call(record, "create", "copy", "map", "jit"),
                TWICE,
            )
        if failure := _left(record, name):
            return failure
    if not (found := to_host(seen(record))):
        return probe_gap(seen(record), "reads")
    total = sum(event.count for event in found)
    observed = f"{plural(total, 'read')} in {wanted(record).facts[CALLS]} calls of `create`"
    return Failure("the host reads no array", observed, culprits(record, found))


def _left(record: Record, name: str) -> Failure | None:
    """The failure for arrays in an unusual order, or of two calls, or another default device."""
    if paths := seen(record).facts[turned(name)]:
        return in_other_order(record, f"`{paths[0]}` of the {name}", "create")
    if default_left(name) in seen(record).facts:
        return Failure(
            "after `create`, the default device is what it was before",
            "it is another one: from now on, all code makes its arrays there",
            statements.call(record, "create", "default_device", "update"),
            "When a `with` block ends, it puts back what it changed. Does your code do that?",
        )
    found = _of_two_calls(record, name)
    return found or (_of_two_calls(record, ONCE_MORE) if name == ROUNDS[-1] else None)


def _of_two_calls(record: Record, name: str) -> Failure | None:
    """The failure for an array that two calls returned."""
    if not (both := seen(record).facts[shared(name)]):
        return None
    path, other = both
    return Failure(
        "each call of `create` makes four new arrays",
        f"`{path}` of the {name} is the very array that an earlier layer has, `{other}`",
        statements.entry(record, "create", path[2:-2]),
        SHARED,
    )


def _at_import(record: Record) -> list[Culprit]:
    """The lines outside of all functions that keep what a call returned."""
    file = File(record.source)
    kept = (one for one in file.tree.body if isinstance(one, ast.Assign | ast.AnnAssign))
    return [file.place(one) for one in kept if isinstance(one.value, ast.Call)]


def _in_the_program(record: Record, expected: str) -> Failure | Unable | None:
    """The failure for an array that the host made, and that went to the device in a program."""
    facts, known = seen(record).facts, wanted(record).facts
    place = statements.entry(record, "create", "order")
    new = {n: {*map(tuple, facts[numbers(n)])} - {*map(tuple, known[numbers(n)])} for n in ROUNDS}
    for name in ROUNDS:
        words = facts[key(name)]
        if new[name] & {(str(words), 2), *((str(word), 1) for word in words if word)}:
            place = statements.call(record, "create", "jit")
            return Failure(expected, THE_KEY, place, AS_ARGUMENT)
        if sum(count for _, count in new[name]) > FEW or any(n > 1 for _, n in new[name]):
            return Failure(expected, CONSTANT, place, TRAVELS)
        if facts[through_host(name)]:
            return Failure(
                expected, THROUGH_HOST, statements.call(record, "create", "jit"), WITHOUT
            )
    if new[ROUNDS[2]] - new[ROUNDS[0]]:  # the third layer differs from the first by its key alone
        return Failure(expected, WORKED_OUT, statements.call(record, "create", "jit"), AS_ARGUMENT)
    if not any(facts[programs(name)] for name in ROUNDS):
        return Unable("the programs that JAX compiled were not seen")
    return None
