"""Checks of ex09_stay_on_cpu: the numbers, where both results lie, and every copy on the way."""

import ast
import re
from collections.abc import Mapping
from dataclasses import replace

from grader.checks.ex09_stay_on_cpu import EXERCISE
from grader.checks.ex09_stay_on_cpu.facts import (
    GONE,
    N_LESS_ONE,
    PREDICTED,
    PREPARED,
    THROUGH_HOST,
    UNSEEN,
    baked,
    batch,
    made_after,
    overwritten,
    phase,
    prediction,
    ran_on,
    renewed,
    settings_after,
)
from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import (
    calls_of,
    culprits,
    definition,
    events,
    probe_gap,
    seen,
    to_host,
    wanted,
    weight,
)
from grader.judging.results import bits_cut_off, differing_leaf
from grader.judging.words import PARTS, plural, where
from grader.records.record import Event, EventKind, Observed, Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File

NUMBERS = 64
"""A copy of at most so many bytes is of a few numbers, such as a seed; `raw` has more."""
COPIES: Mapping[EventKind, tuple[str, str]] = {
    "h2d": ("copy", "from the host"),
    "d2d": ("copy", "between devices"),
    "d2h": ("read", "to the host"),
    "async_copy": ("copy", "to the host"),
}
"""Every kind of copy: what it is called, and which way it goes."""


def _copies(observed: Observed, phase: str) -> list[Event]:
    """Every copy of a call, and every read."""
    return [*events(observed, "h2d", "d2d", phase=phase), *to_host(observed, phase)]


def _prepared(record: Record) -> list[tuple[str, str]]:
    """The device `cpu` and the default device of each call of `prepare`."""
    return [(str(cpu), str(default)) for cpu, default in wanted(record).facts[PREPARED]]


def _predicted(record: Record) -> list[tuple[str, str, str]]:
    """As `_prepared`, for `predict`, and whether the batch was committed."""
    calls = wanted(record).facts[PREDICTED]
    return [(str(cpu), str(default), str(kind)) for cpu, default, kind in calls]


def _in_words(copies: list[Event]) -> str:
    """`2 copies between devices, 1 read to the host`."""
    words = []
    for kind, (noun, direction) in COPIES.items():
        count = sum(event.count for event in copies if event.kind == kind)
        if count:
            words.append(f"{plural(count, noun)} {direction}")
    return ", ".join(words)


@EXERCISE.check(
    ground="observed",
    hints=(
        "The numbers are those of add_noise(standardise(raw), seed). Only the place where they are "
        "made changes.",
    ),
)
def same_batch(record: Record) -> Result:
    """`prepare` returns the reference's numbers for `raw` and `seed`, and leaves `raw` as it is."""
    for call in range(len(_prepared(record))):
        if failure := differing_leaf(record, batch(call), rtol=1e-5, atol=1e-5):
            named = _named(record, failure, batch(call), "prepare")
            of_std = statements.call(record, "prepare", "std")
            return replace(named, made=of_std) if N_LESS_ONE in failure.observed else named
        if done := seen(record).facts[overwritten(call)]:
            place = statements.written_into(record, "prepare")
            expected = "in `prepare` and afterwards, `raw` is as it was"
            return Failure(expected, str(done), place, CALLERS)
    names = [batch(call) for call in range(len(_prepared(record)))]
    failure = bits_cut_off(record, names, lambda leaf: leaf.dtype == "float32")
    return failure and replace(failure, culprits=statements.result(record, "prepare"))


CALLERS = "`raw` belongs to the caller. Which line writes into it?"


def _named(record: Record, failure: Failure, name: str, function: str) -> Failure:
    """The failure, in which the value of a call is called by its function: `prepare(...)`."""
    expected = failure.expected.replace(f"`{name}", f"`{function}(...)")
    made, place = statements.result(record, function), definition(record, function)
    return replace(failure, expected=expected, culprits=place, made=made)


@EXERCISE.check(
    ground="observed",
    after=("same_batch",),
    hints=("A new array goes to the default device, unless you name another one. Name one.",),
    anchor="new-arrays-follow-the-default",
)
def batch_on_the_cpu(record: Record) -> Result:
    """`prepare` returns its batch on the CPU device, as a jax.Array."""
    for call, (cpu, default) in enumerate(_prepared(record)):
        for leaf in seen(record).values[batch(call)]:
            if (found := where(leaf)) == cpu:
                continue
            place, hint = found, "Return the jax.Array: what turns it into something else?"
            if leaf.kind == "jax":
                place, hint = f"on {found}", "`cpu` is the device that is asked for. Is it used?"
            if found == default:
                place += ", the default device: no other device was named where it was made"
                hint = ""
            blocks = calls_of(record, ("default_device",)) if found == default else []
            if blocks:
                place, hint = f"on {found}, the default device outside the block", OUTSIDE
                if statements.dropped(record, "prepare", "default_device"):
                    place, hint = f"on {found}, which is still the default device", NO_BLOCK
            made = statements.result(record, "prepare")
            here = blocks or definition(record, "prepare")
            if hint == OUTSIDE and made != definition(record, "prepare"):
                here = [*made, *blocks]
            hint = IN_A_TRACE if hint == OUTSIDE and _is_jitted(record) else hint
            return Failure(f"the batch is on {cpu}", f"it is {place}", here, hint, made)
    return None


NO_BLOCK = (
    "jax.default_device(cpu) alone changes nothing. It is for a `with` block, and holds inside it."
)
IN_A_TRACE = (
    "The body of a jitted function runs only while it is traced: a block in it does not decide "
    "where the program runs. Around which call does jax.default_device(cpu) belong?"
)
OUTSIDE = (
    "What makes new arrays, such as a random key, does so on the default device of that moment. "
    "What does `prepare` compute inside the `with` block, and what outside of it?"
)


def _is_jitted(record: Record) -> bool:
    """Whether `prepare` itself is jitted, by a decorator."""
    top = File(record.source).doing("prepare")
    named = map(ast.unparse, top.decorator_list) if isinstance(top, ast.FunctionDef) else ()
    return any(re.search(r"\bjit\b", one) for one in named)


def _astray(record: Record, call: int) -> list[Event]:
    """The copies from the host that a call of `prepare` makes to another device than `cpu`.

    To a mesh of one device, the log does not name that. One copy of `raw`, and a few numbers, may
    go to `cpu` in this way, if `raw` came there in no other; what is more went elsewhere.
    """
    name, (cpu, _) = phase("prepare", call), _prepared(record)[call]
    sent = list(events(seen(record), "h2d", phase=name))
    large = [event for event in sent if (event.nbytes or NUMBERS + 1) > NUMBERS]
    came = seen(record).facts[baked(call)] > NUMBERS or any(e.detail == cpu for e in large)
    needed = 0 if came else weight(list(events(wanted(record), "h2d", phase=name)))[1]
    _, unnamed = weight([event for event in sent if not event.detail])
    once = sum(event.count for event in large if not event.detail) <= 1
    right = (cpu, "") if once and unnamed <= needed + NUMBERS else (cpu,)
    return [event for event in sent if event.detail not in right]


def _made_before(record: Record, visits: list[Event]) -> list[Culprit]:
    """The other lines of `prepare` that made an array on the default device."""
    file, known = File(record.source), {event.line for event in visits}
    made = (event for call, _ in enumerate(_prepared(record)) for event in _astray(record, call))
    lines = (event for event in made if event.line is not None and event.line not in known)
    return culprits(record, [e for e in lines if file.function_at(e.line or 0) == "prepare"])


def _calls_first(record: Record, found: list[Culprit]) -> list[Culprit]:
    """The learner's calls of the given functions that hold these lines, and then the lines."""
    file = File(record.source)
    inside = {file.function_at(place.line) for place in found} & {"add_noise", "standardise"}
    return [*calls_of(record, sorted(inside)), *found]


@EXERCISE.check(
    ground="observed",
    after=("batch_on_the_cpu",),
    hints=(
        "A new array is made on the default device, even if the array that it will meet is "
        "committed to another one. It is copied when the two meet. jax.random.key and "
        "jax.random.normal make new arrays.",
        "jnp.asarray(raw) copies `raw` to the default device. If you move it to `cpu` later, "
        "that is a second copy.",
        "Make `cpu` the default device while you prepare: jax.default_device(cpu).",
    ),
    anchor="new-arrays-follow-the-default",
)
def no_visit_to_the_accelerator(record: Record) -> Result:
    """No array in `prepare` visits another device on its way."""
    visits = [*events(seen(record), "d2d", phase="prepare"), *to_host(seen(record), "prepare")]
    expected = (
        "every array in `prepare` is made on the device `cpu`: no copy between devices, and no "
        "read to the host"
    )
    if visits:
        between = any(event.kind == "d2d" for event in visits)
        read = any(event.kind == "d2h" for event in visits)
        why = "an array was read" if read else "an array was sent to the host"
        why = "an array was made on another device first" if between else why
        return Failure(
            expected,
            f"{_in_words(visits)} in {plural(len(_prepared(record)), 'call')}: {why}",
            [*_made_before(record, visits), *_calls_first(record, culprits(record, visits))],
            "" if between else "NumPy, float() and print read an array. Nothing here needs that.",
        )
    if problem := seen(record).facts[UNSEEN]:
        return Unable(str(problem))
    for call, (cpu, default) in enumerate(_prepared(record)):
        astray = _astray(record, call)
        ran = {*seen(record).facts[ran_on("prepare", call)]} - {cpu}
        went = ["an array was made"] * bool(astray) + ["a program ran"] * bool(ran)
        if went:
            other = min(ran | {event.detail for event in astray}, key=lambda one: one != default)
            other = "several devices" if other in (PARTS, "") else other
            other += ", the default device," * (other == default)
            return Failure(
                expected,
                f"{' and '.join(went)} on {other} and not on {cpu}",
                culprits(record, astray) or definition(record, "prepare"),
            )
    return probe_gap(seen(record), "transfers", "reads")


@EXERCISE.check(
    ground="observed",
    hints=(
        "The numbers are those of model(params, batch), with the params and batch of the call.",
    ),
)
def same_prediction(record: Record) -> Result:
    """`predict` returns the reference's numbers, and leaves params and batch as they are."""
    for name in map(prediction, range(len(_predicted(record)))):
        if failure := differing_leaf(record, name, rtol=1e-5, atol=1e-5):
            return _named(record, failure, name, "predict")
    if gone := seen(record).facts[GONE]:
        _, name = gone[0]
        place = [*statements.donated(record, "predict"), *calls_of(record, ("delete",))]
        expected = "the caller has the params and the batch after `predict`, for another call"
        hint = "What `predict` is given belongs to the caller. Which line gives it away?"
        place = place or definition(record, "predict")
        return Failure(expected, f"`{name}` is deleted", place, hint)
    return _of_the_dict(record)


def _of_the_dict(record: Record) -> Failure | None:
    """The failure where `predict` changes the dict of params that it is given."""
    names = (name for call, _ in enumerate(_predicted(record)) for name in _renewed(record, call))
    if (name := next(names, None)) is None:
        return None
    known = name in PARAMS
    return Failure(
        "`predict` leaves the dict of params as it is",
        f"`params[{name!r}]` is " + ("another array afterwards, or gone" if known else "added"),
        statements.written_into(record, "predict") or definition(record, "predict"),
        "The dict belongs to the caller, who uses it again. Which line changes it?",
    )


PARAMS = ("w1", "w2")
"""The names of the params."""


def _renewed(record: Record, call: int) -> list[str]:
    """The names under which a call of `predict` puts other params into the dict, or none."""
    return [str(name) for name in seen(record).facts[renewed(call)]]


@EXERCISE.check(
    ground="observed",
    after=("same_prediction",),
    hints=(
        "A program runs where its committed arrays are, and its uncommitted arrays are copied "
        "there. The default device does not change that.",
        "jax.device_put(x) without a device leaves a committed array where it is.",
        "jax.device_put(batch, device) copies the batch and commits the copy.",
    ),
    anchor="who-wins",
)
def model_on_the_default_device(record: Record) -> Result:
    """The model runs on the default device, even if the batch is committed to a CPU."""
    for call, (cpu, default, commitment) in enumerate(_predicted(record)):
        for leaf in seen(record).values[prediction(call)]:
            place = where(leaf)
            if place == default:
                continue
            observed = f"it is on {place}"
            hint = "" if place == cpu else "`device` is the device that is asked for. Is it used?"
            if {*seen(record).facts[ran_on("predict", call)]} == {default}:
                observed += f": the model ran on {default}, and the result was moved from there"
                hint = MOVED
            elif place == cpu:
                observed += f": the model followed the {commitment} batch"
            return Failure(
                f"the prediction from the {commitment} batch is on {default}",
                observed,
                statements.call(record, "predict", "device_put"),
                hint,
                statements.result(record, "predict"),
            )
        if failure := _elsewhere(record, call):
            return failure
    return Unable(str(problem)) if (problem := seen(record).facts[UNSEEN]) else None


MOVED = "The result is where the model ran. Which line takes it to another device?"


def _elsewhere(record: Record, call: int) -> Failure | None:
    """The failure if `predict` runs programs elsewhere; of more copies, the next check tells."""
    _, default, commitment = _predicted(record)[call]
    ran = sorted({*seen(record).facts[ran_on("predict", call)]} - {default})
    if not ran or any(_copies_more(record, number) for number in range(len(_predicted(record)))):
        return None
    return Failure(
        f"`predict` runs programs on {default} alone",
        f"with the {commitment} batch, a program ran on {', '.join(ran)}, too",
        definition(record, "predict"),
        "Which line of `predict` computes before the batch is where the model runs?",
    )


def _copies_more(record: Record, call: int) -> bool:
    """Whether a call of `predict` makes more copies than the reference's."""
    mine, theirs = (_copies(side(record), phase("predict", call)) for side in (seen, wanted))
    return weight(mine)[0] > weight(theirs)[0]


ARRAYS = 4
"""So many arrays has `predict`: the batch, two params and the result."""
IN_PARTS = "One copy takes all rows of a batch. Which line takes it apart before it is copied?"


@EXERCISE.check(
    ground="observed",
    after=("model_on_the_default_device",),
    hints=("One array is in the wrong place. Which one, and when must it move?",),
    anchor="who-wins",
)
def batch_is_the_one_copy(record: Record) -> Result:
    """`predict` moves the batch to the device once, before the model runs, and nothing else."""
    for call, (_, _, commitment) in enumerate(_predicted(record)):
        name = phase("predict", call)
        mine, theirs = (_copies(side(record), name) for side in (seen, wanted))
        (total, size), (fewest, least) = map(weight, (mine, theirs))
        if total > fewest:
            why = "the params or the result moved too, or the batch took a detour"
            rows = wanted(record).values[prediction(call)][0].shape[0]
            moves = [event for event in mine if event.kind == "d2d"]
            alike = weight(moves)[1] == least and weight(moves)[0] > fewest
            in_parts = (
                size == least or alike or (total > ARRAYS and len({e.line for e in mine}) == 1)
            )
            if in_parts:
                why = f"the batch of {rows} rows went in parts"
            return Failure(
                f"a call with the {commitment} batch makes {plural(fewest, 'copy')}: only the "
                "batch is copied",
                f"{_in_words(mine)}: {why}",
                culprits(record, mine),
                IN_PARTS if in_parts else "",
            )
    if programs := seen(record).facts[THROUGH_HOST]:
        return Failure(
            "only the batch is copied, to the device",
            f"{plural(programs, 'program')} that `predict` compiles keep arrays in host memory",
            statements.call(record, "predict", "jit"),
        )
    return probe_gap(seen(record), "transfers", "reads")


@EXERCISE.check(
    ground="observed",
    hints=("When a `with` block ends, it puts back what it changed. Does your code do that?",),
    anchor="who-wins",
)
def default_is_as_before(record: Record) -> Result:
    """After each function, the default device is what it was before, and so is `jax.config`."""
    calls = [("prepare", call) for call in range(len(_prepared(record)))]
    calls += [("predict", call) for call in range(len(_predicted(record)))]
    for name, call in calls:
        made = made_after(name, call)
        found, right = (side(record).values[made][0] for side in (seen, wanted))
        if where(found) != where(right):
            return Failure(
                f"a new array is on {where(right)} after `{name}`",
                f"it is on {where(found)}: from now on, all code makes its arrays there",
                definition(record, name),
            )
        if changed := seen(record).facts[settings_after(name, call)]:
            return Failure(
                f"after `{name}`, all settings of JAX are what they were before",
                f"{', '.join(f'`{one}`' for one in changed)}: from now on, all code gets another "
                "value",
                statements.call(record, name, "__enter__", "update"),
            )
    return None
