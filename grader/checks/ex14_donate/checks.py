"""Checks of ex14_donate: the results, what is donated, and whether it saves the second copy."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from grader.checks.ex14_donate import EXERCISE, facts
from grader.checks.ex14_donate.facts import FEATURES, FEW, LEAST, MANY, RUNS, TRACED, Run, Traced
from grader.judging.arrays import FORM, load
from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import calls_of, culprit, definition, given, seen, wanted
from grader.judging.programs import KEPT, compiled_program, not_jitted
from grader.judging.results import differing_leaf, differing_output, renamed
from grader.judging.steps import output_step_ratio
from grader.judging.words import plural
from grader.records.lines import lines_of
from grader.records.record import Leaf, Measured, Memory, Observed, Record
from grader.records.verdict import Culprit
from grader.source import statements


def _traced(observed: Observed) -> list[Traced]:
    """What was traced, for each size."""
    return msgspec.convert(observed.facts[TRACED], list[Traced])


def _runs(record: Record) -> list[tuple[Run, int]]:
    """Each run of the submission, and how many steps the reference's had."""
    mine, theirs = (
        msgspec.convert(side.facts[RUNS], list[Run]) for side in (seen(record), wanted(record))
    )
    return [(run, other.steps) for run, other in zip(mine, theirs, strict=True)]


def _programs(record: Record) -> list[tuple[str, Measured]] | Failure | Unable:
    """The program of each size by its name, or why one of them is missing."""
    found = []
    for number, _ in enumerate(_traced(wanted(record)), 1):
        name = facts.program(number)
        expected = "`step` is a program that can be compiled apart from its file"
        program = compiled_program(record, name, expected, made_by="step")
        if not isinstance(program, Measured):
            return program
        found.append((name, program))
    return found


@EXERCISE.check(
    ground="observed",
    hints=("Donation is an option of jax.jit: `step` must itself be what jax.jit returns.",),
)
def jitted(record: Record) -> Result:
    """`step` itself is a function that jax.jit made."""
    return not_jitted(record, "step")


DTYPES = "Which operation changes the dtype: an `astype`, or a `+ 1.0` on an int32?"
WEAK = (
    "A number of Python's has no dtype of its own, and what is made of it alone is weakly typed. "
    "Of which array, or of which dtype, is this one made?"
)
NAMES = (
    "jax.tree.leaves gives the arrays of a dict in the order of its sorted names. In which order "
    "does your code name them?"
)


@EXERCISE.check(
    ground="observed",
    after=("jitted",),
    hints=(
        "The next step gets this state. An array that is added needs new memory, and an array of "
        "another size finds no old buffer that fits.",
        DTYPES,
    ),
    anchor="a-donation-can-be-refused",
)
def state_fits(record: Record) -> Result:
    """The new state has the arrays of the old one: same names, shapes and dtypes."""
    found = (_other_arrays(record, traced) for traced in _traced(seen(record)))
    return next((one for one in found if one), None)


_CAST = r".*\.astype\([^()]*\)$"


def _other_arrays(record: Record, traced: Traced) -> Failure | None:
    """The failure where a new state has other arrays than the old one."""
    old, new = traced.old_state, traced.new_state
    if old.keys() != new.keys():
        missing, more = (
            ", ".join(f"`state{path}`" for path in sorted(paths))
            for paths in (old.keys() - new.keys(), new.keys() - old.keys())
        )
        observed = f"it has {len(new)}" + f"; {missing} is left out" * bool(missing)
        observed += f"; the old one has no {more}" * bool(more)
        if [*new] == [""]:
            observed = "it is one array: were the new state and the losses exchanged?"
        elif not old.keys() & new.keys():
            observed = f"it has `state{next(iter(new))}`, and not one that is named as there"
        expected = f"the new state has the {len(old)} arrays of the old one"
        place = statements.result(record, "step", *() if [*new] == [""] else (0, 2))
        return Failure(expected, observed, place, "" if old.keys() & new.keys() else FORM)
    for path, before in old.items():
        if before != new[path]:
            weak = new[path] == facts.WEAKLY + before
            after = new[path] if weak else new[path].removeprefix(facts.WEAKLY)
            other = before.partition("[")[0] != after.partition("[")[0]
            cast = statements.matching(record, "step", _CAST) if other else []
            theirs = next((name for name, form in old.items() if form == after), "")
            exchanged = theirs and sorted(old.values()) == sorted(new.values())
            under = (
                f": that is the form of `state{theirs}`, so each array has the name of another one"
            )
            return Failure(
                f"`state{path}` stays {before}",
                f"it becomes {after}" + (under if exchanged else ""),
                cast or definition(record, "step"),
                WEAK if weak else DTYPES if other else NAMES if exchanged else "",
            )
    return None


@EXERCISE.check(
    ground="program",
    after=("state_fits",),
    hints=(
        "How much of the old momentum is left, and which gradient is added to it? Which momentum "
        "do the params get? The losses are those before the step.",
    ),
)
def same_results(record: Record) -> Result:
    """The new state and the losses are the reference's, of one step and of many."""
    programs = _programs(record)
    if not isinstance(programs, list):
        return programs
    sizes = [*zip(programs, _traced(wanted(record)), strict=True)]
    sizes.sort(key=lambda one: not LEAST <= one[1].rows <= MANY)  # the others tell less
    for right, ((name, _), traced) in enumerate(sizes):
        if failure := differing_output(record, name, rtol=1e-4, atol=1e-5):
            size = f", for a state of {traced.state_bytes:,} bytes"
            size += SQUARE * (traced.old_state.get(W1) == f"float32[{FEATURES},{FEATURES}]")
            found = _named(record, failure, name, "step", size)
            if "['count']" in found.expected:
                return _of_count(record, found, name, traced.rows)
            return _of_params(record, found, name, right, traced.rows)
    for number, (_, steps) in enumerate(_runs(record), 1):
        after = f", after {plural(steps, 'step')}"
        rtol, atol = (2e-4, 1e-4) if steps >= facts.LONG else (1e-3, 1e-3)
        for name, word in ((facts.losses(number), "losses"), (facts.last_state(number), "state")):
            if failure := differing_leaf(record, name, rtol=rtol, atol=atol):
                found = _named(record, failure, name, word, after)
                return replace(found, hint=failure.hint or LATER)
    return None


W1, SQUARE = "['params']['w1']", ", with as many hidden units as inputs"
TRANSPOSED = (
    "A square array and its transposed one have the same shape. Which of the two is the gradient, "
    "and how does your code know?"
)
AT_ZERO = (
    "That row has an error of exactly 0. Which function in your code has no derivative there? A "
    "root has none at 0, nor has a norm."
)
WHERE_ZERO = "What becomes of the momentum where the gradient is 0?"
LATER = (
    "One step by itself is right. On what does one of many depend in your code besides the params, "
    "the momentum and the batch: on the count, or on what an earlier call has kept?"
)
DECAY, RATE = 0.9, 0.05
"""What is left of the momentum in each step, and by how much of it the params move."""
NEAR = 1e-3
"""By how much of the largest number the step of the params may differ from what explains it."""
WHOLE = 1e-3
"""So near to a whole number is what a sum is divided by, 1 where it is not divided."""
GRADIENT = "The gradient is that of the mean loss of all rows. Is it that of a sum, or scaled?"
AVERAGE = f"How much of the gradient does the starter add to {DECAY} x the old momentum?"
PARAMS = (
    "The new momentum is right. Is it what the params get, and not the old momentum or the "
    "gradient? Times which number?"
)


def _of_params(record: Record, failure: Failure, name: str, right: int, rows: int) -> Failure:
    """The failure with what is known of the step of the momentum or the params that it names.

    The programs of `right` other sizes came out right; this one has so many `rows`. Momentum comes
    before params in a state, so that the momentum is the reference's then.
    """
    if " NaN of " in failure.observed and facts.FEW < rows <= facts.MANY:
        observed = f"{failure.observed}; here, `b1` and one row of the batch are all 0"
        return replace(failure, observed=observed, hint=AT_ZERO)
    if "['momentum']" in failure.expected and not failure.hint:
        ratio = output_step_ratio(record, name, "['momentum']", DECAY)
        said = f"; what it adds to {DECAY} x the old one is {{:.3g}} times the reference's gradient"
        observed = failure.observed + (said.format(ratio) if ratio else "")
        average = abs((ratio or 0) - (1 - DECAY)) < WHOLE * (1 - DECAY)
        observed += ", as in an average of gradients" * average
        divisor = rows / ratio if ratio and not average else 0
        if not ratio and (known := _of_gradient(record, name)):
            why, hint = known
            return replace(failure, observed=failure.observed + why, hint=hint)
        whole = divisor > WHOLE and abs(divisor - round(divisor)) < WHOLE * divisor
        by = f", as if the sum over {plural(rows, 'row')} were divided by {divisor:.0f}"
        observed += by * (whole and round(divisor) > 1)
        place = statements.assigned(record, "step", "grads", "grad") if whole else failure.culprits
        hint = AVERAGE if average else GRADIENT if ratio else ""
        return replace(failure, observed=observed, hint=hint, culprits=place)
    if "['params']" not in failure.expected or failure.hint:
        return failure
    ratio = output_step_ratio(record, name, "['params']")
    said = f"; the step of the params is {ratio:.3g} times the reference's" if ratio else ""
    said = said or _what_they_get(record, name)
    said += f"; for {plural(right, 'other size')} the numbers are right" if right else ""
    place = (_at_the_rate(record) if ratio else []) or failure.culprits
    return replace(failure, observed=failure.observed + said, hint=PARAMS, culprits=place)


def _of_count(record: Record, failure: Failure, name: str, rows: int) -> Failure:
    """The failure with the word that the count grows by the rows of a batch, if it does."""
    before = [leaf.data for leaf in given(record, name) if leaf.path == "[0]['count']"]
    mine = record.measured.get(name)
    after = [leaf.data for leaf in mine.outputs if leaf.path == "[0]['count']"] if mine else []
    if rows < 2 or not (before and after and before[0] and after[0]):
        return failure
    if int(load(after[0]).item()) - int(load(before[0]).item()) != rows:
        return failure
    observed = f"{failure.observed}: it grows by {rows}, as many as the batch has rows"
    return replace(failure, observed=observed, hint=OF_STEPS)


OF_STEPS = "The count is that of the steps: one call of `step` is one, however many rows it gets."


def _what_they_get(record: Record, name: str) -> str:
    """What the params get in place of the new momentum, if that is known; else ""."""
    mine, theirs = record.measured.get(name), record.reference_measured.get(name)
    if mine is None or theirs is None:
        return ""
    before, old = (_joined(given(record, name), key) for key in ("params", "momentum"))
    after, new = _joined(mine.outputs, "params"), _joined(theirs.outputs, "momentum")
    if any(one is None for one in (before, old, after, new)) or before.shape != after.shape:
        return ""
    got, gradient = (before - after) / RATE, new - DECAY * old
    for words, made in (
        ("the old momentum", old),
        ("the gradient alone", gradient),
        (f"the gradient and {DECAY} x the new momentum (Nesterov's rule)", gradient + DECAY * new),
    ):
        if abs(got - made).max() < NEAR * abs(made).max():
            return f"; times {RATE}, the params get {words}"
    return ""


def _of_gradient(record: Record, name: str) -> tuple[str, str] | None:
    """What explains a momentum that is another one by its gradient, and a hint; None if unknown."""
    mine, theirs = record.measured.get(name), record.reference_measured.get(name)
    if mine is None or theirs is None:
        return None
    sides = mine.outputs, theirs.outputs, given(record, name)
    got, right, old = (_joined(side, "momentum") for side in sides)
    if got is None or right is None or old is None or got.shape != right.shape:
        return None
    wrong = abs(got - right) > NEAR * abs(right)
    unmoved = (got == old) & (abs(right - DECAY * old) < NEAR * abs(old))
    if wrong.any() and unmoved[wrong].all():
        return "; where it differs, it is the old momentum: the gradient is 0 there", WHERE_ZERO
    got, right, old = (_joined(side, "momentum", "w1") for side in sides)
    if got is None or got.size != FEATURES**2 or got.shape != right.shape:
        return None
    added, gradient = ((one - DECAY * old).reshape(FEATURES, FEATURES) for one in (got, right))
    if abs(added - gradient.T).max() < NEAR * abs(gradient).max():
        return "; what it adds for `w1` is the reference's gradient, transposed", TRANSPOSED
    return None


def _joined(leaves: Sequence[Leaf], *keys: str) -> Any:
    """The numbers of a state below some keys, as one vector; None if there are none."""
    import numpy as np  # here: the command line starts without it

    below = "[0]" + "".join(f"['{key}']" for key in keys)
    data = [leaf.data for leaf in leaves if leaf.path.startswith(below)]
    arrays = [load(one).astype("float64").ravel() for one in data if one is not None]
    return np.concatenate(arrays) if arrays else None


def _at_the_rate(record: Record) -> list[Culprit]:
    """The only line that names the learning rate; or nothing."""
    lines = (line.partition("#")[0] for line in lines_of(record.source))
    rate = re.compile(r"(?<![\w.])0?\.05\b")
    named = [number for number, line in enumerate(lines, 1) if rate.search(line)]
    return [culprit(record, named[0])] if len(named) == 1 else []


def _named(record: Record, failure: Failure, name: str, word: str, after: str = "") -> Failure:
    """The failure in the words of the task, with the line of `step`."""
    found = renamed(failure, name, word)
    expected, place = f"{found.expected}{after}", _made_at(record, found)
    hint = found.hint
    if "losses" in found.expected or "`step(...)[1]" in found.expected:
        hint = hint or "The losses are those of each row, with the params before the step."
    elif "['count']" in found.expected:
        hint = hint or "How does the count of one step become that of the next?"
        if statements.unnamed(record, "step", ("params", "momentum", "count")) == ["count"]:
            observed = f"{found.observed}; `step` gives `count` no new value"
            place = statements.returned(record, "step", 0, 2)
            found = replace(found, observed=observed)
    return replace(found, expected=expected, culprits=place, hint=hint)


def _made_at(record: Record, failure: Failure) -> list[Culprit]:
    """What makes the part of a step's results that a failure names, else the line of `step`."""
    expected = failure.expected
    if "exchanged" in failure.observed:  # where both stand
        return statements.result(record, "step", 0, 2)
    for key in ("momentum", "params", "count"):
        if f"['{key}']" in expected:
            return statements.entry(record, "step", key)
    if "losses" in expected or "`step(...)[1]" in expected:
        return statements.result(record, "step", 1, 2)
    return definition(record, "step")


OUTERMOST = (
    "The outermost jit decides, and counts its arguments from 0: give it donate_argnums=0, or "
    "donate_argnames='state'."
)


@EXERCISE.check(
    ground="program",
    after=("same_results",),
    hints=(
        "Inside jit, no statement overwrites an array: `x += 1` and .at[].set make new arrays, and "
        "`del` only drops a name. A buffer is the caller's until it is donated.",
        OUTERMOST,
    ),
)
def state_in_place(record: Record) -> Result:
    """Every array of the new state is written over an old one, as compiled and in each run."""
    programs = _programs(record)
    if not isinstance(programs, list):
        return programs
    pairs = zip(programs, _traced(seen(record)), strict=True)
    found = (_not_in_place(record, program, traced) for (_, program), traced in pairs)
    return next((one for one in found if one), None) or _steps_not_in_place(record)


def _not_in_place(record: Record, program: Measured, traced: Traced) -> Failure | None:
    """The failure where a program of one size leaves a part of the state where it was."""
    paths = list(traced.old_state)
    aliased = set(program.aliases.values())
    missing = [path for index, path in enumerate(paths) if index not in aliased]
    if not missing:
        return _run_in_place(record, program, paths)
    moved = calls_of(record, ("device_put",)) if "donate=" in record.source else []
    hint = OUTERMOST if traced.batch_donated or traced.donated_inside or moved else ""
    dropped = statements.dropped_at_top(record, "step", "jit")
    return Failure(
        f"all {len(paths)} arrays of the state, {traced.state_bytes:,} bytes, are written in place",
        f"{len(paths) - len(missing)} of {len(paths)} are: {_donation(traced)}"
        + "; what the marked line makes is dropped" * bool(dropped),
        dropped or definition(record, "step"),
        hint or (KEPT if dropped else ""),
    )


def _run_in_place(record: Record, program: Measured, paths: list[str]) -> Failure | None:
    """After a run the old state is deleted, and the new one lies at its addresses."""
    here = definition(record, "step")
    alive = [f"`state{p}`" for index, p in enumerate(paths) if index not in program.deleted]
    if alive:
        return Failure("a run deletes the old state", f"not deleted: {', '.join(alive)}", here)
    kept = set(program.reused.values())
    unused = [f"`state{p}`" for index, p in enumerate(paths) if index not in kept]
    if unused:
        observed = f"not used again: {', '.join(unused)}"
        return Failure("the new state lies in the old buffers", observed, here)
    return None


def _steps_not_in_place(record: Record) -> Failure | None:
    """The failure where a step of a run left the old state alive, or the new one elsewhere."""
    for run, steps in _runs(record):
        given = f"in a run of {plural(steps, 'step')}, each"
        for count, expected, what in (
            (run.alive, f"{given} deletes the old state", "left an array of it alive"),
            (run.moved, f"{given} writes the new state into the old buffers", "did not"),
        ):
            if count:
                observed = f"{plural(count, 'step')} {what}"
                return Failure(expected, observed, definition(record, "step"))
    return None


def _donation(traced: Traced) -> str:
    """What `step` donates, in words, where it is not enough."""
    if traced.state_donated:
        return "`state` is donated, but no result fits the other arrays"
    if traced.batch_donated:
        return "`step` donates `batch`, not `state`"
    if traced.donated_inside:
        return "a jitted function inside `step` donates, but the jit around it does not"
    return "`step` donates nothing, so the old state and the new one both need memory"


@EXERCISE.check(
    ground="observed",
    after=("state_in_place",),
    hints=(
        "A donated array is deleted for the caller too. Which argument does the caller use again?",
        "Donate only the argument at position 0.",
    ),
)
def batch_is_kept(record: Record) -> Result:
    """The batch is not donated: the caller can use it in the next epoch."""
    lost = sum(run.batch_lost for run, _ in _runs(record))
    if lost or any(traced.batch_donated for traced in _traced(seen(record))):
        return Failure(
            "`step` donates only `state`",
            "`batch` is donated too: after one call, the caller's batch may be deleted",
            definition(record, "step"),
        )
    return None


@EXERCISE.check(
    ground="program",
    after=("state_in_place",),
    hints=("Update each array by itself. A flat vector of all arrays is a copy of the state.",),
    anchor="two-copies-at-the-peak",
)
def one_copy_of_the_state(record: Record) -> Result:
    """The program needs no memory for a second copy of the state, whatever its size."""
    programs = _programs(record)
    if not isinstance(programs, list):
        return programs
    pairs = zip(programs, _traced(wanted(record)), strict=True)
    found = (_second_copy(record, name, mine, traced) for (name, mine), traced in pairs)
    return next((one for one in found if one), None) or _on_the_host(record)


def _on_the_host(record: Record) -> Failure | None:
    """The failure where a program moves arrays to the host's memory, or back."""
    if not any(traced.uses_the_host for traced in _traced(seen(record))):
        return None
    place = statements.call(record, "step", "device_put")
    observed = "it keeps arrays in the host's memory, too"
    return Failure("the program works in its device's memory alone", observed, place, ON_THE_HOST)


ON_THE_HOST = "A copy of the state is a second copy wherever it lies. Which line makes it?"


HIDDEN = 18
"""The part of the state that the hidden units of one row take twice."""


def _second_copy(record: Record, name: str, program: Measured, traced: Traced) -> Result:
    """The failure where a program needs more than the reference's, and twice its hidden units.

    Those of six rows take a third of the state, and so much is left to fewer rows, too.
    """
    reference = record.reference_measured.get(name)
    if program.memory is None or reference is None or reference.memory is None:
        return Unable("this backend does not say how much memory a program needs")
    state = traced.state_bytes
    more = state * max(traced.rows, FEW) // HIDDEN
    needed, limit = _needed(program.memory), _needed(reference.memory) + more
    if needed <= limit:
        return None
    return Failure(
        f"at most {limit:,} bytes: what the reference needs, and {more:,} of the state's {state:,}",
        f"{needed:,} bytes, {program.memory.temporaries:,} of them for intermediate results",
        definition(record, "step"),
    )


def _needed(memory: Memory) -> int:
    """Bytes a program needs on its device."""
    return memory.arguments + memory.outputs + memory.temporaries - memory.aliased
