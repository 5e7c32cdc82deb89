"""Compares arrays in records, which hold their values as `.npy` bytes.

Expected values come from the reference's worker, observed ones from the learner's. Neither is
trusted: nothing is unpickled. There is no JAX here, and NumPy is imported inside functions, so
that the CLI starts without it.
"""

import io
import math
import re
from collections.abc import Sequence
from dataclasses import replace as replace_fields
from typing import TYPE_CHECKING

from msgspec.structs import replace

from grader.judging.checking import Failure
from grader.judging.differences import OF_ALL, close, explanation
from grader.judging.words import SAID, plural, typed, where
from grader.records.record import Leaf

MAX_PATHS, MAX_LEAVES = 5, 200
COPIES = 1e-6
"""By how much copies of a part may differ, relative to its largest number."""
FORM = (
    "Compare what the function returns with its docstring: how many values, in which order, of "
    "which type and shape?"
)
"""The hint where a value has another form than was asked for: no hint about numbers helps."""
COUNTED = (
    "What is there is right, and in its order. Which round of a loop, or which item, is left out, "
    "or comes once too often?"
)
"""The hint where a list has the right values, but for some at one of its ends."""
EXCHANGED = "are exchanged"
"""What is said of two arrays that stand in each other's place."""
ANOTHERS = "it holds what belongs to"
"""What is said of an array that has the values of another, whose name follows."""
LEFT_OUT = "is a part before them left out?"
"""What a failure asks where the arrays of a tree stand in an earlier part than they belong to."""
UNCHANGED = "A new array is asked for. Which line computes it, and does the result get out?"
"""The hint where an array is what went in."""
CHANGE = "What is asked for is the old value plus its change. Which of them is returned?"
"""The hint where an array is what should have been added to the one that went in."""
OF_WHAT_WENT_IN = (UNCHANGED, CHANGE)
"""The hints of a result that is told by what went in: the line that returns it is the place."""
ONE_OBJECT = "all entries hold the same values, as if one object were put in each time"
_APART = (" of ", " after ", " on ", " in ")
"""Words that end the name of a value and begin what it belongs to."""
_INDEX, _STEP = re.compile(r"\[(\d+)\]"), re.compile(r"\[[^\]]*\]|\.\w+")

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def load(data: bytes) -> "NDArray[np.generic]":
    """Read one `.npy`; never unpickles, never opens an archive.

    Raises:
      ValueError: the bytes are not a plain array, or ask for more memory than there is.
    """
    from numpy.lib import format as npy

    try:
        array: NDArray[np.generic] = npy.read_array(io.BytesIO(data), allow_pickle=False)
    except (EOFError, MemoryError, OverflowError, TypeError) as error:
        raise ValueError(str(error)) from error
    return array


def dump(array: "NDArray[np.generic]") -> bytes:
    """Write one plain array as `.npy`."""
    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def compare(
    name: str,
    mine: Sequence[Leaf],
    theirs: Sequence[Leaf],
    my_tree: str,
    their_tree: str,
    *,
    rtol: float,
    atol: float,
    before: Sequence[Leaf] = (),
) -> Failure | None:
    """The first difference between two described pytrees, None when there is none.

    What would explain it is said beside it, if something fits: `before` are the values from
    which these were to be made.
    """
    if [leaf.path for leaf in mine] != [leaf.path for leaf in theirs]:
        return _structure_failure(name, mine, theirs, my_tree, their_tree)
    for leaf, want in zip(mine, theirs, strict=True):
        failure = _compare_leaf(label(name, leaf.path), leaf, want, rtol, atol)
        if failure:
            failure = _explained(failure, leaf, mine, theirs, rtol, atol)
            return _of_what_went_in(failure, leaf, want, before)
    return None


def _of_what_went_in(failure: Failure, leaf: Leaf, want: Leaf, before: Sequence[Leaf]) -> Failure:
    """The failure, with the word that the value is one of those that went in, or lacks it."""
    went_in = [one for one in before if one.data == leaf.data and one.shape == leaf.shape]
    if leaf.data is None or not went_in or not _tells(leaf):
        return _change_alone(failure, leaf, want, before)
    observed = failure.observed.partition(", and ")[0]
    observed = f"{observed}: the array is what went in, unchanged"
    return replace_fields(failure, observed=observed, hint=failure.hint or UNCHANGED)


def _change_alone(failure: Failure, leaf: Leaf, want: Leaf, before: Sequence[Leaf]) -> Failure:
    """The failure, with the word that the value is what should have been added to what went in."""
    import numpy as np

    got, right = _values(leaf), _values(want)
    if got is None or right is None or got.size < 2 or got.dtype.kind != "f":
        return failure
    olds = (_values(one) for one in before[:MAX_LEAVES] if one.shape == leaf.shape)
    if any(old is not None and close(np.add(got, old), right) for old in olds):
        observed = failure.observed.partition(", and ")[0]
        observed = f"{observed}: it is the change alone, without what went in"
        return replace_fields(failure, observed=observed, hint=failure.hint or CHANGE)
    return failure


def label(name: str, path: str) -> str:
    """`` `losses[0]` of the first run``: a leaf of what a drive kept as "losses of the first run".

    A number after the name is left out: "losses of 17". A path into "params and state" begins
    with the number of one of them, which is left out, too.
    """
    head, word, tail = next(
        (name.partition(word) for word in sorted(_APART, key=name.find) if word in name),
        (name, "", ""),
    )
    number = _INDEX.match(path)
    names = head.split(" and ")
    if number and len(names) > 1 and int(number[1]) < len(names):
        head, path = names[int(number[1])], path[number.end() :]
    after = "" if tail.isdigit() else f"{word}{tail}"  # a number alone says nothing
    return f"`{head.strip()}{path}`{after}"


def _explained(
    failure: Failure,
    leaf: Leaf,
    mine: Sequence[Leaf],
    theirs: Sequence[Leaf],
    rtol: float,
    atol: float,
) -> Failure:
    """The failure with what would explain it, and the hint that this asks for."""
    index = next(n for n, one in enumerate(mine) if one is leaf)
    words = _of_list(mine, theirs) or _all_alike(mine, theirs)
    words = words or _exchanged(index, mine, theirs, rtol, atol)
    words = words or _of_leaf(leaf, theirs[index])
    form = leaf.shape != theirs[index].shape or _what(leaf) != _what(theirs[index])
    hint = FORM if form or words.endswith(EXCHANGED) else ""
    observed = failure.observed
    if words:  # how many values differ adds nothing where all of them are known
        counted = observed.partition(", and ")[0] if words in OF_ALL else observed
        observed = f"{counted}: {words}"
    return Failure(failure.expected, observed, failure.culprits, hint)


def _of_list(mine: Sequence[Leaf], theirs: Sequence[Leaf]) -> str:
    """What would explain how two lists of numbers differ, seen as a whole; else ""."""
    if len(mine) < 2 or not _is_flat(mine):
        return ""
    got, wanted = _stacked(mine), _stacked(theirs)
    return "" if got is None or wanted is None else explanation(got, wanted)


def _all_alike(mine: Sequence[Leaf], theirs: Sequence[Leaf]) -> str:
    """What is said of a list of trees that are all the same and should differ; else ""."""
    got, wanted = _entries(mine), _entries(theirs)
    same = len(got) > 1 and len(set(got)) == 1 < len(set(wanted)) and len(got[0]) > 1
    return ONE_OBJECT if same else ""


def _entries(leaves: Sequence[Leaf]) -> list[tuple[bytes | None, ...]]:
    """The values of each entry of a list, nothing if the tree is no list."""
    found: dict[str, list[bytes | None]] = {}
    for leaf in leaves:
        found.setdefault(_outer(leaf.path), []).append(leaf.data)
    return [tuple(entry) for entry in found.values()] if all(map(_INDEX.match, found)) else []


def _of_leaf(leaf: Leaf, want: Leaf) -> str:
    got, wanted = _values(leaf), _values(want)
    return "" if got is None or wanted is None else explanation(got, wanted)


def _values(leaf: Leaf) -> "NDArray[np.generic] | None":
    """The values of a leaf, None if they cannot be read or belong to another shape."""
    try:
        values = load(leaf.data or b"")
    except ValueError:
        return None
    return values if values.shape == leaf.shape and values.dtype.kind in "biuf" else None


def _stacked(leaves: Sequence[Leaf]) -> "NDArray[np.generic] | None":
    """Single numbers as one array."""
    import numpy as np

    values = [_values(leaf) for leaf in leaves]
    numbers = [float(value) for value in values if value is not None and value.shape == ()]
    return np.array(numbers) if len(numbers) == len(leaves) else None


def _exchanged(
    index: int, mine: Sequence[Leaf], theirs: Sequence[Leaf], rtol: float, atol: float
) -> str:
    """With which other leaf this one is exchanged, or whose values it holds; else ""."""
    leaf = mine[index]
    for other, want in enumerate(theirs[:MAX_LEAVES]):
        if other == index or want.shape != leaf.shape:
            continue
        if _compare_leaf("", leaf, want, rtol, atol):
            continue
        if mine[other].shape == theirs[index].shape and not _compare_leaf(
            "", mine[other], theirs[index], rtol, atol
        ):
            return f"`{leaf.path}` and `{want.path}` {EXCHANGED}"
        if _tells(want):
            return f"{ANOTHERS} `{want.path}`"
    return ""


def _tells(leaf: Leaf) -> bool:
    """Whether a leaf holds other values than 0 and 1, which many arrays begin with."""
    values = _values(leaf)
    return values is not None and bool(((values != 0) & (values != 1)).any())


def _structure_failure(
    name: str, mine: Sequence[Leaf], theirs: Sequence[Leaf], my_tree: str, their_tree: str
) -> Failure:
    """A failure that counts the values if both trees are flat, and else names what differs."""
    if _is_flat(mine) and _is_flat(theirs):
        got, wanted = _stacked(mine), _stacked(theirs)
        words = "" if got is None or wanted is None else explanation(got, wanted)
        observed = plural(len(mine), "value") + (f": {words}" if words else "")
        hint = COUNTED if words else FORM
        return Failure(f"{label(name, '')} has {plural(len(theirs), 'value')}", observed, (), hint)
    if part := _part_of_another_form(name, mine, theirs):
        return Failure(*part, (), FORM)
    expected, observed = f"{label(name, '')} is {form_of(theirs)}", f"it is {form_of(mine)}"
    if observed == f"it is {form_of(theirs)}" or not mine:
        return Failure(*_other_paths(name, mine, theirs, my_tree, their_tree), (), FORM)
    if words := _of_another_length(mine, theirs):
        observed += f": {words}"
    if _keys(mine) and (lacking := _keys(theirs) - _keys(mine)):
        observed += f", without {_paths([f'{key[2:-2]}' for key in sorted(lacking)])}"
    if _keys(theirs) and (unasked := _keys(mine) - _keys(theirs)):
        observed += f"; nobody asked for {_paths(sorted(unasked))}"
    return Failure(expected, observed, (), FORM)


def _of_another_length(mine: Sequence[Leaf], theirs: Sequence[Leaf]) -> str:
    """Which entries a list of trees of numbers lacks, or has more, if all its parts say so."""
    got, wanted = _columns(mine), _columns(theirs)
    pairs = [(_stacked(got[path]), _stacked(wanted[path])) for path in got if path in wanted]
    words = {explanation(a, b) for a, b in pairs if a is not None and b is not None}
    return words.pop() if len(words) == 1 and len(pairs) == len(wanted) else ""


def _columns(leaves: Sequence[Leaf]) -> dict[str, list[Leaf]]:
    """The leaves of a list of trees by the path inside an entry; nothing if it is no list."""
    found: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        index = _INDEX.match(leaf.path)
        if index is None:
            return {}
        found.setdefault(leaf.path[index.end() :], []).append(leaf)
    return found


def _part_of_another_form(
    name: str, mine: Sequence[Leaf], theirs: Sequence[Leaf]
) -> tuple[str, str] | None:
    """(expected, observed) of a part that is more than the array it should be, or holds nothing."""
    for want in theirs:
        inner = [leaf for leaf in mine if want.path and _is_inside(leaf.path, want.path)]
        if inner:
            parts = [replace(leaf, path=leaf.path[len(want.path) :]) for leaf in inner]
            single = form_of([replace(want, path="")])
            return f"{label(name, want.path)} is {single}", f"it is {form_of(parts)}"
    there, asked = ({_outer(leaf.path): None for leaf in tree} for tree in (mine, theirs))
    lost = [part for part in asked if part not in there and _INDEX.fullmatch(part)]
    if not lost or list(asked)[-1] not in there:  # in the second case there are too few
        return None
    parts = [replace(x, path=x.path[len(lost[0]) :]) for x in theirs if _outer(x.path) == lost[0]]
    expected = f"{label(name, lost[0])} is {form_of(parts)}"
    return expected, "it holds nothing: is it empty, or None?"


def _other_paths(
    name: str, mine: Sequence[Leaf], theirs: Sequence[Leaf], my_tree: str, their_tree: str
) -> tuple[str, str]:
    """(expected, observed) of trees that are of one form in words, or of nothing at all."""
    got, wanted = [leaf.path for leaf in mine], [leaf.path for leaf in theirs]
    missing = [path for path in wanted if path not in set(got)]
    surplus = [path for path in got if path not in set(wanted)]
    if not (missing or surplus):
        return f"{label(name, '')} is a {_tree(their_tree)}", f"a {_tree(my_tree)}"
    here, should, both = _exchanged_parts(got, wanted)
    if both:
        expected = f"{label(name, '')} has its values in the order that is asked for"
        return expected, f"`[{here}]` and `[{should}]` are exchanged"
    if here != should:
        expected = f"{label(name, '')} has arrays at `[{should}]`"
        return expected, f"they stand at `[{here}]`{f': {LEFT_OUT}' * (here < should)}"
    said = [f"it has no {_paths(missing)}"] if missing else []
    said += [f"it has {_paths(surplus)}, for which nobody asked"] if surplus else []
    expected = f"{label(name, '')} has {_paths(missing) or f'no {_paths(surplus)}'}"
    return expected, "; ".join(said)


def _keys(leaves: Sequence[Leaf]) -> set[str]:
    """The outer names of a dict, `['w']`; nothing for a list, a tuple or an object."""
    return {key for leaf in leaves if (key := _outer(leaf.path)).startswith("['")}


def _exchanged_parts(got: Sequence[str], wanted: Sequence[str]) -> tuple[int, int, bool]:
    """Which part of a sequence of trees stands where another belongs, and whether both do.

    The two numbers are equal if there is none.
    """
    parts = {path: match for path in (*got, *wanted) if (match := _INDEX.match(path))}
    if len(parts) < len({*got, *wanted}):
        return 0, 0, False
    count = max(int(match[1]) for match in parts.values()) + 1
    for a in range(min(count, MAX_PATHS)):
        for b in range(a + 1, min(count, MAX_PATHS)):
            other = {str(a): str(b), str(b): str(a)}
            moved = [
                f"[{other.get(parts[path][1], parts[path][1])}]{path[parts[path].end() :]}"
                for path in got
            ]
            if sorted(moved) == sorted(wanted):
                there = {parts[path][1] for path in got}
                here, should = (a, b) if str(a) in there else (b, a)
                return here, should, {str(a), str(b)} <= there
    return 0, 0, False


def form_of(leaves: Sequence[Leaf]) -> str:
    """What a tree is on the outside: "one array float32[3]", "2 values", "a dict of `b`, `w`"."""
    if [leaf.path for leaf in leaves] == [""]:
        what = _what(leaves[0])
        return f"one {what.partition(' ')[2]}" if what.startswith("an array") else what
    outer = list(dict.fromkeys(_outer(leaf.path) for leaf in leaves))
    if all(_INDEX.fullmatch(key) for key in outer):
        return plural(len(outer), "value") if len(outer) > 1 else "a list or tuple of 1 value"
    if all(key.startswith("['") for key in outer):
        names = [f"`{key[2:-2]}`" for key in outer]
        return f"a dict of {', '.join(names[:MAX_PATHS])}{', ...' if names[MAX_PATHS:] else ''}"
    return f"an object with {', '.join(f'`{key}`' for key in outer[:MAX_PATHS])}"


def _is_inside(path: str, outer: str) -> bool:
    """Whether a path leads into what stands at `outer`."""
    return path.startswith(outer) and path[len(outer) : len(outer) + 1] in ("[", ".")


def _outer(path: str) -> str:
    """The first step of a path: `[0]`, `['w']` or `.mu`."""
    found = _STEP.match(path)
    return found[0] if found else path


def _is_flat(leaves: Sequence[Leaf]) -> bool:
    """Whether the leaves are those of one list or tuple."""
    return [leaf.path for leaf in leaves] == [f"[{index}]" for index in range(len(leaves))]


def _paths(paths: Sequence[str]) -> str:
    shown = ", ".join(f"`{path}`" for path in paths[:MAX_PATHS])
    return shown + (f" and {len(paths) - MAX_PATHS} more" if len(paths) > MAX_PATHS else "")


def _tree(text: str) -> str:
    """The structure without JAX's word for it: a single value, or `{'a': *, 'b': *}`."""
    inner = text.removeprefix("PyTreeDef(").removesuffix(")")
    return "single value" if inner == "*" else f"tree `{inner}`"


def _compare_leaf(name: str, leaf: Leaf, want: Leaf, rtol: float, atol: float) -> Failure | None:
    if leaf.kind == "other" or _is_text_or_none(leaf) != _is_text_or_none(want):
        return Failure(f"{name} is {_what(want)}", _what(leaf))
    if leaf.deleted:
        return Failure(f"{name} can be read", "its buffer was donated or deleted")
    if leaf.unlike is not None and unlike_copies(leaf):
        device, difference = leaf.unlike
        return Failure(
            f"{name} is the same on all devices that hold it",
            f"device {device} holds other numbers; they differ by up to {difference:.2g}",
        )
    if leaf.shape != want.shape:
        return Failure(f"{name} has shape {want.shape}", f"shape {leaf.shape}, {where(leaf)}")
    if leaf.kind != "python" and want.kind != "python" and leaf.dtype != want.dtype:
        return Failure(f"{name} has dtype {want.dtype}", f"dtype {leaf.dtype}")
    return _compare_values(name, leaf, want, rtol, atol)


def unlike_copies(leaf: Leaf) -> bool:
    """Whether the copies of an array differ by more than a GPU may round each in its own way."""
    if leaf.unlike is None:
        return False
    values = _values(leaf)
    largest = 0.0 if values is None else float(abs(values[abs(values) < math.inf]).max(initial=0))
    return leaf.unlike[1] > COPIES * largest


def drifted(leaf: Leaf) -> bool:
    """Whether the copies of an array differ, if only by a bit: CPUs that compute the same agree."""
    return leaf.unlike is not None and (leaf.platform == "cpu" or unlike_copies(leaf))


def _is_text_or_none(leaf: Leaf) -> bool:
    """Whether a leaf cannot be compared as a number."""
    return leaf.kind == "python" and leaf.type in ("str", "NoneType")


def _what(leaf: Leaf) -> str:
    if leaf.kind == "other":
        return typed(leaf.type) if leaf.type in SAID else f"an object of type `{leaf.type}`"
    if leaf.kind == "python":
        return "None" if leaf.type == "NoneType" else f"a Python {leaf.type}"
    return f"an array {leaf.dtype}{list(leaf.shape)}"


def _compare_values(name: str, leaf: Leaf, want: Leaf, rtol: float, atol: float) -> Failure | None:
    if leaf.data is None or want.data is None:
        return Failure(f"{name} has values", "its values could not be read")
    if leaf.data == want.data:
        return None  # the same bytes as the reference's: NumPy, which takes a while, is not needed
    import numpy as np

    try:
        got, expected = load(leaf.data), load(want.data)
    except ValueError as error:
        return Failure(f"{name} is a plain array", f"unreadable values ({error})")
    if got.shape != want.shape:
        return Failure(f"{name} has shape {want.shape}", f"values of shape {got.shape}")
    if got.dtype.kind not in "biufc" or expected.dtype.kind not in "biufc":
        same = bool(np.array_equal(got, expected))
        return None if same else Failure(f"{name} is {expected.tolist()!r}", repr(got.tolist()))
    if got.dtype.kind in "biu" and expected.dtype.kind in "biu":
        close = np.equal(got, expected)  # whole numbers are not rounded
    else:
        close = np.isclose(got, expected, rtol=rtol, atol=atol * _scale(expected), equal_nan=True)
    return None if close.all() else _value_failure(name, got, expected, ~close)


def _scale(expected: "NDArray[np.generic]") -> float:
    """The largest finite magnitude, if that is below 1: small numbers are compared as small.

    Zeros are compared with a millionth.
    """
    import numpy as np

    magnitudes = np.abs(expected[np.isfinite(expected)])
    return float(np.clip(magnitudes.max(initial=0.0), 1e-6, 1.0))


def _value_failure(
    name: str,
    got: "NDArray[np.generic]",
    expected: "NDArray[np.generic]",
    wrong: "NDArray[np.bool_]",
) -> Failure:
    import numpy as np

    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = f"{name} at [{', '.join(map(str, index))}]" if index else name
    wanted, observed = figures(expected[index].item(), got[index].item())
    nan = int((np.isnan(got) & wrong).sum())
    if nan and not np.isnan(expected[index]):
        observed = f"{nan} NaN of {plural(wrong.size, 'value')}" if index else "NaN"
    elif wrong.size > 1:
        observed += f", and {int(wrong.sum())} of {wrong.size} values differ"
    return Failure(f"{place} is {wanted}", observed)


def figures(expected: complex, observed: complex) -> tuple[str, str]:
    """Two numbers as short texts that differ."""
    if isinstance(expected, int) and isinstance(observed, int):  # a bool is one too
        return str(expected), str(observed)
    for digits in range(6, 17):
        texts = f"{expected:.{digits}g}", f"{observed:.{digits}g}"
        if texts[0] != texts[1]:
            return texts
    return repr(expected), repr(observed)
