"""The words a drive is written in: what it may ask to be observed, and what it refuses.

A drive is the half of an exercise that meets JAX (`grader/checks/exNN_slug/drive.py`). It
runs in a worker. `grader.worker.observer` answers what it asks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from grader.judging.words import plural, typed
from grader.records.record import Program


class Observe(Protocol):
    """What `drive()` may ask the worker to observe."""

    reference: bool
    """Whether this is the reference solution. What known mistakes come to is kept of it alone."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Label all events inside the block."""
        ...

    def mark(self) -> None:
        """Count one step; events carry the number of marks so far."""
        ...

    def waits(self, told: Callable[[list[Any]], None]) -> AbstractContextManager[None]:
        """A block in which `told` gets the arrays of each wait, poll or read that has ended."""
        ...

    def value(self, name: str, tree: Any, *, data: bool = True) -> None:
        """Keep a pytree: every leaf's placement, and its values if `data`."""
        ...

    def fact(self, name: str, value: Any) -> None:
        """Keep a plain JSON value."""
        ...

    def jitted(self, name: str, function: Any) -> bool:
        """Whether `function` is what jax.jit returns; `evidence.not_jitted` reads the answer."""
        ...

    def without_trace(self) -> None:
        """Go on without the second witness, where nothing that it sees is judged.

        What it keeps of a run lies in the host's memory, which an exercise may weigh.
        """
        ...

    def program(self, name: str, function: Any, *args: Any) -> Program:
        """Export `function` for `args` (arrays), without running it; returns what was exported.

        A function that `jax.jit` did not make is jitted first, without donation. Called
        again under the same name, it adds `args` as another set of inputs to run on.
        """
        ...

    def target(self, name: str, function: Any, *args: Any) -> None:
        """Export `function` for the machine of `--target`; without one, do nothing.

        As `program`, but the function is only compiled, so `args` may be of any size: give
        `jax.ShapeDtypeStruct`s with shardings over a mesh of `jax.devices()`, of which
        there are as many as the target has.
        """
        ...

    def unwatched(self) -> AbstractContextManager[None]:
        """A block whose events are the drive's own and do not count."""
        ...


class Drive(Protocol):
    """The module `drive.py` of an exercise, as a worker uses it."""

    def drive(self, submission: ModuleType, observe: Observe, rng: Any) -> None:
        """Run a submission on fresh inputs under observation.

        `rng` is a `numpy.random.Generator`, the same for submission and reference.
        """
        ...


class Stretch(NamedTuple):
    """One timed run of a loop."""

    steps: int
    unit: float
    """The latest figure of `TimedDrive.seconds_of_a_step`."""
    rng: Any
    """Draws what differs from run to run."""
    alike: Any
    """Draws what all runs of a comparison have alike."""


class TimedDrive(Drive, Protocol):
    """The module `drive.py` of an exercise with a `LoopTiming`."""

    def seconds_of_a_step(self, submission: ModuleType, rng: Any) -> float:
        """Seconds of one step: the unit that windows are sized in. Only the reference is timed."""
        ...

    def pace(self, submission: ModuleType, stretch: Stretch) -> Callable[[], list[float]]:
        """Prepare one timed run, and return what to time.

        The returned function runs the work and returns a flat list of floats, which is
        compared between the two sides.
        """
        ...

    def naive(self, *args: Any) -> Any:
        """What replaces the edited function in the control run."""
        ...


class Misused(Exception):
    """What the learner's code returned cannot be driven; raised inside `drive()`."""

    def __init__(self, expected: str, observed: str) -> None:
        super().__init__(observed)
        self.expected = expected
        self.observed = observed


def unpack(value: Any, count: int, promise: str) -> tuple[Any, ...]:
    """`value`, a tuple or list of `count` elements, as a tuple.

    `promise` reads like "`train` returns (params, losses)".

    Raises:
      Misused: it is anything else.
    """
    kind = tuple if isinstance(value, tuple) else list if isinstance(value, list) else None
    parts = tuple(kind.__iter__(value)) if kind else ()  # whatever a subclass says of itself
    if kind and len(parts) == count:
        return parts
    if kind:
        raise Misused(promise, f"it returned {plural(len(parts), 'value')}, not {count}")
    raise Misused(promise, f"it returned {named(value)}")


def own_list(value: Any, earlier: Sequence[Any], promise: str) -> None:
    """Nothing, if a list that a call returned is not one that an earlier call returned.

    Raises:
      Misused: it is, so what the earlier call returned is gone.
    """
    if isinstance(value, list) and any(value is one for one in earlier):
        raise Misused(promise, "a later call filled the list of an earlier one anew")


@contextmanager
def from_last(word: str, before: Any, value: Any, promise: str) -> Iterator[None]:
    """A block that goes on with `value`, which a call made of `before`, the tree called `word`.

    Raises:
      Misused: the block raised, and `value` has not the form of `before`.
    """
    try:
        yield
    except Exception as error:
        if found := _other_form(word, before, value):
            raise Misused(promise, found) from error
        raise


@contextmanager
def left_alone(function: str, given: Any) -> Iterator[None]:
    """A block that calls `function` with the tree `given`.

    Raises:
      Misused: it puts something else into that tree, takes something out, writes into an array of
        NumPy's, or deletes one of JAX's.
    """
    before, form = jax.tree.leaves(given), str(jax.tree.structure(given))
    numbers = [_of_numpy(leaf) for leaf in before]
    yield
    after, done = jax.tree.leaves(given), ""
    if list(map(id, before)) != list(map(id, after)):
        done = "it puts other arrays into it"
    elif str(jax.tree.structure(given)) != form:
        done = "it puts something that is no array into it, or takes it out"
    elif list(map(_of_numpy, after)) != numbers:
        done = "it writes other numbers into an array of it"
    elif any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in after):
        done = "it deletes the arrays in it"
    if done:
        raise Misused(f"`{function}` leaves its argument as it is", done)


def _of_numpy(leaf: Any) -> bytes:
    """The numbers of an array of NumPy's; nothing of what cannot be written into."""
    return leaf.tobytes() if isinstance(leaf, np.ndarray) else b""


def _other_form(word: str, before: Any, value: Any) -> str:
    """How the structure or the shapes of two trees differ, in words; or ""."""
    structures: list[Any] = [jax.tree.structure(tree) for tree in (before, value)]
    if structures[0] != structures[1]:
        return f"the first value that it returned is not a tree like `{word}`"
    mine, theirs = (jax.tree_util.tree_leaves_with_path(tree) for tree in (value, before))
    for (path, leaf), (_, want) in zip(mine, theirs, strict=True):
        shapes = [getattr(x, "shape", None) for x in (leaf, want)]
        if shapes[0] != shapes[1]:
            where = f"`{word}{jax.tree_util.keystr(path)}`"
            said = f"the new {where} has shape {shapes[0]}, and the old one {shapes[1]}"
            return said + _one_after_another(leaf, want)
    return ""


def _one_after_another(array: Any, before: Any) -> str:
    """That an array holds what each device returned, one after another, where it is so; or ""."""
    if not (isinstance(array, jax.Array) and array.ndim and array.ndim == before.ndim):
        return ""
    shard, count = array.sharding.shard_shape(array.shape), len(array.sharding.device_set)
    if count > 1 and shard == before.shape and array.shape[0] == count * before.shape[0]:
        return f": those of {count} devices, one after another, as `out_specs` that split give them"
    return ""


def same_tree(promise: str, word: str, asked: Any, tree: Any) -> None:
    """Nothing, if `tree` has the structure of `asked`, which is called `word`.

    Raises:
      Misused: it has another one. It names the first part that is something else, or the first
        array that only one of the two has.
    """
    structures: list[Any] = [jax.tree.structure(one) for one in (asked, tree)]
    if structures[0] == structures[1]:
        return
    if structures[1] in (flat := _flat(asked)) and structures[0] not in flat:
        held = f"the {len(jax.tree.leaves(asked))} arrays of `{word}`"
        raise Misused(promise, f"it is {named(tree)} of {held}, without the tree around them")
    if other := other_part(word, asked, tree):
        raise Misused(promise, other)
    lost, more = _only_in(asked, tree), _only_in(tree, asked)
    if not (lost or more):
        raise Misused(f"{promise}, {structures[0]}", str(structures[1]))
    said = (f"`{word}{more}`" * bool(more), f"no `{word}{lost}`" * bool(lost))
    raise Misused(promise, f"it has {', and '.join(filter(None, said))}")


def same_layout(word: str, tree: Any, layout: Any) -> None:
    """Nothing, if `layout`, made for the arrays of `tree`, says where those lie.

    They were placed as the learner's `layout` had said for their shapes. `word` is what it calls
    the tree.

    Raises:
      Misused: it says something else.
    """
    promise = "`layout` returns the same for arrays as for their shapes"
    same_tree(promise, word, tree, layout)
    named_arrays = jax.tree_util.tree_leaves_with_path(tree)
    for (path, array), place in zip(named_arrays, jax.tree.leaves(layout), strict=True):
        before = array.sharding
        if not (type(place) is type(before) and place.is_equivalent_to(before, array.ndim)):
            said = f"for an array, `{word}{jax.tree_util.keystr(path)}`, it returned "
            said += str(getattr(place, "spec", named(place)))
            raise Misused(promise, f"{said}, and {before.spec} for its shape")


def _flat(tree: Any) -> list[Any]:
    """The structures of a list and of a tuple of all arrays of a tree; none of a single one."""
    leaves = jax.tree.leaves(tree)
    return [jax.tree.structure(kind(leaves)) for kind in (list, tuple) if len(leaves) > 1]


def other_part(path: str, asked: Any, tree: Any) -> str:
    """The first part of a tree that is something else than in `asked`, in words; or ""."""
    structures: list[Any] = [jax.tree.structure(one) for one in (asked, tree)]
    kinds = [(one.node_data() or [None])[0] for one in structures]
    if kinds[0] is not kinds[1]:
        right = named(asked) if kinds[0] else "an array"
        return f"`{path}` is {named(tree)}, where {right} is expected"
    if kinds[0] is None:
        return ""
    parts = [
        {jax.tree_util.keystr(way): part for way, part in _children(one)} for one in (asked, tree)
    ]
    both = (key for key in parts[0] if key in parts[1])
    found = (other_part(path + key, parts[0][key], parts[1][key]) for key in both)
    return next(filter(None, found), "")


def _children(tree: Any) -> list[Any]:
    """The parts of a tree one level down, None too, with their paths."""
    return jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda part: part is not tree)


def lacking(word: str, asked: Any, tree: Any) -> str:
    """For which array of the tree `asked`, called `word`, another tree has nothing; or ""."""
    missing = _only_in(asked, tree)
    return f", without one for `{word}{missing}`" if missing else ""


def _only_in(tree: Any, other: Any) -> str:
    """The path of the first array of a tree for which another has none, or ""."""
    mine, theirs = (
        [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(one)]
        for one in (tree, other)
    )
    return next((path for path in mine if path not in set(theirs)), "")


def lacking_keys(asked: Mapping[str, Any], tree: Mapping[str, Any]) -> str:
    """For which names of `asked` another dict has nothing, in words; or ""."""
    names = ", ".join(f"`{key}`" for key in sorted(asked.keys() - tree.keys()))
    return f"it has nothing for {names}" if names else ""


def other_entries(own: Mapping[Any, Any], given: Mapping[Any, Any]) -> list[str]:
    """The keys under which a dict, `own`, does not hold the very object that it was given."""
    keys = dict.fromkeys((*given, *own))
    return [str(key) for key in keys if own.get(key) is not given.get(key)]


def named(value: Any) -> str:
    """What a value is, in words: `None`, `an int`, `a jax.Array`."""
    return typed(type(value).__name__)
