"""Finds in a record what checks ask for: values, events, programs, times, learner's lines.

Pure functions of records. They answer in the words of `grader.judging.checking`, and reach no
verdict: that is for a check and for `grader.judging.judge`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace as replace_in
from typing import Any

from msgspec.structs import replace

from grader.judging import places
from grader.judging.arrays import FORM, compare, form_of, load
from grader.judging.checking import Failure, Result, Unable
from grader.judging.record import (
    Collective,
    Event,
    EventKind,
    Leaf,
    Measured,
    Observed,
    Program,
    Record,
    Target,
)
from grader.judging.said import in_words
from grader.judging.verdict import Culprit
from grader.judging.words import part_in_words


def seen(record: Record) -> Observed:
    """The submission's observations (present whenever a check runs)."""
    assert record.submission is not None
    return record.submission


def wanted(record: Record) -> Observed:
    """The reference's observations (present whenever a check runs)."""
    assert record.reference is not None
    return record.reference


def events(observed: Observed, *kinds: EventKind, phase: str = "") -> Iterator[Event]:
    """Events of the given kinds whose phase starts with `phase`."""
    return (e for e in observed.events if e.kind in kinds and e.phase.startswith(phase))


def culprits(record: Record, found: Sequence[Event]) -> list[Culprit]:
    """The learner's lines behind events, most frequent first."""
    counts: dict[int, int] = {}
    kinds: dict[int, list[EventKind]] = {}
    for event in found:
        if event.line is not None:
            counts[event.line] = counts.get(event.line, 0) + event.count
            kinds.setdefault(event.line, []).append(event.kind)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [places.at(record, line, count, kinds[line]) for line, count in ordered]


def culprit(record: Record, line: int, count: int = 1) -> Culprit:
    """One line of the learner's file, with its text."""
    return places.at(record, line, count)


def definition(record: Record, name: str) -> list[Culprit]:
    """The line on which the learner's file defines `name`, for failures without events."""
    for number, text in enumerate(record.source.split("\n"), 1):
        if text.startswith((f"def {name}(", f"class {name}", f"{name} =", f"{name}:")):
            return [culprit(record, number)]
    return []


def compiled_program(record: Record, name: str, expected: str = "") -> Measured | Failure | Unable:
    """A program of the submission as measured, or why there is none.

    The failure says `expected`, and names the line that defines `name`.
    """
    expected = expected or f"`{name}` is a program that can be compiled apart from its file"
    exported, measured = seen(record).programs.get(name), record.measured.get(name)
    return _compiled(record, name, exported, measured, expected)


def target_program(record: Record, name: str, expected: str = "") -> Measured | Failure | Unable:
    """A program of the submission as compiled for the target, or why there is none.

    Nothing ran, so there are no outputs, no times and no count of floating-point operations.
    If the drive gave `Observe.program` a function of the same name, that one ran, and this
    one must hold the same operations. A failure says `expected`, and names the line that
    defines `name`.
    """
    if record.target_problem:
        return Unable(record.target_problem)
    machine = target_of(record).title
    expected = expected or f"`{name}` is a program that can be compiled for {machine}"
    exported, measured = seen(record).targeted.get(name), record.target_measured.get(name)
    found = _compiled(record, name, exported, measured, expected)
    ran = record.measured.get(name)
    if ran is None or not isinstance(found, Measured):
        return found
    difference = _other_code(ran, found)
    if not difference:
        return found
    expected = f"the `{name}` that is compiled for {machine} is the one that was run"
    return Failure(expected, difference, definition(record, name))


TRACED = (
    "Call the function on small arrays in a Python of your own: what is raised there names the "
    "line, and the shapes."
)
"""The hint where a function cannot be traced: no hint about its numbers helps."""
PLACEMENT = frozenset({"sdy.sharding_constraint"})
"""Operations that say where an array lies and change no number. JAX adds them as needed."""


def _other_code(ran: Measured, compiled: Measured) -> str:
    """How two exports of a function differ, or "". Only the outputs of `ran` were compared.

    Where the number of arrays differs (more layers, say), the number of operations may too.
    """
    same_tree = _tree(ran) == _tree(compiled)
    for name in sorted((ran.operations | compiled.operations).keys() - PLACEMENT):
        before, after = ran.operations.get(name, 0), compiled.operations.get(name, 0)
        differ = before != after if same_tree else bool(before) != bool(after)
        if differ:
            return (
                f"the one that is compiled holds {after} `{name}`, the one that was run holds "
                f"{before}"
            )
    return ""


def _tree(measured: Measured) -> str:
    return measured.signature.in_tree if measured.signature else ""


def target_reference(record: Record, name: str) -> Measured | None:
    """The reference's program as compiled for the same target, if it could be."""
    found = record.target_reference_measured.get(name)
    return None if found is None or found.problem else found


def devices_of(record: Record) -> int:
    """How many devices the submission saw (known whenever a check runs)."""
    assert record.machine is not None
    return record.machine.devices


def target_of(record: Record) -> Target:
    """The target (present whenever a check of that ground runs)."""
    assert record.target is not None
    return record.target


def _compiled(
    record: Record, name: str, exported: Program | None, measured: Measured | None, expected: str
) -> Measured | Failure | Unable:
    problem = (exported and exported.problem) or (measured and measured.problem)
    if problem:
        line = exported.line if exported else None
        place = [culprit(record, line)] if line else definition(record, name)
        return Failure(expected, problem, place, TRACED if in_words(problem) != problem else "")
    return measured or Unable("the program was not compiled")


def not_jitted(record: Record, name: str, edit: str = "") -> Failure | None:
    """The failure if what the drive gave to `Observe.jitted` as `name` is not from jax.jit.

    `edit` is the learner's definition that made it, if that has another name.
    """
    kind = seen(record).facts.get(f"type of {name}")
    if kind == "jax.jit":
        return None
    return Failure(
        f"`{name}` is what jax.jit returns",
        f"`{name}` is of type `{kind}`: what happens around a jitted function is not part of "
        "its program",
        definition(record, edit or name),
    )


def probe_gap(observed: Observed, *probes: str) -> Unable | None:
    """`Unable` if one of `probes` was not installed, so that its silence means nothing."""
    for name in probes:
        if name in observed.missing_probes:
            return Unable(f"the {name} probe is not working: {observed.missing_probes[name]}")
    return None


def exchanged(found: Sequence[Collective]) -> int | Unable:
    """Bytes that arrive on one device. A collective in a loop counts as often as it runs."""
    if any(collective.runs == 0 for collective in found):
        return Unable(
            "a collective stands in a loop whose length the compiled program hides, or in a branch "
            "inside a loop: nobody can say how often it runs"
        )
    return sum(c.nbytes * c.count * c.runs for c in found)


def sent(found: Sequence[Collective], devices: int) -> int:
    """Bytes that each of `devices` sends to its neighbour, if all of them form one ring.

    A sum goes round twice, anything else once: the factors of NVIDIA's nccl-tests
    (doc/PERFORMANCE.md, "bus bandwidth"). A collective in a loop of unknown length counts as
    0 bytes; `exchanged` says whether there is one.
    """
    rounds = {"all-reduce": 2 / devices, "reduce-scatter": 1.0}
    sizes = (rounds.get(c.op, 1 / devices) * c.nbytes * c.count * c.runs for c in found)
    return round((devices - 1) * sum(sizes))


def timing_result(record: Record, name: str, unit: str) -> Result:
    """The result of a timing comparison, in words; `unit` is what was timed ("a step")."""
    timing = record.timing.get(name)
    if timing is None:
        return Unable("it was not timed")
    low, high = timing.spread
    figures = f"{timing.ratio:.2f} x the {timing.baseline}'s (quartiles {low:.2f} to {high:.2f})"
    if timing.verdict == "fail":
        observed = timing.reason or f"{figures}, slower in {timing.losses} of {timing.pairs} pairs"
        return Failure(
            f"{unit} takes at most {timing.k:g} x the {timing.baseline}'s time", observed
        )
    if timing.verdict == "pass":
        return None
    if not timing.pairs:  # other programs had no chance to disturb it
        return Unable(timing.reason)
    so_far = f" ({figures})" if timing.verdict == "undecided" else ""
    return Unable(f"{timing.reason}{so_far}; close other programs, and check again")


def differing_leaf(record: Record, name: str, *, rtol: float, atol: float) -> Failure | None:
    """Compare a named value with the reference's: structure, type, shape, dtype, numbers.

    A drive may keep what a known mistake would give, under the same name with a comma and words:
    "state, one step short". A difference that is exactly this is told in those words.

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


def _of_another_name(name: str, mine: Observed, theirs: Observed) -> Failure | None:
    """The failure if a tree has the paths of another one that was asked for, not its own."""
    got = [leaf.path for leaf in mine.values[name]]
    if len(got) < 2 or got == [leaf.path for leaf in theirs.values[name]]:
        return None
    others = (
        other
        for other, leaves in theirs.values.items()
        if other != name and [leaf.path for leaf in leaves] == got
    )
    found = next(others, None)
    if found is None:
        return None
    return Failure(
        f"`{name}` is {form_of(theirs.values[name])}",
        f"it has the structure of `{found}`: were two values exchanged?",
        (),
        FORM,
    )


def _other_form(name: str, mine: Observed, theirs: Observed) -> Failure | None:
    """The failure if a tree is made of other nodes than the reference's, though named alike.

    Lists and tuples are alike, and so are all kinds of dicts.
    """
    got, wanted = mine.forms.get(name, []), theirs.forms.get(name, [])
    if got == wanted or [form == "*" for form in got] != [form == "*" for form in wanted]:
        return None  # trees of another shape: their paths say more
    mine_is, theirs_is = next(pair for pair in zip(got, wanted, strict=True) if len({*pair}) == 2)
    return Failure(f"`{name}` is made of the same kinds as the reference's: {theirs_is}", mine_is)


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
    record: Record, name: str, *, rtol: float, atol: float, any_float: Sequence[str] = ()
) -> Failure | None:
    """Compare what a program of the submission gave with what the reference's gave.

    Both ran on the same secret inputs, in a process that never saw the learner's Python.
    Results at the paths `any_float` may have another floating-point type. Returns None also
    if one of them did not run: `compiled_program` says why.
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
        outputs,
        theirs.outputs,
        "",
        "",
        rtol=rtol,
        atol=atol,
        before=given(record, name),
    )


def given(record: Record, name: str) -> Sequence[Leaf]:
    """What a program of the reference was first given."""
    return next(iter(wanted(record).inputs.get(name, ())), ())


def step_ratio(record: Record, before: str, after: str) -> float | None:
    """The length of the submission's step, from params `before` to `after`, in reference steps.

    None if both steps are the same, or if they differ in more than their length.
    """
    import numpy as np  # here: the command line starts without it

    def step(observed: Observed) -> Any:
        old = [load(leaf.data or b"") for leaf in observed.values[before]]
        new = [load(leaf.data or b"") for leaf in observed.values[after]]
        return np.concatenate([np.subtract(b, a).ravel() for a, b in zip(old, new, strict=True)])

    try:
        mine, theirs = step(seen(record)), step(wanted(record))
        ratio = float(mine @ theirs / (theirs @ theirs))
        same = np.allclose(mine, ratio * theirs, rtol=1e-2, atol=1e-2 * float(abs(theirs).max()))
    except (ValueError, TypeError, EOFError):
        return None
    return ratio if same and abs(ratio - 1) > 1e-2 else None
