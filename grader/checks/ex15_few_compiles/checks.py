"""Checks of ex15_few_compiles: the predictions, the caller's list, compiles, and padding."""

from dataclasses import replace

import msgspec
from msgspec import structs

from grader.checks.ex15_few_compiles import EXERCISE
from grader.checks.ex15_few_compiles.facts import SERVED, Served, served_list
from grader.judging.checking import Failure, Result
from grader.judging.evidence import (
    culprits,
    definition,
    differing_leaf,
    events,
    probe_gap,
    seen,
    wanted,
)
from grader.judging.record import Observed, Record
from grader.judging.words import plural

COMPILES = 5
"""How many programs the whole process may compile."""
FLOOR = 16
"""How many rows may be computed for each batch, besides twice its own."""
PADDING = "pad-on-the-host"


def _served(record: Record) -> list[Served]:
    """Every list that was served, in order, with the sizes that the reference's side drew."""
    mine, theirs = _lists(seen(record)), _lists(wanted(record))
    return [structs.replace(a, sizes=b.sizes) for a, b in zip(mine, theirs, strict=True)]


def _lists(observed: Observed) -> list[Served]:
    return msgspec.convert(observed.facts[SERVED], list[Served])


@EXERCISE.check(
    ground="observed",
    hints=(
        "The network takes the mean of the rows. Which rows must not be in that mean?",
        "The mask is 1 for a row of the batch and 0 for a row of padding. The predictions for the "
        "padding are cut off.",
    ),
    anchor=PADDING,
)
def same_predictions(record: Record) -> Result:
    """The predictions are the reference's, one for each row of each batch."""
    for number, served in enumerate(_served(record), 1):
        name = served_list(number)
        failure = _not_numpy(record, name) or differing_leaf(record, name, rtol=1e-4, atol=1e-4)
        if failure:
            named = _named(record, failure, number, served)
            return _padding_counted(record, named) or named
    return None


def _not_numpy(record: Record, name: str) -> Failure | None:
    """The failure where a batch's predictions are no NumPy array."""
    for leaf in seen(record).values.get(name, ()):
        if leaf.kind == "jax":
            return Failure(f"`{name}{leaf.path}` is a NumPy array", "it is a jax.Array")
    return None


def _named(record: Record, failure: Failure, number: int, served: Served) -> Failure:
    """The failure in the words of the task: `predictions[2]`, and which batches there are."""
    name, many = served_list(number), len(served.sizes) > 8
    listed = ", ".join(map(str, served.sizes[:8])) + (", ..." if many else "")
    given = f"for {plural(len(served.sizes), 'batch')} of {listed} rows"
    return Failure(
        f"{failure.expected.replace(name, 'predictions')}, {given}",
        failure.observed.replace(name, "predictions"),
        definition(record, "predict_all"),
    )


def _padding_counted(record: Record, failure: Failure) -> Failure | None:
    """The failure with its reason, where the masks count more rows than there are."""
    counted = sum(call.counted for served in _served(record) for call in served.calls)
    given = sum(sum(served.sizes) for served in _served(record))
    if counted <= given:
        return None
    why = f"the masks count {counted} rows, but the batches have {given}"
    return replace(failure, observed=f"{failure.observed}; {why}")


@EXERCISE.check(
    ground="observed",
    after=("same_predictions",),
    hints=("Pad into a new array: the list and its arrays belong to the caller.",),
    anchor=PADDING,
)
def batches_as_they_were(record: Record) -> Result:
    """The call leaves the caller's batches as they were."""
    changed = next((served.changed for served in _served(record) if served.changed), "")
    if not changed:
        return None
    expected = "`batches` holds the same arrays after the call, with the same numbers"
    return Failure(expected, changed, definition(record, "predict_all"))


@EXERCISE.check(
    ground="observed",
    after=("same_predictions",),
    hints=(
        "Each name in the list is a compiled program. `network` is the model. What are the "
        "others, and which lines of your code make them?",
        "jnp.pad, jnp.ones, jnp.asarray (`stage` in the list) and x[:n] of a jax.Array are "
        "programs too, one for each size. The same work in NumPy compiles nothing.",
        "Round up to sizes that are the same in every call, not to the largest batch of a list.",
    ),
    anchor=PADDING,
)
def few_compiles(record: Record) -> Result:
    """At most 5 programs are compiled, whatever the sizes of the batches."""
    found = list(events(seen(record), "compile"))
    total = sum(event.count for event in found)
    if total <= COMPILES:
        return _many_forms(record) or probe_gap(seen(record), "compiles")
    batches = sum(len(served.sizes) for served in _served(record))
    names: dict[str, int] = {}
    for event in found:
        names[event.detail] = names.get(event.detail, 0) + event.count
    listed = ", ".join(f"{count} of `{name}`" for name, count in names.items())
    return Failure(
        f"at most {plural(COMPILES, 'compile')} for {batches} batches of many sizes",
        f"{total}: {listed}",
        culprits(record, found),
    )


def _many_forms(record: Record) -> Failure | None:
    """The failure where `model` got arrays of more forms than there may be programs."""
    forms = {call.form: None for served in _served(record) for call in served.calls}
    if len(forms) <= COMPILES:
        return None
    return Failure(
        f"`model` gets arrays of at most {COMPILES} forms, since each is a program",
        f"{len(forms)} forms, among them {'; '.join(list(forms)[:3])}",
        definition(record, "predict_all"),
    )


@EXERCISE.check(
    ground="observed",
    after=("few_compiles",),
    hints=(
        "With one size for all, there is one compile, but a batch of 3 rows costs as much as one "
        "of 256.",
        "If each size is twice the one before, padding is less than half of what is computed.",
    ),
)
def little_padding(record: Record) -> Result:
    """For b batches with n rows in all, `model` computes each row, and at most 2 n + 16 b rows."""
    for number, served in enumerate(_served(record), 1):
        calls = served.calls
        computed, given = sum(call.rows for call in calls), sum(served.sizes)
        most = 2 * given + FLOOR * len(served.sizes)
        if given <= computed <= most:
            if missed := _not_given(record, number, served):
                return missed
            continue
        observed = f"it computes {computed} rows in {plural(len(calls), 'call')}"
        return Failure(
            f"for a list of batches of sizes {served.sizes}, `model` computes {given} to "
            f"{most} rows",
            observed if calls else "`model` is never called",
            definition(record, "predict_all"),
        )
    return None


def _not_given(record: Record, number: int, served: Served) -> Failure | None:
    """The failure where `model` did not get the rows of each batch, in one call."""
    left = {*range(len(served.sizes))} - {call.batch for call in served.calls}
    if not left:
        return None
    return Failure(
        "for each batch, there is a call of `model` whose mask counts its rows, and no others",
        f"of list {number}, there is none for `batches[{min(left)}]`, of "
        f"{plural(served.sizes[min(left)], 'row')}",
        definition(record, "predict_all"),
    )
