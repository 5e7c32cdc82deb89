"""Checks of ex15_few_compiles: the predictions, the caller's list, compiles, and padding."""

import math
from dataclasses import replace

import msgspec
from msgspec import structs

from grader.checks.ex15_few_compiles import EXERCISE
from grader.checks.ex15_few_compiles.facts import (
    FACTOR,
    FORMER,
    MOST_ROWS,
    OLD_PARAMS,
    OTHER_END,
    PROGRAMS,
    RENEWED,
    SCRAMBLED,
    SERVED,
    SERVED_MORE,
    TWICE,
    UNSEEN,
    ZEROS,
    Call,
    Served,
    one_row_more,
    served_list,
)
from grader.judging.arrays import ANOTHERS, load
from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import calls_of, culprits, definition, events, probe_gap, seen, wanted
from grader.judging.results import differing_leaf, renamed
from grader.judging.words import plural
from grader.records.record import Observed, Record
from grader.source import statements

FLOOR = 16
"""How many rows may be computed for each batch, besides twice its own."""
PADDING = "pad-on-the-host"


def _served(record: Record) -> list[Served]:
    """Every list that was served, in order, with the sizes that the reference's side drew."""
    mine, theirs = _lists(seen(record)), _lists(wanted(record))
    return [structs.replace(a, sizes=b.sizes) for a, b in zip(mine, theirs, strict=True)]


def _all_served(record: Record) -> list[Served]:
    """What `_served` gives, and the lists of a submission's own sizes, which come after these."""
    served = _served(record)
    more = _lists(seen(record), SERVED_MORE)
    sizes = one_row_more(served)
    own = [structs.replace(one, sizes=[size]) for one, size in zip(more, sizes, strict=True)]
    return [*served, *own]


def _lists(observed: Observed, fact: str = SERVED) -> list[Served]:
    return msgspec.convert(observed.facts[fact], list[Served])


MASK = (
    "The mask is 1 for a row of the batch and 0 for a row of padding. The predictions for the "
    "padding are cut off."
)
LEFT_OVER = (
    "Some masks are right, and others count more rows than their batch has, but not all of their "
    "array. What is left in a mask from a batch before?"
)
OF_ANOTHER = (
    "Some masks are right, and others count fewer rows than their batch has. Which mask does a "
    "batch get: one of its own, or one that was made for a batch before?"
)
CUT = "An array that is smaller than its batch has no place for some rows. Is its size rounded up?"
NOT_THE_MODELS = "The predictions are those of `model`. Which line makes the ones that you return?"
TIMES_NAN = "The mask multiplies the rows. What is 0 times a NaN, or times an infinity?"
NOT_ONE_BATCH = (
    "`network` takes the mean of the rows that the mask counts in one call. These are to be the "
    "rows of one batch: all of them, and no others."
)
WHY_NOT = {
    OTHER_END: "Are the rows and the mask padded at the same end?",
    SCRAMBLED: "A batch may lie in memory column by column, or be a part of a wider table. In "
    "which order does your code read its numbers?",
    ZEROS: "Where are the rows of the batch put into the array that `model` gets?",
}
"""The hint where it is known why the counted rows are those of no batch."""
OF_THE_MODEL = (
    "Each batch came to `model` as it should. What becomes of the predictions that `model` returns "
    "for it?"
)


OF_WHICH_ROWS = (
    "`model` returns a number for each row of the array that it got, in their order. Which of them "
    "belong to the rows of the batch?"
)


MOST_SIZES = 10
"""So many sizes are listed, the smallest ones."""


@EXERCISE.check(
    ground="observed",
    hints=("The network takes the mean of the rows. Which rows must not be in that mean?", MASK),
    anchor=PADDING,
)
def same_predictions(record: Record) -> Result:
    """The predictions are the reference's, one for each row of each batch."""
    atol = 1e-4 * float(wanted(record).facts[FACTOR])
    for number, served in enumerate(_served(record), 1):
        name = served_list(number)
        if served.changed and number == wanted(record).facts[TWICE][0]:
            continue  # what is changed comes again in this list: the next check names it
        failure = _not_numpy(record, name) or differing_leaf(record, name, rtol=1e-4, atol=atol)
        if failure:
            named = _named(record, failure, number, served)
            if _by_index(record, name):
                observed = f"{named.observed}: the first two predictions, again and again"
                return replace(named, observed=observed, hint=BY_INDEX)
            lost = 0 < sum(call.counted for call in served.calls) < sum(served.sizes)
            known = named.hint and not (lost and "has shape" in named.expected)
            return named if known else _with_reason(record, named, served)
    for number, served in enumerate(_all_served(record), 1):
        if served.made:
            return Failure(
                "each prediction is the number that `model` returned for its row",
                f"of list {number}, those for {plural(served.made, 'batch')} have other numbers",
                statements.result(record, "predict_all"),
                NOT_THE_MODELS,
            )
        if served.overwritten:
            return Failure(
                f"what was returned for list {number} stays as it is when other lists are served",
                f"those for {plural(served.overwritten, 'batch')} are others then, or gone",
                statements.result(record, "predict_all"),
                OF_ITS_OWN,
            )
    return None


OF_ITS_OWN = (
    "Each call returns a list and arrays of its own. Which of them does yours write into once more?"
)


BY_INDEX = (
    "NumPy takes a mask of booleans for a choice of rows, and one of whole numbers for their "
    "indices, 1 and 0. Of which dtype is the mask that cuts in your code?"
)


def _by_index(record: Record, name: str) -> bool:
    """Whether the first wrong shape is that of predictions which a mask of 1 and 0 has indexed."""
    pairs = zip(seen(record).values[name], wanted(record).values[name], strict=False)
    mine, right = next(((a.data, b.data) for a, b in pairs if a.shape != b.shape), (None, None))
    if mine is None or right is None:
        return False
    got, few = load(mine).astype(float), load(right).astype(float)
    if got.ndim != 1 or not 1 < few.size < got.size:
        return False
    indexed = [few[1]] * few.size + [few[0]] * (got.size - few.size)
    return all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(got, indexed, strict=True))


def _not_numpy(record: Record, name: str) -> Failure | None:
    """The failure where a batch's predictions are no NumPy array."""
    for leaf in seen(record).values.get(name, ()):
        if leaf.kind == "jax":
            hint = "np.asarray makes a NumPy array of a jax.Array."
            made = statements.call(record, "predict_all", "append")
            expected = f"`{name}{leaf.path}` is a NumPy array"
            return Failure(expected, "it is a jax.Array", (), hint, made)
    return None


def _named(record: Record, failure: Failure, number: int, served: Served) -> Failure:
    """The failure in the words of the task: `predictions[2]`, and which batches there are."""
    name, many = served_list(number), len(served.sizes) > 8
    listed = ", ".join(map(str, served.sizes[:8])) + (", ..." if many else "")
    given = f"for {plural(len(served.sizes), 'batch')} of {listed} rows"
    last = len(_served(record))
    given += ", which came before, with other params" * (number == last)
    given += ", in an array that came before, with other numbers" * (number == last - 1)
    renewed = number == wanted(record).facts[RENEWED]
    given += ", after the caller put new arrays into the same dict of params" * renewed
    found = renamed(failure, name, "predictions")
    expected, place = f"{found.expected}, {given}", definition(record, "predict_all")
    made = failure.made or statements.call(record, "predict_all", "model")
    if found.observed.endswith(FORMER):
        observed = found.observed.replace(f": that is {FORMER}", f": they are for {FORMER}")
        found = replace(found, observed=observed, hint=FILLED_ANEW)
    if found.observed.endswith(OLD_PARAMS):
        found = replace(found, hint=BY_THE_DICT)
    if "the same values in another shape" in found.observed:
        made = statements.call(record, "predict_all", "squeeze", "reshape", "append", "model")
    if found.observed.endswith("at its end"):  # not cut where it is returned
        made = statements.result(record, "predict_all")
    if ANOTHERS in found.observed:
        made = statements.call(record, "predict_all", "sorted", "argsort", "model")
        found = replace(found, hint=IN_ORDER)
        data = [leaf.data for leaf in seen(record).values[name]]
        if len(data) > 2 and len({*data}) == 1 and found.observed.endswith(f"`[{len(data) - 1}]`"):
            found = replace(found, hint=OF_THE_LAST, observed=f"{found.observed}, as in all others")
            made = statements.matching(record, "predict_all", r".*\blambda\b") or made
    return replace(found, expected=expected, culprits=place, made=made)


BY_THE_DICT = (
    "A caller that trains puts new arrays into the same dict. By what does your code know the "
    "params: by the dict, or by the arrays in it?"
)
FILLED_ANEW = (
    "A caller may fill one array again and again. By what does your code know that it has seen a "
    "batch: by the array, or by the numbers in it?"
)
OF_THE_LAST = (
    "All entries are those of the last batch. A function, or a lambda, looks up a name when it is "
    "called, and not where it is made. Which values have the names in yours by then?"
)
IN_ORDER = (
    "The predictions come in the order of `batches`. In which order does your code serve them, and "
    "which place of the list does each get?"
)


SCALED = "times as much everywhere"
"""`model` multiplies what `network` gives: these are such numbers, not multiplied."""


def _with_reason(record: Record, failure: Failure, served: Served) -> Failure:
    """The failure with what the calls of `model` for this list say about it."""
    calls, given = served.calls, sum(served.sizes)
    counted = sum(call.counted for call in calls)
    why, hint, place, made = "", OF_THE_MODEL, failure.culprits, failure.made
    if not calls or failure.observed.endswith(SCALED):
        what = "they are not what `model` returned" if calls else "`model` is never called"
        why, hint = f"; {what}", NOT_THE_MODELS
        place = calls_of(record, ["network"]) or place
    elif counted > given:
        why = f"; the masks count {counted} rows, and these batches have {given}"
        odd = any(call.batch is None and call.counted < call.rows for call in calls)
        right = any(call.batch is not None for call in calls)
        hint = LEFT_OVER if odd and right else ""
        made = statements.argument(record, "predict_all", "model", 2)
    elif counted < given:
        cut = "has shape" in failure.expected
        some = any(call.batch is not None for call in calls)
        why = f"; the masks count {counted} of the {given} rows"
        hint = CUT if cut else OF_ANOTHER if some else MASK
        made = statements.argument(record, "predict_all", "model", 1 if cut else 2)
    elif others := [call.why for call in calls if call.batch is None]:
        why = f"; in {len(others)} of {len(calls)} calls of `model`, the mask counts "
        why += "other rows than those of one batch" + (others[0] and f": {others[0]}")
        hint = WHY_NOT.get(others[0], NOT_ONE_BATCH)
    elif unreal := sum(not call.finite for call in calls):
        why = f"; in {unreal} of {len(calls)} calls of `model`, rows of padding hold no number"
        hint, made = TIMES_NAN, statements.argument(record, "predict_all", "model", 1)
    else:
        made = statements.call(record, "predict_all", "append", "model")
        if late := [call for call in calls if call.begins]:
            why = f"; in {len(late)} of {len(calls)} calls of `model`, padding comes first"
            hint = OF_WHICH_ROWS
    observed = failure.observed + why
    return replace(failure, observed=observed, culprits=place, hint=hint, made=made)


@EXERCISE.check(
    ground="observed",
    after=("same_predictions",),
    hints=("Pad into a new array: the list and its arrays belong to the caller.",),
    anchor=PADDING,
)
def batches_as_they_were(record: Record) -> Result:
    """The call leaves the caller's batches and params as they were."""
    changed = next((served.changed for served in _all_served(record) if served.changed), "")
    if not changed:
        return None
    expected = "`batches` holds the same arrays after the call, with the same numbers"
    if changed.startswith("`params"):
        expected = "`params` holds the same arrays after the call"
        return Failure(expected, changed, definition(record, "predict_all"), OF_THE_CALLER)
    return Failure(expected, changed, definition(record, "predict_all"))


OF_THE_CALLER = "The dict of params belongs to the caller, too. Which line puts something into it?"


MODEL, STAGE = "jit(network)", "jit(stage)"
STAGED = (
    "jnp.asarray is a program too, one for each size. `model` takes NumPy arrays as they are: what "
    "is left for jnp.asarray to do?"
)
SLICES = {"jit(dynamic_slice)", "jit(slice)", "jit(squeeze)"}
"""What JAX calls the programs that take a part of an array outside jit."""
SLICED = (
    "x[:n] of a jax.Array is a program too, one for each n. Of a NumPy array it is none: which of "
    "the two does your code cut?"
)
MORE_FORMS = (
    "A program is compiled for each shape and for each dtype of the arrays. Why does one size come "
    "in two forms?"
)
MORE_OFTEN = (
    "More programs were compiled than `model` got forms of arrays. Which line compiles something "
    "else, or the same once more?"
)
TOO_LARGE = (
    "No batch has more than 256 rows. What does your code make of a batch whose rows fill one of "
    "its sizes?"
)
SAME_SIZES = (
    "Only the model is compiled, once for each size that it gets. Round up to a few sizes that are "
    "the same in every call of `predict_all`: not to the largest batch of a list."
)


@EXERCISE.check(
    ground="observed",
    after=("same_predictions",),
    hints=(
        "Each name in the list is a compiled program. `network` is the model. What are the "
        "others, and which lines of your code make them?",
        "jnp.pad, jnp.ones, jnp.asarray (`stage` in the list) and x[:n] of a jax.Array are "
        "programs too, one for each size. The same work in NumPy compiles nothing.",
        SAME_SIZES,
    ),
    anchor=PADDING,
)
def few_compiles(record: Record) -> Result:
    """At most 5 programs are compiled, whatever the sizes of the batches."""
    found = list(events(seen(record), "compile"))
    total = sum(event.count for event in found)
    if total <= PROGRAMS:
        return _many_forms(record) or probe_gap(seen(record), "compiles")
    batches = sum(len(served.sizes) for served in _all_served(record))
    names: dict[str, int] = {}
    for event in found:
        names[event.detail] = names.get(event.detail, 0) + event.count
    said = {STAGE: ", which is what jnp.asarray makes of a NumPy array"}
    listed = "; ".join(f"{n} of `{name}`{said.get(name, '')}" for name, n in names.items())
    forms, why = _forms(record), ""
    hint = STAGED if set(names) == {MODEL, STAGE} else ""
    hint = SLICED if MODEL in names and set() < names.keys() - {MODEL} <= SLICES else hint
    if set(names) == {MODEL}:
        by_size: dict[int, list[str]] = {}
        for form, rows in forms.items():
            by_size.setdefault(rows, []).append(form)
        most, hint = max(by_size.values(), key=len, default=[]), SAME_SIZES
        if total > len(forms):
            why, hint = f"; `model` got arrays of {plural(len(forms), 'form')}", MORE_OFTEN
        elif len(most) > 1:
            listed_forms = " and ".join(f"({form})" for form in most)
            why = f"; `model` got {plural(len(by_size), 'size')} in {len(forms)} forms, such as "
            why, hint = why + listed_forms, MORE_FORMS
        else:
            sizes = [str(rows) for rows in sorted(by_size)]
            more = ", ..." if len(sizes) > MOST_SIZES else ""
            why = f"; `model` got arrays of {', '.join(sizes[:MOST_SIZES])}{more} rows"
            hint = TOO_LARGE if max(by_size) > MOST_ROWS else hint
    return Failure(
        f"at most {plural(PROGRAMS, 'compile')} for {batches} batches of many sizes",
        f"{total}: {listed}{why}",
        culprits(record, found),
        hint,
    )


def _forms(record: Record) -> dict[str, int]:
    """The forms of the arrays that `model` got, with their rows."""
    return {call.form: call.rows for served in _all_served(record) for call in served.calls}


def _many_forms(record: Record) -> Failure | None:
    """The failure where `model` got arrays of more forms than there may be programs."""
    forms = _forms(record)
    if len(forms) <= PROGRAMS:
        return None
    return Failure(
        f"`model` gets arrays of at most {PROGRAMS} forms, since each is a program",
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
    """For b batches with n rows in all, `model` gets each row; at most 2 n + 16 b are computed."""
    for number, served in enumerate(_all_served(record), 1):
        calls = served.calls
        computed, given = sum(call.rows for call in calls), sum(served.sizes)
        beside = served.beside
        most = 2 * given + FLOOR * len(served.sizes)
        if given <= computed and computed + beside <= most:
            if missed := _not_given(record, number, served):
                return missed
            continue
        observed = f"it computes {computed} rows in {plural(len(calls), 'call')}"
        place, hint = definition(record, "predict_all"), ""
        if calls and len(calls) <= len(served.sizes) and computed > most:
            large = max(calls, key=lambda call: call.rows - 2 * call.counted)
            observed += f", {large.rows} of them for a batch of {large.counted}"
            hint = TOO_FAR if large.counted - 1 in _forms(record).values() else ""
            hint = BY_ITS_ROWS if _fits_in_fewer(record, large) else hint
        if computed <= most < computed + beside:
            observed += f", and other launches compute {beside}"
            place, hint = calls_of(record, ["network"]) or place, BESIDE
        elif len(calls) > len(served.sizes):
            hint = ONE_CALL
        return Failure(
            f"for {plural(len(served.sizes), 'batch')} with {given} rows in all, `model` computes "
            f"{given} to {most} rows",
            observed if calls else "`model` is never called",
            place,
            hint,
            statements.call(record, "predict_all", "model"),
        )
    problem = seen(record).facts[UNSEEN]
    return Unable(str(problem)) if problem else None


def _fits_in_fewer(record: Record, large: Call) -> bool:
    """Whether another call with as many rows of a batch, or more, got an array of fewer rows."""
    calls = (call for served in _all_served(record) for call in served.calls)
    return any(call.counted >= large.counted and call.rows < large.rows for call in calls)


BY_ITS_ROWS = (
    "Elsewhere, a batch of that size got an array of fewer rows. On what does the size of the "
    "array depend in your code, besides the rows of the batch itself?"
)
TOO_FAR = (
    "A batch that has one row more than one of your sizes gets an array of the next size. How "
    "large may that array be?"
)
BESIDE = "`model` computes all that the rows need. Which line computes more?"
ONE_CALL = "One call of `model` for each batch is enough. Which line makes another?"


ALL_ITS_ROWS = "The predictions of a batch come from a call of `model` with all its rows."
ONCE_ONLY = (
    "One array may stand in a list twice. By what does your code know that it has served a batch?"
)


def _not_given(record: Record, number: int, served: Served) -> Failure | None:
    """The failure where `model` did not get the rows of each batch, in one call."""
    left = {*range(len(served.sizes))} - {call.batch for call in served.calls}
    if not left:
        return None
    long, first, second = wanted(record).facts[TWICE]
    once = number == long and left == {second}
    if once and served.changed:
        return None  # what came again had been changed: `batches_as_they_were` names it
    rows = plural(served.sizes[min(left)], "row")
    observed = f"of list {number}, there is none for `batches[{min(left)}]`, of {rows}"
    observed += f", the array that is `batches[{first}]`, too" * once
    return Failure(
        "for each batch, there is a call of `model` whose mask counts its rows, and no others",
        observed,
        definition(record, "predict_all"),
        ONCE_ONLY if once else ALL_ITS_ROWS,
    )
