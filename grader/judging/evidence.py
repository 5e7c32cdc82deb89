"""Finds in a record what checks ask for: values, events, programs, times, learner's lines.

Pure functions of records. They answer in the words of `grader.judging.checking`, and reach no
verdict: that is for a check and for `grader.judging.judge`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace as replace_in
from math import prod
from typing import Any

from msgspec.structs import replace

from grader.judging.arrays import FORM, compare, form_of, label, load
from grader.judging.checking import Failure, Result, Unable
from grader.judging.said import hint_for, is_known
from grader.judging.words import EVERYWHERE, PARTS, part_in_words, plural
from grader.records.record import (
    POLLED,
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
    """Events of the given kinds whose phase starts with `phase`."""
    return (e for e in observed.events if e.kind in kinds and e.phase.startswith(phase))


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
        sizes = {event.nbytes for event in theirs}
        more = [event for event in mine if event.nbytes not in sizes] or mine
        needs = f", and {needed:,} are needed whole" if needed else ""
        return f"{whole:,} bytes went {EVERYWHERE}{needs}", more
    alone: dict[str, list[Event]] = {}
    for event in events(seen(record), "h2d", phase=phase):
        if event.detail not in ("", EVERYWHERE, PARTS):
            alone.setdefault(event.detail, []).append(event)
    got = {device: whole + _copied(found) for device, found in alone.items()}
    own = sum(prod(leaf.shard_shape or ()) * int(leaf.dtype[-2:]) // 8 for leaf in right)
    over = [device for device, nbytes in got.items() if nbytes > own + SCALAR * len(alone[device])]
    if len(over) < 2:
        return None
    observed = " and ".join(f"{got[device]:,} bytes went to {device}" for device in over[:2])
    lines = [event for device in over for event in alone[device]]
    return f"{observed}, whose own parts are {own:,}", lines


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


def calls_of(record: Record, names: Sequence[str]) -> list[Culprit]:
    """The lines of the learner's file that call a function by one of these dotted endings."""
    lines = File(record.source).calls(names)
    return [culprit(record, line) for line in lines]


def compiled_program(
    record: Record, name: str, expected: str = "", *, made_by: str = ""
) -> Measured | Failure | Unable:
    """A program of the submission as measured, or why there is none.

    The failure says `expected`, and names the line that led to it, or else the one that defines
    `made_by`, the learner's function that made the program, if that is not called `name`.
    """
    expected = expected or f"`{name}` is a program that can be compiled apart from its file"
    exported, measured = seen(record).programs.get(name), record.measured.get(name)
    return _compiled(record, made_by or name, exported, measured, expected)


def target_program(
    record: Record, name: str, expected: str = "", *, made_by: str = ""
) -> Measured | Failure | Unable:
    """A program of the submission as compiled for the target, or why there is none.

    Nothing ran, so there are no outputs, no times and no count of floating-point operations.
    If the drive gave `Observe.program` a function of the same name, that one ran, and this
    one must hold the same operations. A failure says `expected`, and names a line as that of
    `compiled_program` does.
    """
    if record.target_problem:
        return Unable(record.target_problem)
    machine = target_of(record).title
    expected = expected or f"`{name}` is a program that can be compiled for {machine}"
    exported, measured = seen(record).targeted.get(name), record.target_measured.get(name)
    found = _compiled(record, made_by or name, exported, measured, expected)
    ran = record.measured.get(name)
    if ran is None or not isinstance(found, Measured):
        return found
    difference = _other_code(ran, found)
    if not difference:
        return found
    expected = f"the `{name}` that is compiled for {machine} is the one that was run"
    return Failure(expected, difference, definition(record, made_by or name))


TRACED = (
    "Call the function on small arrays in a Python of your own: what is raised there names the "
    "line, and the shapes."
)
"""The hint where a function cannot be traced: no hint about its numbers helps."""
TWO_MEMORIES = (
    "jit moves no array to another memory by itself. Which array of the marked line is still in "
    "host memory?"
)
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
    record: Record, maker: str, exported: Program | None, measured: Measured | None, expected: str
) -> Measured | Failure | Unable:
    problem = (exported and exported.problem) or (measured and measured.problem)
    if problem:
        line = exported.line if exported else None
        place = [culprit(record, line)] if line else definition(record, maker)
        traced = "cannot be traced" in problem or is_known(problem)
        hint = TWO_MEMORIES if "two kinds of memory" in problem else hint_for(problem)
        return Failure(expected, problem, place, hint or (TRACED if traced else ""))
    return measured or Unable("the program was not compiled")


def not_jitted(record: Record, name: str, edit: str = "") -> Failure | None:
    """The failure if what the drive gave to `Observe.jitted` as `name` is not from jax.jit.

    `edit` is the learner's definition that made it, if that has another name.
    """
    kind = seen(record).facts.get(f"type of {name}")
    if kind == "jax.jit":
        return None
    if dropped := statements.dropped_at_top(record, name, *MAKERS):
        observed = f"`{name}` is what it was: what is returned on the marked line is dropped"
        return Failure(f"`{name}` is what jax.jit returns", observed, dropped, KEPT)
    place = statements.result(record, edit) if edit else definition(record, name)
    observed = f"`{name}` is of type `{kind}`"
    names = File(record.source).names
    made = {called for called in MAKERS if statements.uses(record, edit or name, called)}
    elsewhere = not edit and any(statements.uses(record, other, "jit") for other in names)
    if "jit" in made or elsewhere:
        observed += ": what happens around a jitted function is not part of its program"
    elif made:
        observed += f", made by {' and '.join(f'jax.{one}' for one in sorted(made))}"
    else:
        observed += ", and nothing jits it"
    plain = PLAIN if not made and not edit and not elsewhere else ""
    return Failure(f"`{name}` is what jax.jit returns", observed, place, plain)


KEPT = "jax.jit changes no function: it returns another one. Which name should that one have?"
MAKERS = ("jit", "pmap", "shard_map", "vmap")
"""Functions of JAX that make another function of one."""


PLAIN = "Which line gives this function to jax.jit? A decorator above its `def` does."


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


WORK = 1.6
"""The operations of a step may be this many times the reference's. A step that runs its forward
pass twice comes to 1.35, one that computes with twice the rows to 2."""


OWN_ROWS = (
    "A device computes with its own rows, once. Which line brings it those of others, in any form, "
    "or works through the same rows again?"
)


def beyond_own_rows(record: Record, name: str, made_by: str = "", hint: str = OWN_ROWS) -> Result:
    """The failure where a device works as much in a program as with rows of others beside its own.

    None, too, if the program did not run; `compiled_program` says why. `made_by` is the function
    that made it, if that is not the first word of its name.
    """
    mine, theirs = record.measured.get(name), record.reference_measured.get(name)
    if mine is None or theirs is None:
        return None
    if not theirs.work:
        return Unable("the operations of the reference's program could not be counted")
    place = definition(record, made_by or name.partition(" ")[0])
    if not mine.work:
        expected = "each loop runs as often as the compiled program says"
        return Failure(expected, "a loop whose length is not known before it runs", place)
    if mine.work <= (limit := WORK * theirs.work):
        return None
    return Failure(
        f"at most {limit:,.0f} operations on each of {devices_of(record)} devices",
        f"{mine.work:,} operations, {mine.work / theirs.work:.1f} times as many as one share of "
        "the rows needs",
        place,
        hint,
    )


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
    mine, theirs = record.measured.get(name), record.reference_measured.get(name)
    if mine is None or theirs is None:
        return None
    old, got, want = (
        _below(leaves, f"[0]{part}")
        for leaves in (given(record, name), mine.outputs, theirs.outputs)
    )
    return _ratio(_step(old, got, keep), _step(old, want, keep))


def _below(leaves: Sequence[Leaf], path: str) -> list[Leaf]:
    return [leaf for leaf in leaves if leaf.path.startswith(path)]


ROUNDED = 2**-11
"""By how much of its own length a step in float32 may differ from the reference's, in each array.
Right answers were seen to differ by 2**-19, gradients that are rounded to bfloat16 by 2**-9."""


def other_output_step(record: Record, name: str) -> Failure | None:
    """The failure for the first array of a program's first result whose step is another one.

    That result replaces the program's first argument, and has its form.
    """
    mine, theirs = record.measured.get(name), record.reference_measured.get(name)
    if mine is None or theirs is None:
        return None
    old, got, want = (
        _below(leaves, "[0]") for leaves in (given(record, name), mine.outputs, theirs.outputs)
    )
    params = [replace(leaf, path=leaf.path.removeprefix("[0]")) for leaf in old]
    return other_float32_step(params, got, want)


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
