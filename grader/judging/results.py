"""Compares what a submission returned, and what its programs gave, with the reference's."""

from collections.abc import Callable, Sequence
from dataclasses import replace as replace_in

from msgspec.structs import replace

from grader.judging.arrays import FORM, compare, form_of, label, load
from grader.judging.checking import Failure
from grader.judging.evidence import given, seen, wanted
from grader.judging.words import in_memory, part_in_words, plural
from grader.records.record import Leaf, Observed, Record


def differing_leaf(
    record: Record, name: str, *, rtol: float, atol: float, before: str = ""
) -> Failure | None:
    """Compare a named value with the reference's: structure, type, shape, dtype, numbers.

    A drive may keep what a known mistake would give, under the same name with a comma and words:
    "state, one step short". A difference that is exactly this is told in those words. `before` is
    the name of the value from which this one was to be made, if there is one.

    Returns the first difference as a `Failure`, None when there is none.
    """
    mine, theirs = seen(record), wanted(record)
    if name not in mine.values:
        return Failure(f"`{name}` is returned", "nothing was returned under that name")
    if failure := _of_another_name(name, mine, theirs) or _other_form(name, mine, theirs):
        return failure
    tree = mine.trees.get(name, "")
    failure = compare(
        name,
        mine.values[name],
        theirs.values[name],
        tree,
        theirs.trees.get(name, ""),
        rtol=rtol,
        atol=atol,
        before=mine.values.get(before, ()),
    )
    if failure is None:
        return None
    for other, leaves in theirs.values.items():
        slip = other.removeprefix(f"{name}, ")
        if slip != other and not compare(
            "", mine.values[name], leaves, tree, tree, rtol=rtol, atol=atol
        ):
            return replace_in(failure, observed=f"{failure.observed}: that is {slip}")
    return failure


def zeros_of_other_sign(record: Record, name: str) -> Failure | None:
    """The failure where a value that is equal to the reference's has 0.0 in the place of -0.0."""
    import numpy as np

    for leaf, want in zip(seen(record).values[name], wanted(record).values[name], strict=True):
        if leaf.data == want.data or "float" not in want.dtype:
            continue
        mine, right = (load(one.data or b"") for one in (leaf, want))
        if wrong := int(((right == 0) & (np.signbit(mine) != np.signbit(right))).sum()):
            expected = f"the zeros of {label(name, leaf.path)} keep their signs"
            return Failure(
                expected, f"{plural(wrong, 'number')} of another sign: -0.0 and 0.0 differ"
            )
    return None


def bits_cut_off(
    record: Record, names: Sequence[str], wanted_leaf: Callable[[Leaf], bool]
) -> Failure | None:
    """The failure where bits of floats are set in the reference's values, and in none of these.

    Such numbers are close to the reference's, and were rounded to fewer bits. The leaves are those
    for which `wanted_leaf` is true, and are arrays of one dtype.
    """
    import numpy as np

    def ever_set(side: Observed) -> int:
        leaves = (leaf for name in names for leaf in side.values[name] if wanted_leaf(leaf))
        arrays = (load(leaf.data) for leaf in leaves if leaf.data)
        words = (array.view(f"u{array.itemsize}") for array in arrays if array.size)
        return int(np.bitwise_or.reduce([int(np.bitwise_or.reduce(one, None)) for one in words]))

    mine, right = ever_set(seen(record)), ever_set(wanted(record))
    if not (missing := (right & ~mine).bit_count()):
        return None
    return Failure(
        "the numbers are as exact as their dtype",
        f"the last {plural(missing, 'bit')} of each number are 0: they were rounded",
        hint="Which line rounds the numbers, or computes with less exact ones?",
    )


def finite(record: Record, name: str) -> Failure | None:
    """The failure of the first number that is finite where the reference's is not.

    A mean of infinite numbers is infinite, or NaN: that depends on how it is computed.
    """
    import numpy as np

    for leaf, want in zip(seen(record).values[name], wanted(record).values[name], strict=False):
        if leaf.data is None or want.data is None or leaf.shape != want.shape:
            continue
        mine, right = (np.ravel(load(one.data or b"")) for one in (leaf, want))
        wrong = np.isfinite(mine) & ~np.isfinite(right)
        if wrong.any():
            expected = f"{label(name, leaf.path)} is {right[wrong][0]}"
            return Failure(expected, f"{mine[wrong][0]:.6g}")
    return None


def renamed(failure: Failure, name: str, word: str) -> Failure:
    """The failure, in which the value that a drive kept as `name` is called `word`.

    Of "params after step 1 of run 0", nothing but the word is left: `params['b1']`.
    """
    before, _, after = label(name, "").strip("`").partition("`")
    expected, observed = (
        text.replace(name, word).replace(f"`{before}", f"`{word}").replace(after or "\0", "")
        for text in (failure.expected, failure.observed)
    )
    return replace_in(failure, expected=expected, observed=observed)


WERE_EXCHANGED = "were two values exchanged?"
IN_ANOTHER_ORDER = "are the values in another order?"


def _of_another_name(name: str, mine: Observed, theirs: Observed) -> Failure | None:
    """The failure if a tree has the paths of another one that was asked for, not its own."""
    right = {other: _paths_of(theirs, other) for other in theirs.values}
    place, passed = name, list[str]()
    while place not in passed:
        got = _paths_of(mine, place)
        if len(got) < 2 or got == right[place]:
            return None
        passed.append(place)
        whose = (one for one in right if one != place and right[one] == got and one in mine.values)
        if (found := next(whose, None)) is None:
            return None  # what stands here belongs nowhere
        place = name if right[name] == got else found
    if place != name:
        return None  # two of them have the structure of one
    other = label(next(one for one in right if right[one] == _paths_of(mine, name)), "")
    return Failure(
        f"{label(name, '')} is {form_of(theirs.values[name])}",
        f"it has the structure of {other}: "
        f"{WERE_EXCHANGED if len(passed) == 2 else IN_ANOTHER_ORDER}",
        (),
        FORM,
    )


def _paths_of(observed: Observed, name: str) -> list[str]:
    return [leaf.path for leaf in observed.values[name]]


def _other_form(name: str, mine: Observed, theirs: Observed) -> Failure | None:
    """The failure if a tree is made of other nodes than the reference's, though named alike.

    Lists and tuples are alike, and so are all kinds of dicts.
    """
    got, wanted = mine.forms.get(name, []), theirs.forms.get(name, [])
    if got == wanted or [form == "*" for form in got] != [form == "*" for form in wanted]:
        return None  # trees of another shape: their paths say more
    mine_is, theirs_is = (
        KINDS.get(form, form)
        for form in next(pair for pair in zip(got, wanted, strict=True) if len({*pair}) == 2)
    )
    pairs = zip(mine.values[name], theirs.values[name], strict=False)
    if other := next((pair for pair in pairs if pair[0].path != pair[1].path), None):
        if got[0] != wanted[0]:
            expected = f"{label(name, '')} is {form_of(theirs.values[name])}"
            return Failure(expected, f"it is {mine_is}", (), FORM)
        here, asked = (leaf.path for leaf in other)
        observed = f"`{here}` stands in its place: {mine_is}, not {theirs_is}"
        return Failure(f"{label(name, '')} has `{asked}`", observed, (), FORM)
    return Failure(f"{label(name, '')} holds {theirs_is}", f"{mine_is} stands there", (), FORM)


KINDS = {"sequence": "a list or tuple", "mapping": "a dict"}
"""Kinds of nodes of a tree, in words."""


def waiting(record: Record, *names: str) -> Failure | None:
    """The failure of the first array of these values that lies in another memory of its device.

    A program does not take it there, and `jax.numpy` does not compute with it.
    """
    for name in names:
        for leaf in seen(record).values[name]:
            if leaf.kind == "jax" and in_memory(leaf):
                expected = f"{label(name, leaf.path)} is in device memory"
                return Failure(expected, f"it is in {leaf.memory_kind} memory")
    return None


def other_order(leaf: Leaf, wanted: Leaf) -> str:
    """The devices of an array in their order, if the reference's lie in another one; or "".

    Both arrays lie on the same devices. No program takes both of them.
    """
    mine, right = (list(one.parts) for one in (leaf, wanted))
    return "" if mine == right else f"{', '.join(map(str, mine))}, not {', '.join(map(str, right))}"


def other_parts(leaf: Leaf, wanted: Leaf) -> str:
    """Which device holds another part of an array than of the reference's, or "".

    Shapes of shards and counts of devices do not show that: the parts may be exchanged. Both
    arrays have the same shape, and lie on the same devices.
    """
    for device, part in wanted.parts.items():
        if leaf.parts.get(device) != part:
            return f"device {device} holds {part_in_words(leaf, device)}, not " + part_in_words(
                wanted, device
            )
    return ""


def differing_output(
    record: Record,
    name: str,
    *,
    rtol: float,
    atol: float,
    any_float: Sequence[str] = (),
    part: str = "",
) -> Failure | None:
    """Compare what a program of the submission gave with what the reference's gave.

    Both ran on the same secret inputs, in a process that never saw the learner's Python.
    Results at the paths `any_float` may have another floating-point type. Only those are compared
    whose paths begin with `part`. Returns None also if one of them did not run:
    `compiled_program` says why.
    """
    mine, theirs = record.measured.get(name), record.reference_measured.get(name)
    if mine is None or theirs is None or not (mine.outputs and theirs.outputs):
        return None
    expected = {leaf.path: leaf.dtype for leaf in theirs.outputs if leaf.path in any_float}
    outputs = []
    for leaf in mine.outputs:
        if "float" in leaf.dtype and leaf.path in expected:
            leaf = replace(leaf, dtype=expected[leaf.path])
        outputs.append(leaf)
    called, word, rest = name.partition(" of ")  # "step of more layers"
    return compare(
        f"{called}(...){word}{rest}",
        [leaf for leaf in outputs if leaf.path.startswith(part)],
        [leaf for leaf in theirs.outputs if leaf.path.startswith(part)],
        "",
        "",
        rtol=rtol,
        atol=atol,
        before=given(record, name),
    )
