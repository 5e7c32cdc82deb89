"""Compares steps of training: what a step added to params, beside what the reference's step did.

A step is small beside the params, so the params after it say little. Most functions here say what
would explain a step that is another one: its length, its direction, a wrong divisor.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from grader.judging.arrays import figures, load, unlike_copies
from grader.judging.checking import Failure
from grader.judging.evidence import given, seen, wanted
from grader.judging.results import differing_leaf
from grader.records.record import Leaf, Record


def step_ratio(record: Record, before: str, after: str) -> float | None:
    """The length of the submission's step, from params `before` to `after`, in reference steps.

    None if both steps are the same, or if they differ in more than their length.
    """
    mine, theirs = seen(record).values, wanted(record).values
    return _ratio(_step(mine[before], mine[after]), _step(theirs[before], theirs[after]))


UPHILL = "The gradient says where the loss grows. By which sign do the params change?"
GRADIENT = "A step returns the old params minus a rate times the gradient. Which is returned?"
TURNED = (UPHILL, GRADIENT)
"""The hints of `turned`. Nothing else makes such numbers."""


def turned(record: Record, before: str, after: str) -> tuple[str, str]:
    """What is wrong with a step that goes the other way, or with gradients in place of params.

    Returns it in words, with its hint of `TURNED`; two empty texts where it is neither.
    """
    if (ratio := step_ratio(record, before, after)) and ratio < 0:
        return f"; the first step {step_in_words(ratio)}", UPHILL
    theirs = wanted(record).values
    step = _step(theirs[before], theirs[after])
    times = _ratio(_vector(seen(record).values[after]), step)
    if ratio is None and times and times < 0:
        return f"; that is the gradient, not the params: {times:.4g} times the right step", GRADIENT
    return "", ""


def change_of(record: Record, before: str, after: str) -> Any:
    """What was added to all arrays of a value of the submission, as one vector; None if unknown."""
    mine = seen(record).values
    return _step(mine[before], mine[after])


AFTER_THE_STEP = "that is the loss after the step"
BEFORE_IT = "The loss is the one that the gradient belongs to: of the params before the step."
LOSS_TOO = (
    "Step and loss are wrong by the same factor: the mistake is in the loss itself. By what is its "
    "sum divided?"
)


def loss_too(record: Record, name: str, ratio: float) -> bool:
    """Whether a loss, or each of several, is wrong by the same factor as a step is."""
    mine, theirs = (_vector(side.values.get(name, ())) for side in (seen(record), wanted(record)))
    found = _ratio(mine, theirs)
    return found is not None and abs(found / ratio - 1) < 1e-2


def is_the_others(record: Record, name: str, other: str) -> bool:
    """Whether a number of the submission is not its own, but another one of the reference's."""
    import numpy as np

    mine, theirs = (
        _vector(side.values.get(key, ()))
        for side, key in ((seen(record), name), (wanted(record), other))
    )
    same_form = mine is not None and theirs is not None and mine.shape == theirs.shape
    return same_form and bool(np.allclose(mine, theirs, rtol=1e-4))


def step_in_words(ratio: float) -> str:
    """How a step is, whose `step_ratio` to the reference's is known."""
    if abs(ratio + 1) < 1e-2:
        return "goes the other way"
    return f"is {ratio:.4g} times as long as the reference's"


def change_ratio(
    before: Sequence[Leaf], mine: Sequence[Leaf], theirs: Sequence[Leaf], keep: float = 1
) -> float | None:
    """How much the submission's values changed, in changes of the reference's; see `step_ratio`.

    A change is what was added to `keep` times the old values.
    """
    return _ratio(_step(before, mine, keep), _step(before, theirs, keep))


def change_of_all(
    before: Sequence[Leaf], mine: Sequence[Leaf], theirs: Sequence[Leaf]
) -> float | None:
    """By how much each value changed, up or down, if it is the same for all that should change."""
    import numpy as np

    step, right = _step(before, mine), _step(before, theirs)
    if step is None or right is None or step.shape != right.shape:
        return None
    sizes = np.abs(step[np.abs(right) > NOISE])
    alike = len(sizes) > 1 and bool(np.ptp(sizes) <= NOISE * 10)
    return float(sizes[0]) if alike and sizes[0] > NOISE else None


NOISE = 1e-4
"""Changes of params are larger than this, but for what is left of a gradient that is 0."""


def change_error(
    before: Sequence[Leaf], mine: Sequence[Leaf], theirs: Sequence[Leaf], keep: float = 1
) -> float | None:
    """How far the submission's change of values is from the reference's; see `step_error`.

    A change is what was added to `keep` times the old values.
    """
    return _error(_step(before, mine, keep), _step(before, theirs, keep))


def step_error(record: Record, before: str, after: str) -> float | None:
    """How far the submission's step is from the reference's, in lengths of that step; or None."""
    mine, theirs = seen(record).values, wanted(record).values
    return _error(_step(mine[before], mine[after]), _step(theirs[before], theirs[after]))


def output_error(record: Record, name: str) -> float | None:
    """How far all results of a program are from the reference's, in lengths of those; or None."""
    mine, theirs = record.measured.get(name), record.reference_measured.get(name)
    if mine is None or theirs is None:
        return None
    return _error(_vector(mine.outputs), _vector(theirs.outputs))


def _error(mine: Any, theirs: Any) -> float | None:
    import numpy as np

    if mine is None or theirs is None or mine.shape != theirs.shape or not theirs.any():
        return None
    return float(np.linalg.norm(mine - theirs) / np.linalg.norm(theirs))


def _vector(leaves: Sequence[Leaf]) -> Any:
    """All values as one vector; None if they cannot be read."""
    import numpy as np

    try:
        return np.concatenate([np.ravel(load(leaf.data or b"")) for leaf in leaves])
    except (ValueError, TypeError):
        return None


def output_step_ratio(record: Record, name: str, part: str, keep: float = 1) -> float | None:
    """`step_ratio` of the arrays below the path `part` of a program's first result.

    That result replaces the program's first argument, and has its form. A step is what was added to
    `keep` times the old arrays.
    """
    found = _outputs(record, name, re.escape(f"[0]{part}"))
    return found and change_ratio(*found, keep)


def gradient_ratio(record: Record, name: str) -> float | None:
    """`step_ratio` of the gradient of a program, by the first moments that Adam made of it."""
    found = _outputs(record, name, MEAN)
    return found and change_ratio(*found, 0.9)


SCALED = (
    "The loss is a mean over all rows, and its gradient is right as it is. By what is it "
    "multiplied, or divided?"
)


ROUNDED = 2**-13
"""By how much of its own length a step in float32 may differ from the reference's, in each array.
Right answers were seen to differ by 2**-19, gradients that are rounded to bfloat16 by 2**-9."""
PART, ULPS = 2**-14, 2**-21
"""By how much a number may change otherwise in a step of gradient descent: of the largest change of
its array, and of itself, which is what float32 rounds, four times over."""


def other_output_step(record: Record, name: str) -> Failure | None:
    """The failure for the first array of a program's first result whose step is another one.

    That result replaces the program's first argument, and has its form.
    """
    found = _outputs(record, name, r"\[0\]")
    return found and other_float32_step(*found)


def other_output_change(record: Record, name: str) -> Failure | None:
    """`other_change` of a program's first result, which is what became of its first argument."""
    if (found := _outputs(record, name, r"\[0\]")) is None:
        return None
    old, mine, theirs = found
    return other_change((old, mine), (old, theirs))


def _outputs(
    record: Record, name: str, path: str
) -> tuple[Sequence[Leaf], Sequence[Leaf], Sequence[Leaf]] | None:
    """What a program was given, what it gave, and what the reference's gave, below a path.

    The paths of what it was given are without that one. None if it did not run.
    """
    mine, theirs = record.measured.get(name), record.reference_measured.get(name)
    if mine is None or theirs is None:
        return None
    every = (given(record, name), mine.outputs, theirs.outputs)
    old, got, want = ([leaf for leaf in one if re.match(path, leaf.path)] for one in every)
    return [replace(leaf, path=re.sub(path, "", leaf.path, count=1)) for leaf in old], got, want


MOMENTS = 1e-5, 4e-6
"""By how much a first moment, or the root of a second one, may differ: of itself, and of the
largest in its array. Right answers were seen to differ by a tenth of that."""
MEAN, SQUARE = (
    rf"\[1\]\['[^']*'\]\[0\](\[{field}\]|\.{name})" for field, name in ((1, "mu"), (2, "nu"))
)
"""How the path of a moment begins in a program of Adam, whose second argument, and second result,
is {name: state}: by the field's name, or by its place where a program has no names."""


def other_output_moment(record: Record, name: str) -> Failure | None:
    """`other_moment` of the moments that a program of Adam returns."""
    for order, path in enumerate((MEAN, SQUARE), 1):
        if found := _outputs(record, name, path):
            _, mine, theirs = found
            if failure := other_moment("step(...)", zip(mine, theirs, strict=False), order):
                return failure
    return None


def waits_alone(record: Record, name: str) -> bool:
    """Whether all results of a program of Adam are right but those of one part without a gradient.

    A part is what params and state have under one name; the reference's first moments tell its
    gradient.
    """
    import numpy as np

    found = _outputs(record, name, ""), _outputs(record, name, MEAN)
    if found[0] is None or found[1] is None:
        return False
    _, mine, theirs = found[0]
    forms = [[(leaf.path, leaf.shape) for leaf in side] for side in (mine, theirs)]
    if forms[0] != forms[1] or not all(leaf.data for leaf in (*mine, *theirs)):
        return False
    wrong = {
        part[1]
        for leaf, right in zip(mine, theirs, strict=True)
        if (part := re.match(r"\[[01]\]\['([^']*)'\]", right.path))
        and not np.allclose(load(leaf.data or b""), load(right.data or b""), 1e-4, 1e-6)
    }
    pairs = zip(found[1][0], [x for x in theirs if re.match(MEAN, x.path)], strict=False)
    still = [
        np.allclose(np.multiply(0.9, load(old.data or b"")), load(new.data or b""), 1e-5, 0)
        for old, new in pairs
        if wrong == {new.path.split("'")[1]}
    ]
    return bool(still) and all(still)


OF_INFINITE = (
    "The squares of such errors are infinite, and their gradient is a number: the step goes along "
    "it as any other. Which line looks at the loss?"
)
OF_LOST = (
    "A row that is NaN makes the loss NaN, and all params: that is how one learns of it. Which "
    "line treats such a step as another one?"
)
OF_ONE_ROUND = (
    "Each param has a state of its own. Is what this line does done in each round of the loop, or "
    "once, after the last?"
)
OF_A_TUPLE = (
    "`adam.init` and `adam.update` give a tuple. The new state has the form of the old one: which "
    "line takes an entry out of the tuple?"
)


def lost_states(record: Record, name: str) -> tuple[str, str]:
    """What the states that a program returns lack, {name: state}, and its hint, if that is known.

    They are its second result.
    """
    mine, theirs = record.measured.get(name), record.reference_measured.get(name)
    if mine is None or theirs is None:
        return "", ""
    found = [[re.match(STATE, leaf.path) for leaf in one.outputs] for one in (mine, theirs)]
    states = [[part for part in one if part] for one in found]
    got, want = ({part[1]: None for part in one} for one in states)
    if got.keys() < want.keys() and got:
        held = ", ".join(got)
        return f"it has the state of {held} alone, and there are {len(want)}", OF_ONE_ROUND
    inner = {part[1] + part[2].removeprefix("[0]") for part in states[1]}
    if got.keys() == want.keys() and inner == {part[1] + part[2] for part in states[0]}:
        return "each of the new states is the first entry of a tuple, without the tuple", OF_A_TUPLE
    return "", ""


STATE = r"\[1\]\['([^']*)'\](.*)"
"""A path in the states that a program of Adam returns: the name of a param, and what follows."""
NO_GRADIENT = (
    "All that is wrong belongs to one part of the params, whose gradient is 0. Adam moves it all "
    "the same, by its averages, and counts the step. Which line leaves such a part as it was?"
)


def other_moment(name: str, pairs: Iterable[tuple[Leaf, Leaf]], order: int) -> Failure | None:
    """The failure for the first moment, mine or theirs, that is another one.

    An optimizer divides by the root of a second moment, whose `order` is 2: one that is small
    beside the others decides as much. Some of what is compared as numbers would pass for 0.
    """
    import numpy as np

    for leaf, right in pairs:
        mine, theirs = (load(one.data or b"").astype(np.float64) for one in (leaf, right))
        got, want = (np.sqrt(np.maximum(x, 0)) if order == 2 else x for x in (mine, theirs))
        most = MOMENTS[0] * abs(want) + MOMENTS[1] * abs(want).max(initial=0)
        near = abs(got - want) <= most  # a NaN is not
        if not near.all():
            index = tuple(int(i) for i in np.argwhere(~near)[0])
            place = f"`{name}{right.path}` at [{', '.join(map(str, index))}]"
            texts = figures(float(theirs[index]), float(mine[index]))
            observed = f"{texts[1]}, and {int((~near).sum())} of {near.size} values differ"
            which = ("first", "second")[order - 1]
            hint = SMALL if abs(mine[index]) < abs(theirs[index]) / 2 else IN_FULL
            return Failure(f"the {which} moment {place} is {texts[0]}", observed, hint=hint)
    return None


SMALL = (
    "Adam divides by the root of a second moment, so what a gradient adds to its moments counts, "
    "however small it is. What happens to small ones?"
)
IN_FULL = (
    "All of a step has the type of the params, and all digits of it, be it large or small. Which "
    "line makes a gradient, or what is made of it, another number?"
)


def other_float32_step(
    old: Sequence[Leaf], mine: Sequence[Leaf], theirs: Sequence[Leaf]
) -> Failure | None:
    """The failure for the first array whose step, in float32, is not the reference's."""
    if (found := other_step(old, mine, theirs, ROUNDED)) is None:
        return None
    path, apart = found
    by = f"1 part in {1 / apart:.0f} of" if apart < HALF else f"{apart:.2g} times"
    expected = f"a step changes `params{path}` as the reference does"
    return Failure(expected, f"it differs from that by {by} its length")


_Sides = tuple[Sequence[Leaf], Sequence[Leaf]]
"""The params of one side before a step, and after it."""


def differing_step(
    record: Record, name: str, before: str, *, rtol: float, atol: float
) -> Failure | None:
    """`differing_leaf` of params, or the failure where a step made others of those called `before`.

    Each side's step is judged by what it began with itself. Where the gradient is large, each of
    its sums is rounded by more than small params allow: they are right if the step is.
    """
    failure = differing_leaf(record, name, rtol=rtol, atol=atol, before=before)
    mine, theirs = (side(record).values for side in (seen, wanted))
    kinds = [[(x.path, x.shape, x.dtype) for x in side.get(name, ())] for side in (mine, theirs)]
    if kinds[0] != kinds[1] or any(x.data is None or unlike_copies(x) for x in mine[name]):
        return failure
    try:
        other = other_change((mine[before], mine[name]), (theirs[before], theirs[name]))
    except ValueError:  # the values are not those that the record says
        return failure
    return (failure or other) if other else None


def other_change(mine: _Sides, theirs: _Sides) -> Failure | None:
    """The failure for the first number that a step of gradient descent changes otherwise.

    `mine` and `theirs` are the params before and after, float32.
    """
    import numpy as np

    for leaves in zip(*mine, *theirs, strict=False):
        old, new, start, want = (load(x.data or b"").astype(np.float64) for x in leaves)
        right = want - start
        most = PART * abs(right).max(initial=0) + ULPS * abs(want)
        near = abs(new - old - right) <= most  # a NaN is not
        if not near.all():
            index = tuple(int(i) for i in np.argwhere(~near)[0])
            place = f"`params{leaves[0].path}` at [{', '.join(map(str, index))}]"
            texts = figures(float(right[index]), float((new - old)[index]))
            observed = f"{texts[1]}, and {int((~near).sum())} of {near.size} values differ"
            return Failure(f"a step changes {place} by {texts[0]}", observed, hint=IN_FULL)
    return None


HALF = 0.5
"""From this part on, a difference is told in lengths of the step."""


def other_step(
    old: Sequence[Leaf], mine: Sequence[Leaf], theirs: Sequence[Leaf], most: float
) -> tuple[str, float] | None:
    """The path of the first array whose step is not the reference's, and how far it is from it.

    That is a part of the step's own length, more than `most`. A step is small beside what is
    stepped, so that a comparison of the new params alone would take no step for a right one.
    """
    import numpy as np

    for start, got, right in zip(old, mine, theirs, strict=False):
        before, found, want = (load(leaf.data or b"") for leaf in (start, got, right))
        length = float(np.linalg.norm(np.subtract(want, before)))
        apart = float(np.linalg.norm(np.subtract(found, want)))
        if not apart <= most * length:  # a NaN is no step either
            return start.path, apart / length
    return None


def step_along(old: Sequence[Leaf], mine: Sequence[Leaf], theirs: Sequence[Leaf]) -> float:
    """How far the submission's step goes in the reference's direction, in lengths of that step.

    What rounding adds has no direction, and does not count. There may be more results than params.
    """
    step, right = (_step(old, found[: len(old)]) for found in (mine, theirs))
    return float(step @ right / (right @ right))


def _step(before: Sequence[Leaf], after: Sequence[Leaf], keep: float = 1) -> Any:
    """What was added to `keep` times all arrays, as one vector; None if they do not fit."""
    import numpy as np

    try:
        pairs = [
            (load(old.data or b""), load(new.data or b""))
            for old, new in zip(before, after, strict=True)
        ]
        return np.concatenate(
            [
                np.subtract(new, old if keep == 1 else np.multiply(keep, old)).ravel()
                for old, new in pairs
            ]
        )
    except (ValueError, TypeError, EOFError):
        return None


def _ratio(mine: Any, theirs: Any) -> float | None:
    """By which factor two vectors differ; None if there is none, or if it is 1."""
    import numpy as np

    if mine is None or theirs is None or mine.shape != theirs.shape or not theirs.any():
        return None
    if not np.isfinite(mine).all():
        return None
    ratio = float(mine @ theirs / (theirs @ theirs))
    close = 1e-2 * min(1, abs(ratio)) * float(abs(theirs).max())
    same = np.allclose(mine, ratio * theirs, rtol=1e-2, atol=close)
    return ratio if same and abs(ratio - 1) > 1e-2 else None
