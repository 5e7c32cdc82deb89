"""Checks of ex02_mixed_devices: the calls of `step`, where their arrays lie, and the copies."""

from collections.abc import Sequence
from dataclasses import replace

from grader.checks.ex02_mixed_devices import EXERCISE, facts
from grader.checks.ex02_mixed_devices.facts import ROUNDS, STEPS, argument
from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import (
    calls_of,
    culprits,
    definition,
    events,
    hidden_error,
    in_other_order,
    probe_gap,
    seen,
    to_host,
    wanted,
    weight,
)
from grader.judging.results import differing_leaf, zeros_of_other_sign
from grader.judging.words import plural, where
from grader.records.record import Leaf, Observed, Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File
from grader.source.statements.search import entry_of


def _rounds(record: Record) -> dict[str, int]:
    """The steps that each run was asked for, as the reference's side drew them."""
    return dict(zip(ROUNDS, wanted(record).facts[STEPS], strict=True))


def _asked(record: Record, target: str) -> str:
    """The device that a run was asked for, as `cpu:1`."""
    return where(wanted(record).values[facts.result(target)][0])


def _given(record: Record, target: str) -> list[list[Leaf]]:
    """What each call of `step` was given, leaf by leaf."""
    values = seen(record).values
    found = (
        values.get(facts.given(target, call)) for call in facts.kept_calls(_rounds(record)[target])
    )
    return [leaves for leaves in found if leaves is not None]


TRACED = (
    "A traced `step` is called once, however often it runs later, and is given no arrays. Leave "
    "the loop in Python, and call `step` there."
)


@EXERCISE.check(
    ground="observed",
    hints=("How often does your loop run, and which `step` does it call?", TRACED),
)
def every_step_is_called(record: Record) -> Result:
    """`run` calls `step` once for each step, with arrays."""
    for target, steps in _rounds(record).items():
        calls, given = seen(record).facts[facts.calls(target)], _given(record, target)
        one_short = ["islice", "range", "repeat"] * (calls == steps - 1)
        traced = any(leaf.kind == "other" for leaves in given for leaf in leaves)
        if calls != steps or traced:
            tracers = ", with tracers: `run` compiles the step as part of something else" * traced
            too_many = calls > steps and not traced
            place = statements.every(record, "run", "step") if too_many else []
            return Failure(
                f"{steps} calls of `step` with arrays, for {steps} steps",
                plural(calls, "call") + tracers,
                place or statements.call(record, "run", *one_short),
                TRACED if traced else TOO_MANY if too_many else ONE_SHORT if one_short else "",
            )
    if seen(record).facts[facts.HIDES]:
        observed = "`run` returned a state, though its second step had raised one"
        return hidden_error(record, "run", "a step", observed)
    return None


ONE_SHORT = "There is one call for each step. Is something that is no step counted as one?"
TOO_MANY = "Each call of `step` is a step, one to warm up as well. Which call is one too many?"


@EXERCISE.check(
    ground="observed",
    after=("every_step_is_called",),
    hints=("Each step starts from the state that the step before returned.",),
)
def same_state(record: Record) -> Result:
    """Steps get the caller's numbers, the last state is right, and the caller keeps what it has."""
    for target, changed in zip(ROUNDS, seen(record).facts[facts.CHANGED], strict=True):
        name = facts.first(target)
        failure = differing_leaf(record, name, rtol=0, atol=0) or zeros_of_other_sign(record, name)
        if failure:
            index = int("`state" in failure.expected)
            place = statements.argument(record, "run", "step", index)
            if "has dtype" in failure.expected and (casts := calls_of(record, ("astype",))):
                return replace(failure, culprits=casts, hint=CAST)
            return replace(failure, culprits=place, hint=failure.hint or AS_GIVEN)
        failure = differing_leaf(record, facts.result(target), rtol=1e-4, atol=1e-5)
        if failure:
            made = statements.result(record, "run")
            return replace(failure, culprits=definition(record, "run"), made=made)
        if changed:
            observed = (
                f"replaced in the dict, moved in it, put into it, or deleted: {', '.join(changed)}"
            )
            place = statements.donated(record, "run") or statements.written_into(record, "run")
            return Failure(UNCHANGED, observed, place, CALLERS)
    if donated := statements.donated(record, "run"):
        observed = "an array is given away, as `donate=True` asks for"
        return Failure(UNCHANGED, observed, donated, CALLERS)
    return None


CAST = "Each array keeps its dtype on its way. Which of them does this line give another one?"
AS_GIVEN = (
    "To bring an array to a device changes no number. Which line computes with this one, or "
    "takes one of an earlier run?"
)
UNCHANGED = "the caller has all that it gave, unchanged, while the steps run and after `run`"
CALLERS = (
    "What is written into a dict, and what is donated, the caller sees, too. Make a new dict, and "
    "leave the given arrays as they are."
)


TO_NUMPY = ("device_get", "np.asarray", "np.array", "numpy.asarray", "numpy.array")
"""What makes a NumPy array of an array on a device."""
IN_NUMPY = (
    "A NumPy array lies in host memory, on no device. jax.device_get copies to the host, and "
    "jax.device_put to a device."
)
ELSEWHERE = "`device` says where the steps run. Where does your code take the place from?"


@EXERCISE.check(
    ground="observed",
    after=("every_step_is_called",),
    hints=(
        "A step runs where its committed arrays are. An uncommitted array elsewhere raises no "
        "error: each call copies it again, and from the second call on no guard tells you.",
        "Move all that `step` takes, and not only what the error message names.",
    ),
    anchor="a-free-array-is-copied-at-every-call",
)
def steps_on_the_device(record: Record) -> Result:
    """Every array that a step is given lies on the device asked for, and nowhere else."""
    for target in ROUNDS:
        place = where(wanted(record).values[facts.result(target)][0])
        for index, leaves in enumerate(_given(record, target)):
            wrong = [leaf for leaf in leaves if where(leaf) != place]
            if wrong:
                listed = ", ".join(f"{argument(leaf)} on {_place(leaf)}" for leaf in wrong)
                free = all(leaf.kind == "jax" and not leaf.committed for leaf in wrong)
                numpy = [leaf for leaf in wrong if leaf.kind == "numpy"]
                lines = calls_of(record, TO_NUMPY) if numpy else []
                return Failure(
                    f"step {index + 1} is given arrays on {place} only",
                    listed,
                    lines or _giving(record, wrong),
                    IN_NUMPY if numpy else "" if free else ELSEWHERE,
                    made=statements.assigned(record, "run", "arrays"),
                )
    return None


def _giving(record: Record, wrong: Sequence[Leaf]) -> list[Culprit]:
    """What makes the one argument of the step that holds all of `wrong`, or another `device`."""
    of_state = {argument(leaf) == "`state`" for leaf in wrong}
    if len(of_state) == 2:
        return statements.assigned(record, "run", "device")
    return statements.argument(record, "run", "step", of_state.pop())


def _place(leaf: Leaf) -> str:
    """Where a leaf is, and whether each call copies it from there."""
    uncommitted = leaf.kind == "jax" and not leaf.committed
    return where(leaf) + (", uncommitted: each call copies it" if uncommitted else "")


@EXERCISE.check(
    ground="observed",
    after=("same_state", "steps_on_the_device"),
    hints=("The last state is where the last step ran. It need not be moved again.",),
)
def result_on_the_device(record: Record) -> Result:
    """The last state is committed to the device asked for."""
    for target in ROUNDS:
        name = facts.result(target)
        (mine,), place = seen(record).values[name], where(wanted(record).values[name][0])
        if where(mine) != place or not mine.committed:
            uncommitted = ", uncommitted" * (mine.kind == "jax" and not mine.committed)
            return Failure(
                f"the result is committed to {place}",
                f"it is on {where(mine)}{uncommitted}",
                statements.result(record, "run"),
            )
    return None


READ = (
    "The marked line reads an array: the host waits for the device, and the values come to it. "
    "What does `run` need them for?"
)
SENT = "copy_to_host_async copies to the host as well. Nothing in this loop needs the values there."


@EXERCISE.check(
    ground="observed",
    after=("every_step_is_called",),  # a compiled loop takes its bounds from the host
    hints=("np.asarray and jax.device_get go through the host. device_put does not have to.",),
)
def not_through_the_host(record: Record) -> Result:
    """No array goes to the host, or is read by it."""
    to, back = to_host(seen(record)), list(events(seen(record), "h2d"))
    found = [*to, *back]
    if not found and (programs := seen(record).facts[facts.THROUGH_HOST]):
        return Failure(
            "arrays are copied from device to device",
            f"{plural(programs, 'program')} that `run` compiles keep arrays in host memory",
            statements.call(record, "run", "jit"),
            "Which line names a memory? A device's own is used where none is named.",
        )
    if not found:
        return probe_gap(seen(record), "reads", "transfers")
    away, came = (sum(event.count for event in copies) for copies in (to, back))
    sent = all(event.kind == "async_copy" for event in to)
    there = (
        plural(away, "copy") + " to the host"
        if away and sent
        else f"{plural(away, 'read')} by the host"
    )
    return Failure(
        "arrays are copied from device to device, and the host reads none",
        f"{there}, {plural(came, 'copy')} from it",
        culprits(record, found),
        "" if came else SENT if sent else READ,
    )


COPIERS = ("jnp.array", "jnp.copy", "numpy.array", "numpy.copy", "copy", "deepcopy", "clone")
"""What copies an array to where it is already."""
ANEW = (
    "The marked line copies an array that lies on its device already. Pass the array itself: "
    "jnp.array makes a copy, and jnp.asarray does not."
)


MAKES = "what these return are copies"
BESIDE = (
    "Between the steps there is nothing to compute. Which line of the loop is no call of `step`?"
)
STAYS = "What a step returns is where the next one needs it. Which line copies the state once more?"


def _renewed(record: Record, target: str) -> list[tuple[Leaf, int]]:
    """Leaves of `arrays` that came to the steps in several buffers, and in how many."""
    buffers: dict[str, dict[int | None, Leaf]] = {}
    for leaf in (leaf for leaves in _given(record, target) for leaf in leaves):
        if leaf.path.startswith("[0]"):
            buffers.setdefault(leaf.path, {}).setdefault(leaf.buffer, leaf)
    several = [list(leaves.values()) for leaves in buffers.values() if len(leaves) > 1]
    return [(leaves[0], len(leaves)) for leaves in several]


def _states_copied(record: Record, target: str) -> int:
    """How many states were copied after a step returned them, before the next one took them."""
    values = seen(record).values
    went_on = [leaves[-1] for leaves in _given(record, target)[1:]] + values[facts.result(target)]
    pairs = zip(values[facts.gave(target)], went_on, strict=True)
    return sum(gave.buffer != leaf.buffer for gave, leaf in pairs)


def _copied_in_place(observed: Observed, target: str) -> set[str]:
    """Arrays that were on the device from the start, and were copied before the first step."""
    before = {leaf.path: leaf for leaf in observed.values[facts.start(target)]}
    pairs = [(before.get(leaf.path), leaf) for leaf in observed.values[facts.given(target, 0)]]
    there = [(old, new) for old, new in pairs if old and where(old) == where(new)]
    return {argument(new) for old, new in there if old.buffer != new.buffer}


@EXERCISE.check(
    ground="observed",
    after=("result_on_the_device", "not_through_the_host"),
    hints=(
        "The dict that you were given still holds the old arrays: device_put does not change "
        "them, it returns new ones. Keep those, and let every step use them.",
        "Move the line with device_put out of the loop, to a place before it.",
    ),
    anchor="copy-at-the-boundary",
)
def no_copy_in_the_loop(record: Record) -> Result:
    """From the first step on, nothing is copied."""
    found_by_run = (seen(record).facts[name] for name in (facts.BESIDE, facts.IN_OTHER_ORDER))
    for (target, steps), beside, turned in zip(_rounds(record).items(), *found_by_run, strict=True):
        if turned:
            return in_other_order(record, argument(Leaf(turned[0], "jax", "")), "run")
        found = [e for e in events(seen(record), "d2d", phase=target) if e.step > 0]
        if made := seen(record).facts[facts.MADE][ROUNDS.index(target)]:
            return Failure(
                "between the steps, no program runs",
                f"{plural(made, 'program')}, which got no array, ran between {steps} steps",
                definition(record, "run"),
                BESIDE,
            )
        renewed, states = _renewed(record, target), _states_copied(record, target)
        if not (found or renewed or states or beside):
            continue
        total = f"{plural(sum(event.count for event in found), 'copy')} between devices"
        anew = "".join(f"; {argument(leaf)} came in {n} different buffers" for leaf, n in renewed)
        copied = f"; {plural(states, 'state')} copied on the same device" * bool(states)
        if beside and not (renewed or states):
            copied = f"; {plural(beside, 'array')} given to programs that are no step: {MAKES}"
        made = [] if found else calls_of(record, COPIERS)
        hint = STAYS if states else BESIDE if not found else ""
        return Failure(
            f"0 copies from the first of {steps} steps on, and each array stays in one buffer",
            total + anew + copied,
            culprits(record, found) or made or definition(record, "run"),
            ANEW if made else "" if renewed else hint,
        )
    if problem := seen(record).facts[facts.UNSEEN]:
        return Unable(str(problem))
    return probe_gap(seen(record), "transfers")


@EXERCISE.check(
    ground="observed",
    after=("no_copy_in_the_loop",),
    hints=("Name the device that is asked for, and no other on the way.",),
    anchor="copy-at-the-boundary",
)
def copied_at_most_once(record: Record) -> Result:
    """Each array is copied at most once, and not at all if it is there already."""
    counts = (seen(record).facts[name] for name in (facts.BEFORE, facts.SPARE))
    for target, programs, spare in zip(ROUNDS, *counts, strict=True):
        copies = list(events(seen(record), "d2d", phase=target))
        total, size = weight(copies)
        fewest, least = weight(list(events(wanted(record), "d2d", phase=target)))
        larger = total <= fewest and size > least
        needed, made = (f" of {n:,} bytes" if larger else "" for n in (least, size))
        expected = f"{plural(fewest, 'copy')}{needed}, to run on {_asked(record, target)}"
        observed = f"{plural(total, 'copy')}{made} between devices"
        needless = _copied_in_place(seen(record), target)
        needless -= _copied_in_place(wanted(record), target)
        asked = entry_of(File(record.source), "run", "may_alias") if needless else []
        if needless:
            observed += f"; copied, though there already: {', '.join(sorted(needless))}"
        if total > fewest or larger:
            places = asked or culprits(record, copies) or definition(record, "run")
            return Failure(expected, observed, places, ALIASED if asked else "")
        copiers = asked or calls_of(record, COPIERS)
        places = copiers or definition(record, "run")
        if needless:
            hint = ALIASED if asked else ANEW if copiers else ""
            return Failure(expected, observed, places, hint)
        if programs:
            observed += f"; {plural(programs, 'array')} given to programs before the steps: {MAKES}"
            return Failure(expected, observed, places, ANEW if copiers else AGAIN)
        if spare:
            observed += f"; {spare:,} bytes of other arrays are there when the first step begins"
            return Failure(expected, observed, places, ANEW if copiers else AGAIN)
    return probe_gap(seen(record), "transfers")


AGAIN = (
    "Before the first step there is nothing to compute. Which line makes new arrays of some that "
    "lie on the device already?"
)

ALIASED = (
    "jax.device_put copies nothing that lies on the device already, unless it is told to: "
    "`may_alias=False` asks for a copy. Which line copies those?"
)
