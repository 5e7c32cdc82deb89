"""What a check finds in a record: values, events, programs, times, and the lines behind.

Pure functions of records. What they return is in the words of `grader.checking`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from grader.checking import Failure, Result, Unable
from grader.record import (
    Collective,
    Event,
    EventKind,
    Measured,
    Observed,
    Program,
    Record,
    Target,
)
from grader.verdict import Culprit


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
    for event in found:
        if event.line is not None:
            counts[event.line] = counts.get(event.line, 0) + event.count
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [culprit(record, line, count) for line, count in ordered]


def culprit(record: Record, line: int, count: int = 1) -> Culprit:
    """One line of the learner's file, with its text."""
    lines = record.source.split("\n")
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return Culprit(line, text, count)


def definition(record: Record, name: str) -> list[Culprit]:
    """The line on which the learner's file defines `name`, for failures without events."""
    for number, text in enumerate(record.source.split("\n"), 1):
        if text.startswith((f"def {name}(", f"class {name}", f"{name} =", f"{name}:")):
            return [culprit(record, number)]
    return []


def compiled_program(record: Record, name: str, expected: str = "") -> Measured | Failure | Unable:
    """A program of the submission as measured, or why there is none.

    The failure names the line that defines `name`; `expected` are its words.
    """
    expected = expected or f"`{name}` is a program that can be compiled apart from its file"
    exported, measured = seen(record).programs.get(name), record.measured.get(name)
    return _compiled(record, name, exported, measured, expected)


def target_program(record: Record, name: str, expected: str = "") -> Measured | Failure | Unable:
    """A program of the submission as compiled for the target, or why there is none.

    Nothing ran: it has no outputs, times or floating-point operations. What the drive gave
    `Observe.program` under the same name was run, and must hold the same operations. The
    failure names the line that defines `name`; `expected` are its words.
    """
    if record.target_problem:
        return Unable(record.target_problem)
    machine = target_of(record).title
    expected = expected or f"`{name}` is a program that can be compiled for {machine}"
    exported, measured = seen(record).targeted.get(name), record.target_measured.get(name)
    found = _compiled(record, name, exported, measured, expected)
    ran = record.measured.get(name)
    if ran is None or not isinstance(found, Measured) or not (differs := _other_code(ran, found)):
        return found
    expected = f"the `{name}` that is compiled for {machine} is the one that was run"
    return Failure(expected, differs, definition(record, name))


PLACEMENT = frozenset({"sdy.sharding_constraint"})
"""Operations that say where an array lies, and change no number; JAX writes them as it needs."""


def _other_code(ran: Measured, compiled: Measured) -> str:
    """How two exports of a function differ, or ""; only one of them was seen to be right.

    One of another number of arrays, layers say, may repeat its operations more often.
    """
    same_tree = _tree(ran) == _tree(compiled)
    for name in sorted((ran.operations | compiled.operations).keys() - PLACEMENT):
        before, after = ran.operations.get(name, 0), compiled.operations.get(name, 0)
        if before != after if same_tree else bool(before) != bool(after):
            return f"for the target's sizes it holds {after} `{name}`, when it was run {before}"
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
        return Failure(expected, problem, definition(record, name))
    return measured or Unable("the program was not compiled")


def not_jitted(record: Record, name: str, edit: str = "") -> Failure | None:
    """The failure where what the drive showed `Observe.jitted` as `name` is not jax.jit's.

    `edit` is the learner's definition that made it, if that has another name.
    """
    kind = seen(record).facts.get(f"type of {name}")
    if kind == "jax.jit":
        return None
    return Failure(
        f"`{name}` is what jax.jit returns",
        f"`{name}` is of type `{kind}`: what happens around a jitted function is no part of "
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
    """Bytes of what arrives on one device, each collective as often as its loops run it."""
    if any(collective.runs == 0 for collective in found):
        return Unable("a collective stands in a loop whose length the compiled program hides")
    return sum(c.nbytes * c.count * c.runs for c in found)


def sent(found: Sequence[Collective], devices: int) -> int:
    """Bytes that each of `devices` sends to its neighbour, if all of them form one ring.

    A sum goes round twice, anything else once: the factors of NVIDIA's nccl-tests
    (doc/PERFORMANCE.md, "bus bandwidth"). What a loop of unknown length runs counts nothing.
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
    if not timing.pairs:  # it did not come so far that other programs could have disturbed it
        return Unable(timing.reason)
    told = f" ({figures})" if timing.verdict == "undecided" else ""
    return Unable(f"{timing.reason}{told}; close other programs, and check again")


def differing_leaf(record: Record, name: str, *, rtol: float, atol: float) -> Failure | None:
    """Compare a named value with the reference's: structure, type, shape, dtype, numbers.

    Returns the first difference as a `Failure`, None when there is none.
    """
    from grader.arrays import compare

    mine, theirs = seen(record), wanted(record)
    if name not in mine.values:
        return Failure(f"`{name}` is returned", "nothing was returned under that name")
    return compare(
        name,
        mine.values[name],
        theirs.values[name],
        mine.trees[name],
        theirs.trees[name],
        rtol=rtol,
        atol=atol,
    )


def differing_output(
    record: Record, name: str, *, rtol: float, atol: float, any_float: Sequence[str] = ()
) -> Failure | None:
    """Compare what a program of the submission gave with what the reference's gave.

    Both ran on the same secret inputs, where the learner's Python never was. Results at the
    paths `any_float` may be of another floating-point type. Returns None also where one did
    not run: `compiled_program` says why.
    """
    from grader.arrays import compare

    mine, theirs = record.measured.get(name), record.reference_measured.get(name)
    if mine is None or theirs is None or not (mine.outputs and theirs.outputs):
        return None
    asked = {leaf.path: leaf.dtype for leaf in theirs.outputs if leaf.path in any_float}
    outputs = [
        replace(leaf, dtype=asked.get(leaf.path, leaf.dtype)) if "float" in leaf.dtype else leaf
        for leaf in mine.outputs
    ]
    return compare(f"{name} ", outputs, theirs.outputs, "", "", rtol=rtol, atol=atol)


def step_ratio(record: Record, before: str, after: str) -> float | None:
    """My step / the reference's, from params `before` to `after`, where all differ alike.

    None where they are the same, or where more is wrong than the length.
    """
    import numpy as np

    from grader.arrays import load

    def step(observed: Observed) -> Any:
        old, new = (
            [load(leaf.data or b"") for leaf in observed.values[n]] for n in (before, after)
        )
        return np.concatenate([np.subtract(b, a).ravel() for a, b in zip(old, new, strict=True)])

    try:
        mine, theirs = step(seen(record)), step(wanted(record))
        ratio = float(mine @ theirs / (theirs @ theirs))
        same = np.allclose(mine, ratio * theirs, rtol=1e-2, atol=1e-2 * float(abs(theirs).max()))
    except (ValueError, TypeError, EOFError):
        return None
    return ratio if same and abs(ratio - 1) > 1e-2 else None
