"""Turns a record into a report: judges every check once, in order, and runs nothing.

It never raises, whatever the record holds. Where a check raises, the same check is made of the
reference. If that goes well, the check is sound, and what the submission left behind cannot be
read: that is a failure. If it raises too, the fault is the grader's own: it could not be
checked, and the verdict says what to report. Where a failure happened, and why, is a courtesy: one
for which that cannot be found stands as its check tells it.
"""

import re
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from grader.judging import witness
from grader.judging.arrays import EXCHANGED, FORM
from grader.judging.checking import Check, Exercise, Failure, Result, Unable
from grader.judging.evidence import culprit
from grader.judging.results import IN_ANOTHER_ORDER, WERE_EXCHANGED
from grader.judging.said import (
    cleaned,
    hint_for,
    in_words,
    is_of_a_call,
    is_of_places,
    shortened,
    without_treedefs,
)
from grader.judging.steps import TURNED
from grader.judging.unlike import difference
from grader.records.record import Outcome, Record
from grader.records.verdict import Culprit, Ground, Report, Status, Unrun, Verdict
from grader.source import statements
from grader.source.file import File, given_names
from grader.source.places import (
    led_to,
    of_call,
    of_cause,
    of_decorators,
    of_definitions,
    of_frames,
    of_only_statement,
    of_return,
    of_text,
    of_words,
    own_first,
    shown,
)
from grader.source.returns import Missing, missing
from grader.source.slips import OTHER_ORDER, Slip, slips
from grader.source.sole_difference import Parting, parting
from grader.source.unrun import unrun

SOURCE = "source"
RUNS = "runs"
MAX_WORDS = 500
LONGEST = 20_000
"""Characters of what was expected or observed: more than any report of ex10, which is shown."""
NO_RETURN = "A function that ends without `return` gives None. What does its docstring promise?"
WHAT_A_FILE_MAY_HOLD = "reference/what-a-file-may-hold"
_OF_THE_FILE = {
    "definitions": "The grader calls each function by its name, with the parameters that the "
    "starter gives it.",
    "edits": "Undo this change; what you add gets a name of its own. `grader reset` writes a fresh "
    "starter, and keeps your version beside it.",
    "policy": "Nothing of your code was run yet. An answer needs only what the page below lists: "
    "everything else is refused, so that what is observed can be believed.",
}
"""What to do about each kind of finding."""
_EXCEPTION = re.compile(r"[\w.]+(Error|Exception|Warning|Exit|Interrupt|Iteration)\b")
_CALLED = re.compile(r"\bcalls? (?:of |the )?`(\w+)`")
_VARIABLE = re.compile(r"\b[A-Z]+(?:_[A-Z]+){2,}\b")
"""A variable of the environment."""
_DONATED = re.compile(r"\bdonate[sd]\b")
_Made = dict[str, Sequence[Culprit]]
"""Check -> where the value is made that its failure is about."""
_RUNS = "The code runs to the end, and returns what the task asks for."
_PROMISE = {
    "raised": "no exception",
    "exited": "the code returns to the grader",
    "killed": "the process lives to the end",
    "timeout": "the code ends in time",
    "flooded": "little output",
    "garbled": "an answer the grader can read",
}


def judge(record: Record, exercise: Exercise) -> Report:
    """Judge every check of `exercise` over `record`. A fault of the grader's is a verdict, too."""
    try:
        return _judge(record, exercise)
    except Exception as error:  # noqa: BLE001 (one file's fault is no other's)
        fault = f"judging: {_words(error)}"
        verdict = Verdict(RUNS, _RUNS, "could not check", "observed", fault=fault)
        verdict.reason = _fault(fault)
        given = record.exercise, exercise.title, record.path, record.seed
        return Report(*given, [verdict], record.machine)


def _judge(record: Record, exercise: Exercise) -> Report:
    record = witness.judged(record)
    verdicts = [_source(record, exercise)]
    if not record.findings:
        verdicts.append(_runs(record, exercise))
    made: _Made = {}
    for check in _judged(record, exercise):
        done = {verdict.check: verdict.status for verdict in verdicts}
        verdicts.append(_check(record, check, exercise, done, made))
    _place(record, exercise, verdicts, made)
    printed = record.submission.outcome.output if record.submission else ""
    passes = all(verdict.status == "pass" for verdict in verdicts)
    return Report(
        exercise=record.exercise,
        title=exercise.title,
        path=record.path,
        seed=record.seed,
        verdicts=verdicts,
        machine=record.machine,
        output=printed,
        target=record.target.title if record.target and exercise.has_target else "",
        left_out=len(exercise.checks) - len(_judged(record, exercise)),
        unrun=_unrun(record, exercise) if passes else [],
    )


def _unrun(record: Record, exercise: Exercise) -> list[Unrun]:
    """What of the learner's functions never ran, if it is known what ran."""
    ran = record.submission.ran if record.submission else []
    return unrun(record.source, ran, exercise.model, exercise.edits) if ran else []


def hints_for(exercise: Exercise, name: str) -> tuple[str, ...]:
    """The hints for a failed check, from mild to plain: its own, then the exercise's plainest."""
    check = next((check for check in exercise.checks if check.name == name), None)
    if check and check.hints:
        return (*check.hints, *exercise.hints[-1:])
    return exercise.hints if check else ()


def _judged(record: Record, exercise: Exercise) -> list[Check]:
    """Every check; without a target, only those that need none."""
    return [c for c in exercise.checks if c.ground != "target" or record.target is not None]


def worth_timing(record: Record, exercise: Exercise) -> bool:
    """Whether every check passes, apart from the timing checks.

    Checks of a target that cannot be compiled for do not count.
    """
    statuses = _statuses(record, exercise, "observed", "program", "target")
    lacking = {c.name for c in exercise.checks if c.ground == "target" and record.target_problem}
    return {status for name, status in statuses.items() if name not in lacking} == {"pass"}


def worth_compiling(record: Record, exercise: Exercise) -> bool:
    """Whether at least one check of the target waits only for checks that pass."""
    done = _statuses(record, exercise, "observed", "program")
    return any(
        all(done.get(name, "pass") == "pass" for name in check.after)
        for check in exercise.checks
        if check.ground == "target"
    )


def _statuses(record: Record, exercise: Exercise, *grounds: Ground) -> dict[str, Status]:
    """The status of each check of these grounds; the file is taken to be good, and to run."""
    statuses: dict[str, Status] = {SOURCE: "pass", RUNS: "pass"}
    record = witness.judged(record)
    for check in _judged(record, exercise):
        if check.ground in grounds:
            statuses[check.name] = _check(record, check, exercise, statuses, {}).status
    return statuses


def _source(record: Record, exercise: Exercise) -> Verdict:
    title = "The file is readable Python, changed only where it may be."
    lesson = f"{exercise.lesson}#{exercise.anchor}"
    if not record.findings:
        return Verdict(SOURCE, title, "pass", "source", lesson=lesson)
    expected = "; ".join(dict.fromkeys(f.expected for f in record.findings))
    observed = "; ".join(dict.fromkeys(f.observed for f in record.findings))
    lines = dict.fromkeys(f.line for f in record.findings if f.line is not None)
    places = [culprit(record, line) for line in lines]
    verdict = Verdict(SOURCE, title, "fail", "source", expected, observed, places)
    if hint := _OF_THE_FILE.get(record.findings[0].check, ""):
        verdict.lesson = WHAT_A_FILE_MAY_HOLD
        verdict.hint, verdict.hint_level, verdict.hints = hint, 1, 1
    return verdict


def _runs(record: Record, exercise: Exercise) -> Verdict:
    lesson = f"{exercise.lesson}#{exercise.anchor}"
    verdict = Verdict(RUNS, _RUNS, "pass", "observed", lesson=lesson)
    if record.broken:
        verdict.status, verdict.fault = "could not check", record.broken
        verdict.reason = _fault(record.broken)
    elif record.unavailable or record.submission is None:
        verdict.status, verdict.reason = "could not check", record.unavailable or "nothing was run"
    elif record.submission.outcome.kind != "finished":
        outcome, verdict.status = record.submission.outcome, "fail"
        verdict.expected = outcome.promise or _PROMISE.get(outcome.kind) or _kept(exercise.edits)
        verdict.observed, verdict.traceback = in_words(outcome.message), outcome.frames
        with suppress(Exception):  # see the module's docstring
            _explain(verdict, record, outcome, exercise)
    return verdict


def _explain(verdict: Verdict, record: Record, outcome: Outcome, exercise: Exercise) -> None:
    file = File(record.source)
    if outcome.kind == "unusable" and not outcome.promise and _EXCEPTION.match(outcome.message):
        if is_of_a_call(outcome.message):
            verdict.expected = "no exception"
        else:
            verdict.observed = f"with what was returned, this was raised: {verdict.observed}"
    specs = statements.of_shard_map(record, exercise.edits, outcome.message)
    verdict.culprits = specs + [p for p in _where(record, outcome, exercise) if p not in specs]
    if hint := _hint(record, outcome, exercise, in_parts=bool(specs)):
        verdict.hint, verdict.hint_level, verdict.hints = hint, 1, 1
    if forgotten := _no_return(file, outcome, exercise):
        _forgotten(verdict, forgotten, outcome)


def _where(record: Record, outcome: Outcome, exercise: Exercise) -> list[Culprit]:
    """The lines that led to how a run ended, as far as its frames or its words tell them."""
    file = File(record.source)
    if donated := _crashing(record, outcome, exercise):
        return donated
    if outcome.frames:
        found = of_frames(file, outcome.frames, given_names(exercise.model, exercise.edits))
        slow = statements.taking_apart(record, exercise.edits) if outcome.kind == "timeout" else []
        finders = (statements.of_blocks, statements.of_zero, statements.of_none)
        found_by = (*finders, statements.of_left_out)
        causes = [p for find in found_by for p in find(record, exercise.edits, outcome.message)]
        lines = {place.line for place in causes}
        found = causes + [place for place in found if place.line not in lines]
        return found + [place for place in slow if place.line not in {p.line for p in found}]
    if not outcome.promise:
        of_a_call = outcome.kind == "unusable" and is_of_a_call(outcome.message)
        above = of_decorators(file, exercise.edits, outcome.message) if of_a_call else []
        return above or statements.of_jit(record, exercise.edits, outcome.message)
    of_specs = _OF_SPECS in outcome.message
    return (
        (statements.of_jit(record, exercise.edits, outcome.message) if of_specs else [])
        or statements.of_other_node(record, exercise.edits, outcome.message)
        or statements.of_promise(record, exercise.edits, outcome.promise)
        or statements.of_spec(record, exercise.edits, outcome.promise, outcome.message)
    )


def _hint(record: Record, outcome: Outcome, exercise: Exercise, *, in_parts: bool) -> str:
    """Where to look for the cause of how a run ended, or ""."""
    if outcome.kind == "timeout":
        compiles = COMPILES if statements.jits_inside(record, exercise.edits) else ""
        return ONE_BY_ONE if statements.taking_apart(record, exercise.edits) else compiles
    if _crashing(record, outcome, exercise):
        return CRASHES
    if in_parts and "contracting dimensions" in outcome.message:
        return OF_PARTS
    return hint_for(outcome.message) if outcome.kind in ("raised", "unusable") else ""


def _crashing(record: Record, outcome: Outcome, exercise: Exercise) -> list[Culprit]:
    """The copies that give their arrays away, in a process that was killed."""
    if outcome.kind != "killed":
        return []
    return [place for name in exercise.edits for place in statements.donated(record, name)]


CRASHES = (
    "With `donate=True`, jax.device_put gives the memory of its array away: the caller loses the "
    "array, and between CPU devices JAX itself may crash."
)
ONE_BY_ONE = (
    "Does a function of Python's, such as `max` or `sum`, get a jax.Array? It takes the "
    "elements one by one, and each is a new array. `x.max()` and `x.sum()` are one program each."
)
COMPILES = (
    "Each call of jax.jit makes a new function, for which nothing is compiled yet. Is it made each "
    "time that yours is called? Make it once, outside."
)
OF_PARTS = (
    "The one length is a part of the other. In jax.shard_map each device gets the part of an "
    "argument that in_specs say, one spec for each argument in its order: P() gives it whole."
)
_OF_SPECS = "`out_specs`"
"""What a drive says of a value whose form the specs of shard_map decided."""


def _no_return(file: File, outcome: Outcome, exercise: Exercise) -> Missing | None:
    """The function whose forgotten `return` led to this end, if there is one."""
    if outcome.kind not in ("raised", "unusable"):
        return None
    running = [frame.line for frame in outcome.frames]
    return next(
        (
            one
            for one in missing(file, exercise.model, exercise.edits)
            if not any(one.line <= line <= one.last for line in running)
            and (not outcome.promise or f"`{one.decorates or one.name}`" in outcome.promise)
        ),
        None,
    )


def _kept(edits: Sequence[str]) -> str:
    """What all edited functions promise."""
    *most, last = (f"`{name}`" for name in edits)
    if not most:
        return f"{last} returns what its docstring says"
    return f"{', '.join(most)} and {last} return what their docstrings say"


def _forgotten(verdict: Verdict, function: Missing, outcome: Outcome) -> None:
    """Say that a function returns nothing, which explains what happened next."""
    verdict.expected = outcome.promise or function.expected
    verdict.observed = function.observed
    if not outcome.promise:
        verdict.observed += f"\n{cleaned(outcome.message).strip().splitlines()[0]}"
    verdict.culprits = [Culprit(function.line, "")]
    verdict.hint, verdict.hint_level, verdict.hints = NO_RETURN, 1, 1


_OF_NONE = re.compile(r"'NoneType' (?:object|and )|and 'NoneType'")
"""What Python says where None stands in the place of a value."""


def _note_forgotten(verdict: Verdict, forgotten: Sequence[Missing]) -> None:
    """Where a failed check is about a function whose `return` was forgotten, say that."""
    lines = {place.line for place in verdict.culprits}
    for function in forgotten:
        follows = _OF_NONE.search(verdict.observed)
        if follows or function.line in lines or function.top in lines:
            expected = function.expected if function.promise else verdict.expected
            verdict.expected, verdict.observed = expected, function.observed
            verdict.culprits = [Culprit(function.line, "")]
            verdict.hint, verdict.hint_level, verdict.hints = NO_RETURN, 1, 1
            return


def _narrow(verdict: Verdict, file: File, exercise: Exercise, made: Sequence[Culprit]) -> None:
    """Where a failure has no line but that of a definition, look for one inside it.

    A value of another form is placed at the `return`; else a slip in that function is named. One
    that is always a mistake is named for a failure on any line of its function.
    """
    found = list(slips(file, exercise.model, exercise.edits))
    if is_of_places(verdict.observed):
        _note_what_was_dropped(verdict, file, found)
        return
    if verdict.check == RUNS and verdict.expected in _PROMISE.values():
        # What was raised says its cause itself, but for such a call.
        lines = {place.line for place in verdict.culprits}
        found = [s for s in found if s.words.endswith(OTHER_ORDER) and s.place.line in lines]
    told = verdict.hint in TURNED  # the failure says its cause itself
    if not told and (certain := _always_a_mistake(verdict, file, found)):
        _blame(verdict, certain)
        verdict.hint, verdict.hint_level, verdict.hints = certain.hint, 1, 1
        return
    definitions = [place.line for place in of_definitions(file, exercise.edits)]
    if len(verdict.culprits) != 1 or verdict.culprits[0].line not in definitions:
        return
    given = given_names(exercise.model, exercise.edits)
    made = [
        place
        for place in made
        if place.line not in definitions and file.top_level_at(place.line) not in given
    ]
    returned = verdict.check == RUNS and verdict.observed.startswith("it returned")
    if returned or verdict.hint == FORM:
        exchanged = verdict.observed.endswith((EXCHANGED, WERE_EXCHANGED, IN_ANOTHER_ORDER))
        held = _of_keys(verdict, file) or ([] if exchanged else list(made))
        verdict.culprits = held or of_return(file, verdict.culprits[0])
    elif verdict.check != RUNS:
        _look_inside(verdict, file, found, made)


def _note_what_was_dropped(verdict: Verdict, file: File, found: Sequence[Slip]) -> None:
    """Where arrays on several devices met, name a slip in a function on the way there."""
    running = [file.top_level_at(place.line) for place in verdict.culprits]
    mine = (one for one in found if {one.function, file.top_level_at(one.place.line)} & {*running})
    if slip := next((one for one in mine if _concerns(one, verdict.observed)), None):
        verdict.culprits = [slip.place, *verdict.culprits]
        verdict.observed = f"{slip.words}\n{verdict.observed}"
        if slip.hint and verdict.check != RUNS:
            verdict.hint, verdict.hint_level, verdict.hints = slip.hint, 1, 1


def _always_a_mistake(verdict: Verdict, file: File, found: Sequence[Slip]) -> Slip | None:
    """A slip in the function of the failure that is a mistake wherever it stands."""
    function = file.top_level_at(verdict.culprits[0].line) if verdict.culprits else ""
    certain = (one for one in found if one.hint)
    owners = ((one, {one.function, file.top_level_at(one.place.line)}) for one in certain)
    return next((one for one, names in owners if function in names), None)


def _blame(verdict: Verdict, slip: Slip) -> None:
    """Say that a slip explains a failure."""
    said = [verdict.observed, slip.words]
    verdict.culprits = [slip.place]
    verdict.observed = "\n".join(reversed(said) if verdict.check == RUNS else said)


def _look_inside(
    verdict: Verdict, file: File, found: Sequence[Slip], made: Sequence[Culprit]
) -> None:
    """Place a failure at a slip, or at what its words name, inside the function of its line."""
    function = file.top_level_at(verdict.culprits[0].line)
    said = " ".join((verdict.title, verdict.expected, verdict.observed))
    mine = (one for one in found if one.function == function and _concerns(one, said))
    if slip := next(mine, None):
        _blame(verdict, slip)
    elif keyed := _of_keys(verdict, file):
        verdict.culprits = keyed
    elif made:
        verdict.culprits = list(made)
    elif called := _CALLED.search(verdict.expected):
        verdict.culprits = of_call(file, verdict.culprits[0], called[1])
    elif name := _VARIABLE.search(verdict.observed.partition("\n")[0]):
        verdict.culprits = of_text(file, verdict.culprits[0], name[0])
    elif _DONATED.search(verdict.observed):
        verdict.culprits = of_decorators(file, [function], "") or verdict.culprits
    else:
        verdict.culprits = of_only_statement(file, verdict.culprits[0])


def _of_keys(verdict: Verdict, file: File) -> list[Culprit]:
    """What the function of a failure puts under the keys of a dict that the failure names."""
    function = file.top_level_at(verdict.culprits[0].line)
    texts = (verdict.expected, verdict.observed)
    return next(filter(None, (statements.of_keys(file, function, text) for text in texts)), [])


def _concerns(slip: Slip, said: str) -> bool:
    """Whether a failure speaks of the parameter that a slip is about, if it is about one."""
    return not slip.about or bool(re.search(rf"\b{slip.about}s?\b", said, re.IGNORECASE))


def _place(record: Record, exercise: Exercise, verdicts: list[Verdict], made: _Made) -> None:
    """Give every failure a place in the learner's file, and the lines around it."""
    file = File(record.source)
    if all(verdict.status != "fail" for verdict in verdicts):
        return
    forgotten, apart = list[Missing](), Parting([], [])
    with suppress(Exception):  # see the module's docstring
        forgotten = missing(file, exercise.model, exercise.edits)
        apart = parting(record.source, exercise.model)
    for number, verdict in enumerate(verdicts):
        if verdict.status != "fail":
            continue
        verdict.expected = without_treedefs(verdict.expected)
        verdict.observed = without_treedefs(verdict.observed)
        if verdict.check != SOURCE:
            with suppress(Exception):
                placed = replace(verdict)
                _look_for(placed, file, exercise, forgotten, apart, made.get(verdict.check, ()))
                verdicts[number] = verdict = placed
        verdict.culprits = [shown(file, place) for place in verdict.culprits]
        check = next((check for check in exercise.checks if check.name == verdict.check), None)
        if check and check.hints and not verdict.hint:
            verdict.hint, verdict.hint_level = check.hints[0], 1
            verdict.hints = len(hints_for(exercise, check.name))


def _look_for(
    verdict: Verdict,
    file: File,
    exercise: Exercise,
    forgotten: Sequence[Missing],
    apart: Parting,
    made: Sequence[Culprit],
) -> None:
    """Look for the place of a failure, and for its cause."""
    if not verdict.culprits:
        named = of_words(file, exercise.edits, verdict.observed, verdict.expected, verdict.title)
        verdict.culprits = named or of_definitions(file, exercise.edits)
    if verdict.culprits:
        first, *others = verdict.culprits
        given = given_names(exercise.model, exercise.edits)
        verdict.culprits = [*led_to(file, first, exercise.edits, given), *others]
    if verdict.check != RUNS:
        _note_forgotten(verdict, forgotten)
    if verdict.hint != NO_RETURN:
        said = verdict.observed
        _narrow(verdict, file, exercise, made)
        _order(verdict, file, apart, explained=verdict.observed != said)


def _order(verdict: Verdict, file: File, apart: Parting, *, explained: bool) -> None:
    """Put the places of a failure first at which the file parts from the reference.

    If a slip has `explained` it, nothing but a sole difference comes before that.
    """
    function = _only_function(file, verdict.culprits)
    if cause := apart.sole() or (function and apart.sole(function)):
        verdict.culprits = of_cause(file, verdict.culprits, cause)
    elif not explained:
        complete = not apart.lacks
        verdict.culprits = own_first(
            file, verdict.culprits, apart.own, complete=complete, reading=apart.reading
        )


def _only_function(file: File, places: Sequence[Culprit]) -> str:
    """The definition that holds all places, or ""."""
    functions = {file.top_level_at(place.line) for place in places}
    return functions.pop() if len(functions) == 1 else ""


def _check(
    record: Record, check: Check, exercise: Exercise, done: dict[str, Status], made: _Made
) -> Verdict:
    verdict = Verdict(check.name, check.title, "pass", check.ground, lesson=check.lesson)
    needs = [SOURCE, RUNS, *check.after]
    if check.ground == "timing":
        needs += [c.name for c in exercise.checks if c.ground != "timing"]
    waits = next((name for name in needs if done.get(name) in ("fail", "blocked")), None)
    if waits:
        verdict.status, verdict.reason = "blocked", f"waits for {waits}"
    elif record.submission is None or record.unavailable or record.broken:
        verdict.status = "could not check"
        broken = "the grader itself broke" if record.broken else "nothing was run"
        verdict.reason = record.unavailable or broken
    elif any(done.get(name) == "could not check" for name in check.after):
        verdict.status, verdict.reason = "could not check", "an earlier check could not be made"
    else:
        _judge_one(verdict, record, check, made)
    return verdict


def _judge_one(verdict: Verdict, record: Record, check: Check, made: _Made) -> None:
    try:
        result = check.function(record)
    except Exception as error:  # noqa: BLE001 (whatever a record does to a check)
        result = _unreadable(record, check, error)
        if result is None:
            verdict.status = "could not check"
            verdict.fault = f"check {check.name}: {_words(error)}"
            verdict.reason = _fault(verdict.fault)
            return
    match result:
        case Failure(expected=expected, observed=observed, culprits=culprits, hint=hint):
            made[check.name] = result.made
            verdict.status = "fail"
            verdict.expected = shortened(expected, LONGEST)
            verdict.observed = shortened(observed, LONGEST)
            verdict.culprits = list(culprits)
            if hint:
                verdict.hint, verdict.hint_level = shortened(hint, LONGEST), 1
                verdict.hints = len(check.hints) + 1
        case Unable(reason=reason):
            verdict.status, verdict.reason = "could not check", reason


def _unreadable(record: Record, check: Check, error: Exception) -> Result:
    """The failure of a submission that a sound check cannot read; None if the check is unsound."""
    if record.submission is None or record.reference is None:
        return None
    known = replace(
        record,
        submission=record.reference,
        measured=record.reference_measured,
        target_measured=record.target_reference_measured,
    )
    try:
        check.function(known)
    except Exception:  # noqa: BLE001 (as above)
        return None
    found = difference(record.submission.facts, record.reference.facts)
    observed = found or f"something else ({_words(error)})"
    expected = "what the code returns and does has the form that this check reads"
    return Failure(expected, observed)


def _fault(what: str) -> str:
    return f"the grader itself is at fault, not your file; please report: {what}"


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:MAX_WORDS]
