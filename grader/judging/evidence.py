"""Finds in a record what checks ask for: both sides, events, copies, times, learner's lines.

Pure functions of records. They answer in the words of `grader.judging.checking`, and reach no
verdict: that is for a check and for `grader.judging.judge`. So do `programs`, `results` and
`steps`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import prod

from grader.judging.checking import Failure, Result, Unable
from grader.judging.words import EVERYWHERE, PARTS, plural
from grader.records.record import POLLED, Event, EventKind, Leaf, Observed, Record, Target
from grader.records.verdict import Culprit
from grader.source import places, statements
from grader.source.file import File


def seen(record: Record) -> Observed:
    """The submission's observations (present whenever a check runs)."""
    assert record.submission is not None
    return record.submission


def wanted(record: Record) -> Observed:
    """The reference's observations (present whenever a check runs)."""
    assert record.reference is not None
    return record.reference


def events(observed: Observed, *kinds: EventKind, phase: str = "") -> Iterator[Event]:
    """Events of the given kinds in `phase`, or in a phase whose name begins with these words.

    "run" is "run 1" and "run 10", and "run 1" is not "run 10". Of "", it is all of them.
    """
    found = (e for e in observed.events if e.kind in kinds)
    return (e for e in found if not phase or f"{e.phase} ".startswith(f"{phase} "))


def to_host(observed: Observed, phase: str = "") -> list[Event]:
    """What brings values to the host: reads, and copies that `copy_to_host_async` starts.

    A read may start a copy of its own, so copies count where there is no read.
    """
    reads = list(events(observed, "d2h", phase=phase))
    return reads or list(events(observed, "async_copy", phase=phase))


def sent_whole(observed: Observed, phase: str, largest: int) -> list[Event]:
    """Copies from the host of more than `largest` bytes that went to each device of a mesh."""
    copies = events(observed, "h2d", phase=phase)
    return [e for e in copies if e.detail == EVERYWHERE and (e.nbytes or 0) > largest]


def through_a_program(record: Record, expected: str, *phases: str) -> Failure | None:
    """The failure where programs of these phases moved something between devices, or added it up.

    No copy shows that, and no result has to. The runtime's trace, or the device's book, has it.
    """
    found = [event for phase in phases for event in events(seen(record), "exchange", phase=phase)]
    if not found:
        return None
    ops = " and ".join(sorted({event.detail for event in found}))
    observed = f"a program exchanged something between devices: {ops}"
    lines = dict.fromkeys(event.line for event in found if event.line)  # how often says little
    return Failure(expected, observed, [culprit(record, line) for line in lines], NO_EXCHANGE)


def of_programs(record: Record, expected: str, function: str, name: str) -> Failure | None:
    """The failure where programs of `function` hold arrays, or exchange some, as a fact says."""
    told: dict[str, int] = seen(record).facts[name]
    place = statements.call(record, function, "jit", "pmap", "device_put")
    if most := told["held"]:
        observed = f"programs hold {most:,} bytes of arrays, on each device that runs them"
        return Failure(expected, observed, place, CONSTANT)
    if most := told["sent"]:
        observed = f"programs exchange {most:,} bytes between the devices"
        return Failure(expected, observed, place, NO_EXCHANGE)
    return None


CONSTANT = (
    "A jitted function has the arrays that it closes over as constants, whole, wherever it runs. "
    "Which array is no argument of it?"
)
NO_EXCHANGE = (
    "A jitted function whose result lies otherwise than what it gets moves it between the devices. "
    "What does each device need, and can it come from the host at once?"
)


def sent_beyond(record: Record, phase: str, names: Sequence[str]) -> tuple[str, list[Event]] | None:
    """What several devices got from the host beyond their own parts of values, and by what copies.

    `names` are the values that were placed. One device may get more than its part: it may hold an
    array before it is split.
    """
    right = [leaf for name in names for leaf in wanted(record).values[name]]
    devices = len(right[0].devices)
    if devices == 1:
        return None
    mine, theirs = (sent_whole(side, phase, SCALAR) for side in (seen(record), wanted(record)))
    whole, needed = _copied(mine) // devices, _copied(theirs) // devices
    if whole > needed:
        sizes = _sizes(theirs)
        more = [event for event in mine if event.nbytes not in sizes]
        more = more or [e for e in mine if _sizes(mine, e.line) != sizes] or mine
        needs = f", and {needed:,} are needed whole" if needed else ""
        return f"{whole:,} bytes went {EVERYWHERE}{needs}", more
    every = sent_whole(seen(record), phase, 0)
    small = _copied(every) // devices - whole
    if small > SCALAR * len(right):  # an index for each array, say
        pieces = [event for event in every if event not in mine]
        return f"{small:,} bytes went {EVERYWHERE}, in small pieces", pieces
    if found := _parts_again(record, phase, right):
        return found
    alone: dict[str, list[Event]] = {}
    for event in events(seen(record), "h2d", phase=phase):
        if event.detail not in ("", EVERYWHERE, PARTS):
            alone.setdefault(event.detail, []).append(event)
    got = {device: whole + _copied(found) for device, found in alone.items()}
    own = sum(bytes_of(leaf, leaf.shard_shape) for leaf in right)
    over = [device for device, nbytes in got.items() if nbytes > own + SCALAR * len(alone[device])]
    if len(over) < 2:
        return None
    observed = " and ".join(f"{got[device]:,} bytes went to {device}" for device in over[:2])
    lines = [event for device in over for event in alone[device]]
    return f"{observed}, whose own parts are {own:,}", lines


def _parts_again(
    record: Record, phase: str, right: Sequence[Leaf]
) -> tuple[str, list[Event]] | None:
    """The copies in parts, of values that are `right`, where they bring devices more than these."""
    found = [event for event in events(seen(record), "h2d", phase=phase) if event.detail == PARTS]
    got = _copied(found) // len(right[0].devices)
    most = sum(map(bytes_of, right))
    if got <= most:
        return None
    return f"{got:,} bytes went to the devices in parts, and the arrays have {most:,}", found


def bytes_of(leaf: Leaf, shape: tuple[int, ...] | None = None) -> int:
    """The bytes of an array, or of a part of it that has another shape."""
    bits = re.search(r"\d+$", leaf.dtype)
    return prod(leaf.shape if shape is None else shape) * (int(bits[0]) if bits else 8) // 8


def _sizes(found: Sequence[Event], line: int | None = None) -> Counter[int | None]:
    """How many copies of each size there are, on one line if that is named."""
    sizes = Counter[int | None]()
    for event in found:
        if line in (None, event.line):
            sizes[event.nbytes] += event.count
    return sizes


SCALAR = 8
"""Bytes of a number that may go anywhere: an index, say."""


def _copied(found: Iterable[Event]) -> int:
    """The bytes of all copies that events tell of."""
    return sum((event.nbytes or 0) * event.count for event in found)


def weight(copies: Sequence[Event]) -> tuple[int, int]:
    """How many copies there are, and how many bytes they copy, as far as JAX says."""
    return sum(event.count for event in copies), _copied(copies)


SENT_WHOLE = (
    "What lies whole on a device before it is split takes the memory that a split saves. "
    "jax.device_put with the sharding that you want sends each part straight from the host."
)


def culprits(record: Record, found: Sequence[Event]) -> list[Culprit]:
    """The learner's lines behind events, most frequent first; of polls, no count is given."""
    counts: dict[int, int] = {}
    kinds: dict[int, list[EventKind]] = {}
    for event in found:
        if event.line is not None:
            count = event.count if event.detail != POLLED else 0
            counts[event.line] = counts.get(event.line, 0) + count
            kinds.setdefault(event.line, []).append(event.kind)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [places.at(record, line, max(count, 1), kinds[line]) for line, count in ordered]


def waits_in_words(found: Sequence[Event]) -> str:
    """`3 waits, by asking is_ready again and again too`: how the host waited for the device."""
    total = sum(event.count for event in found if event.detail != POLLED)
    polled = "by asking again and again whether an array is ready"
    if any(event.detail == POLLED for event in found):
        return f"{plural(total, 'wait')}, and more {polled}," if total else f"it waits, {polled},"
    return plural(total, "wait")


def culprit(record: Record, line: int, count: int = 1) -> Culprit:
    """One line of the learner's file, with its text."""
    return places.at(record, line, count)


def definition(record: Record, name: str) -> list[Culprit]:
    """The line on which the learner's file last defines `name`, for failures without events."""
    return places.of_definitions(File(record.source), [name])


def in_other_order(record: Record, array: str, function: str, call: str = "") -> Failure:
    """The failure where the dimensions of `array`, which `function` made, lie otherwise than usual.

    `call` says in which call.
    """
    return Failure(
        f"each array lies in memory as a program expects it{call}",
        f"the dimensions of {array} are in another order: each step copies it",
        definition(record, function),
        OTHER_ORDER,
    )


OTHER_ORDER = "Which line asks for an order of dimensions? Without it, they have the usual one."


HIDDEN = (
    "Where an error is caught, a step is missing. Which line catches it, and what does the caller "
    "learn of it?"
)


def hidden_error(record: Record, function: str, source: str, observed: str) -> Failure:
    """The failure of a function that returns, though `source`, in words, raises an error."""
    expected = f"an error that {source} raises reaches the caller of `{function}`"
    return Failure(expected, observed, statements.call(record, function, "suppress"), HIDDEN)


def calls_of(record: Record, names: Sequence[str]) -> list[Culprit]:
    """The lines of the learner's file that call a function by one of these dotted endings."""
    lines = File(record.source).calls(names)
    return [culprit(record, line) for line in lines]


def devices_of(record: Record) -> int:
    """How many devices the submission saw (known whenever a check runs)."""
    assert record.machine is not None
    return record.machine.devices


def target_of(record: Record) -> Target:
    """The target (present whenever a check of that ground runs)."""
    assert record.target is not None
    return record.target


def probe_gap(observed: Observed, *probes: str) -> Unable | None:
    """`Unable` if one of `probes` was not installed, so that its silence means nothing."""
    for name in probes:
        if name in observed.missing_probes:
            return Unable(f"the {name} probe is not working: {observed.missing_probes[name]}")
    return None


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


def given(record: Record, name: str) -> Sequence[Leaf]:
    """What a program of the reference was first given."""
    return next(iter(wanted(record).inputs.get(name, ())), ())
