"""Checks of ex13_memory_budget: what JAX's client for the GPU was told, and when it was told.

Each check names the first process whose settings it does not accept. What a process was asked for
is taken from the reference's side, which drew the same.
"""

import ast
import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import structs

from grader.checks.ex13_memory_budget import EXERCISE
from grader.checks.ex13_memory_budget.facts import (
    ALLOCATOR,
    FLAGS,
    GPU,
    NEW,
    OLD,
    PLATFORMS,
    PREALLOCATE,
    REAL_SHARE,
    STARTED,
    UNIFIED,
    Started,
    in_words,
    on_the_gpu,
)
from grader.judging.checking import Failure, Result, Unable
from grader.judging.evidence import calls_of, culprit, definition, seen, wanted
from grader.records.record import Observed, Record
from grader.records.verdict import Culprit
from grader.source import statements
from grader.source.file import File
from grader.source.places import of_text

READ = "when-the-settings-are-read"
SPELLED = "what-the-settings-accept"
LIMIT, POOL = "bytes_limit", "pool_bytes"
"""Figures of `Device.memory_stats()`."""
ROUNDING = 1e-6
"""How far a share may be off: what float32 makes of it. Shares are drawn with three digits."""
SETTINGS = (OLD, NEW, PREALLOCATE, ALLOCATOR)
OFF = ("false", "False", "0")
"""The texts that JAX reads as off."""
Judge = Callable[[Record, Started], Result]
"""Judges one process."""


def _started(observed: Observed) -> list[Started]:
    return msgspec.convert(observed.facts.get(STARTED, []), list[Started])


def _judged(record: Record) -> list[Started]:
    """What became of each process of the submission, with what the reference's side asked for."""
    pairs = zip(_started(wanted(record)), _started(seen(record)), strict=True)
    return [structs.replace(b, shell=a.shell, share=a.share, grow=a.grow) for a, b in pairs]


def _no_stage(record: Record) -> Unable | None:
    """Why nothing can be said, if the reference's processes show no settings either."""
    why = seen(record).facts.get("no stage") or wanted(record).facts.get("no stage")
    if why:
        return Unable(f"a fresh process could not be staged: {why}")
    options = [one.options for one in _started(wanted(record))]
    if not options or not all(options):
        return Unable("the reference's settings did not reach the staged GPU")
    return None


def _first(record: Record, judge: Judge, *, empty: bool = True) -> Result:
    """What `judge` says of the first process that it does not accept.

    Judged are the processes from an empty shell, or, if not `empty`, all the others.
    """
    if gap := _no_stage(record):
        return gap
    judged = [one for one in _judged(record) if _is_empty(one) == empty]
    found = (judge(record, one) for one in judged)
    return next((result for result in found if result), None)


def _is_empty(one: Started) -> bool:
    """Whether the shell has set nothing that `start` is to replace."""
    return one.shell.keys().isdisjoint(SETTINGS)


@EXERCISE.check(
    ground="observed",
    hints=(
        "jax.devices(), jax.device_count(), jax.default_backend() and every array ask for a "
        "device. Which line of `start` does it first?",
        "Set the variables above that line.",
    ),
    anchor=READ,
)
def set_in_time(record: Record) -> Result:
    """The settings are made before JAX reads them."""
    return _first(record, _late)


def _late(record: Record, one: Started) -> Failure | None:
    """The failure where JAX read the settings before `start` had made them."""
    stopped = one.array and one.variables.items() <= one.shell.items()  # before anything was set
    in_time = one.afterwards == one.options and not stopped
    if one.options is None or in_time or not _wrong(record, one):
        return None
    return Failure(
        "the settings are made before JAX reads them, which it does only once",
        f"in `{one.call}`, JAX read its settings on this line: {_words(one.options)}. What is set "
        "after it has no effect",
        [culprit(record, one.line)] if one.line else definition(record, "start"),
    )


def _words(options: Mapping[str, Any]) -> str:
    """share 0.3, preallocation off, allocator default"""
    fraction, early = options.get("memory_fraction"), options.get("preallocate")
    share = "share not set" if fraction is None else f"share {fraction:g}"
    taken = {None: "preallocation not set", False: "preallocation off"}
    preallocation = taken.get(early, "preallocation on")
    return f"{share}, {preallocation}, allocator {options.get('allocator')}"


@EXERCISE.check(
    ground="observed",
    after=("set_in_time",),
    hints=("A share is a part of a pool. The allocator `default` has a pool: leave it at that.",),
    anchor=SPELLED,
)
def one_pool(record: Record) -> Result:
    """JAX's own pool hands out the memory."""
    return _first(record, _no_pool)


def _no_pool(record: Record, one: Started) -> Failure | None:
    """The failure where the allocator is not JAX's own pool."""
    allocator = (one.options or {}).get("allocator")
    refused = ALLOCATOR in one.complaint  # a share that is refused is for `share_is_set`
    if allocator in ("default", "bfc") or (one.options is None and not refused):
        return None
    expected = f"after `{one.call}`, the allocator is JAX's own pool, `default`"
    observed = _refused(one) if refused else f"it is `{allocator}`, which is not that pool"
    return Failure(expected, observed, _naming(record, ALLOCATOR))


def _naming(record: Record, variable: str) -> list[Culprit]:
    """The only line that names a variable, in `start` or else in what `start` names."""
    return of_text(File(record.source), definition(record, "start")[0], variable)


def _refused(one: Started) -> str:
    """What a setting that is not accepted leads to."""
    complaint = one.complaint.rstrip(".")
    return f"JAX's plugin for CUDA raised {complaint}; JAX logs that, and goes on with a CPU"


IN_ENVIRON = (
    f"{NEW} must be in os.environ itself when JAX is first asked for a device: JAX reads it from "
    "there, and then."
)
AS_IT_IS = "Any share may be asked for. It goes into the variable as it is, as text."


@EXERCISE.check(
    ground="observed",
    after=("one_pool",),
    hints=(
        "The value is a fraction of 1, as text: 0.3, not 30 and not 30%.",
        IN_ENVIRON,
    ),
    anchor=SPELLED,
)
def share_is_set(record: Record) -> Result:
    """JAX is told the share: a fraction of the GPU's memory."""
    on_gpu = _on_the_gpu(record, LIMIT, 0.98, 1.02, "may take", grow=True)
    return _first(record, _wrong_share) or on_gpu


def _wrong_share(record: Record, one: Started) -> Failure | None:
    """The failure where JAX was told another share, or none."""
    told = (one.options or {}).get("memory_fraction")
    if told is not None and abs(told - one.share) < ROUNDING:
        return _more_than_the_share(record, one) or _not_from_the_environment(record, one)
    if one.complaint:
        observed = _refused(one)
    elif told is None:
        observed = "it is told no share, and takes its default"
    elif told > 1:
        observed = f"it is told {told:g}, which is {told:g} times the memory"
    else:
        rest = ", which is what the other processes may take" * math.isclose(told, 1 - one.share)
        observed = f"it is told {told:g}{rest}"
    expected = f"after `{one.call}`, JAX's client for the GPU is told memory_fraction {one.share}"
    place = _naming(record, NEW)
    if told is None and not one.complaint:
        if name := _unread(record, one, NEW, OLD):
            observed += f": JAX reads no variable `{name}`"
            return Failure(expected, observed, _naming(record, name), SPELT)
        place = _setting_once(record, NEW) or place
        hint = REACHED if _sets(record, place) else IN_ENVIRON
        if NEW in one.put and NEW not in one.variables and _sets(record, place):
            asked = f" on line {one.line}" if one.line else ""
            observed += f": when JAX was asked{asked}, the variable was gone again"
            hint, place = GONE_AGAIN, [*place, *([culprit(record, one.line)] if one.line else [])]
        return Failure(expected, observed, calls_of(record, ("putenv",)) or place, hint)
    both = {OLD, NEW} <= one.variables.keys() - one.shell.keys()
    place = _naming(record, OLD) if both else place
    hint = TWICE if both else AS_IT_IS if told is not None and told <= 1 else ""
    hint = BY_REPR if "np.float" in one.complaint else hint
    return Failure(expected, observed, place, hint)


def _setting_once(record: Record, name: str) -> list[Culprit]:
    """The only line that gives a variable of os.environ a value by its name in quotes, if any."""
    setting = re.compile(rf"\benviron\[[\"']{name}[\"']\]\s*=(?!=)")
    lines = enumerate(File(record.source).lines, 1)
    found = [n for n, line in lines if setting.search(line.partition("#")[0])]
    return [culprit(record, found[0])] if len(found) == 1 else []


def _sets(record: Record, places: Sequence[Culprit]) -> bool:
    """Whether one of `places` gives a variable of the environment a value."""
    lines = File(record.source).lines
    return any("os.environ[" in lines[place.line - 1] for place in places)


GONE_AGAIN = (
    "JAX reads the variable when it is first asked for a device. What takes it away before that?"
)
REACHED = "The marked line was not reached in this call. On what does it hang?"
SPELT = "How is the variable spelt? JAX says nothing of one that it does not know."
BY_REPR = (
    "The share may be a float of NumPy, whose repr is np.float64(0.3). Which text of it is the "
    "number alone?"
)
TWICE = f"{NEW} is the name of today, and {OLD} the old one. Which lines set a variable twice?"


def _unread(record: Record, one: Started, *names: str) -> str:
    """A variable that the file or the environment names almost as one of `names`; or ""."""
    nodes = ast.walk(File(record.source).tree)
    texts = [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    others = (text for text in (*texts, *one.variables) if text not in SETTINGS)
    near = (text for text in others if any(_alike(text, name) for name in names))
    return next(near, "")


def _alike(text: str, name: str) -> bool:
    return difflib.SequenceMatcher(None, text, name).ratio() > ALIKE


ALIKE = 0.85
"""How alike two names are if one of them was meant to be the other; 1 is the same name."""


def _more_than_the_share(record: Record, one: Started) -> Failure | None:
    """The failure where JAX was told to take other memory, too."""
    asked = _started(wanted(record))
    same = [x for x in asked if (x.shell, x.call) == (one.shell, one.call)]
    usual = [x.more for x in (asked[0], *same)]  # what a shell sets of other things may stay
    names = {name for more in (one.more, *usual) for name in more}
    odd = [n for n in sorted(names) if one.more.get(n) not in [more.get(n) for more in usual]]
    told = [f"{name}={one.more.get(name)}" for name in odd]
    told += [f"{UNIFIED}={value}" for name, value in (one.read or {}).items() if name == UNIFIED]
    if not told:
        return None
    expected = f"after `{one.call}`, JAX's client for the GPU is told of no memory but its share"
    observed = f"it is told {told[0]}"
    hint = "Which variable of your code does JAX read, beside the three that it is to read?"
    return Failure(expected, observed, definition(record, "start"), hint)


def _not_from_the_environment(record: Record, one: Started) -> Failure | None:
    """The failure where JAX was told something that no fresh process would read from these texts.

    JAX's own code reads the environment on the stage. This is the second witness.
    """
    read = one.read or {}
    share, early = read.get(NEW) or read.get(OLD) or "", read.get(PREALLOCATE, "")
    options = one.options or {}
    try:
        same = abs(float(share) - one.share) < ROUNDING
    except ValueError:
        same = False
    same = same and options.get("allocator") == read.get(ALLOCATOR, "default").lower()
    if same and options.get("preallocate", True) == (early not in OFF):
        return None
    listed = ", ".join(f"{name}={read[name]}" for name in sorted(read)) or "no variable of these"
    expected = f"after `{one.call}`, JAX is told what the environment says"
    observed = f"it is told: {_words(options)}; the environment holds {listed}"
    return Failure(expected, observed, definition(record, "start"))


@EXERCISE.check(
    ground="observed",
    after=("share_is_set",),
    hints=(
        "Which texts turn preallocation off? JAX knows three, and `no` is not one of them.",
        f"Only `false`, `False` and `0` turn {PREALLOCATE} off. JAX reads every other text as on.",
    ),
    anchor=SPELLED,
)
def pool_grows(record: Record) -> Result:
    """With `grow`, the pool is not taken whole at the start."""
    on_gpu = _on_the_gpu(record, POOL, 0, 0.5, "starts with far less than", grow=True)
    return _first(record, _taken) or on_gpu


def _taken(record: Record, one: Started) -> Failure | None:
    """The failure where the pool is to grow, and is taken whole."""
    if not one.grow or (one.options or {}).get("preallocate") is False:
        return None
    text = one.variables.get(PREALLOCATE)
    on = f"`{text}`, which JAX reads as on" if text else "an empty text, and the default is on"
    why = "not set, and the default is on" if text is None else on
    expected = f"after `{one.call}`, preallocation is off"
    hint, place = "", _naming(record, PREALLOCATE)
    if text is None:
        removing = _removing(record)
        set_to = f"JAX reads {PREALLOCATE}. What does your code set in its place?"
        hint = TAKEN_AWAY if removing else set_to
        place = [*place, *(one for one in removing if one not in place)]
        if name := _unread(record, one, PREALLOCATE):
            why += f"; JAX reads no variable `{name}`"
            hint, place = SPELT, _naming(record, name)
    elif text in ("true", "True", "1"):
        hint = "A pool that grows is not taken whole beforehand: one is on where the other is off."
    return Failure(expected, f"{PREALLOCATE} is {why}", place, hint)


def _removing(record: Record) -> list[Culprit]:
    """The lines that take variables away which they do not name, if another one names this one."""
    if PREALLOCATE not in record.source:
        return []
    lines = enumerate(File(record.source).lines, 1)
    return [culprit(record, n) for n, line in lines if _REMOVING.search(line.partition("#")[0])]


_REMOVING = re.compile(r"\bdel os\.environ\[(?![\"'])|environ\.(clear\(|pop\((?![\"']))")
TAKEN_AWAY = (
    f"JAX reads {PREALLOCATE}. Which of your lines set it, and which take variables away? In which "
    "order do they run?"
)


@EXERCISE.check(
    ground="observed",
    after=("pool_grows",),
    hints=("Which value does your code give the variable if `grow` is False?",),
    anchor=SPELLED,
)
def pool_is_taken_whole(record: Record) -> Result:
    """Without `grow`, the pool is taken whole at the start."""
    on_gpu = _on_the_gpu(record, POOL, 0.9, 1.1, "starts with all of", grow=False)
    return _first(record, _left) or on_gpu


def _left(record: Record, one: Started) -> Failure | None:
    """The failure where the pool is to be taken whole, and grows."""
    if one.grow or (one.options or {}).get("preallocate", True):
        return None
    text = one.variables.get(PREALLOCATE)
    expected = f"after `{one.call}`, preallocation is on"
    observed = f"{PREALLOCATE} is `{text}`, which JAX reads as off"
    return Failure(expected, observed, _naming(record, PREALLOCATE))


@EXERCISE.check(
    ground="observed",
    after=("pool_is_taken_whole",),
    hints=(
        "A shell may have set any of the variables, also the share under its old name.",
        f"Give all three variables a value, whatever they were, and remove {OLD} from os.environ.",
    ),
)
def shell_is_replaced(record: Record) -> Result:
    """What the shell has set makes no difference."""
    return _first(record, _inherited, empty=False)


def _inherited(record: Record, one: Started) -> Failure | None:
    """The first failure of a process, with the shell that it started from."""
    expected = f"started from {in_words(one.shell)}: "
    if failure := _late(record, one):
        return replace(failure, expected=expected + failure.expected, hint="")
    for judge, names in _SETTINGS:
        if failure := judge(record, one):
            expected, observed = expected + failure.expected, failure.observed
            kept = [n for n in names if n in one.shell and one.variables.get(n) == one.shell[n]]
            if not kept:
                return replace(failure, expected=expected, hint="")
            observed += f"\n{kept[0]} is still what the shell has set"
            place, keeping = _naming(record, kept[0]), calls_of(record, ("setdefault",))
            if keeping and place[0].line not in {one.line for one in keeping}:
                place = keeping
            unset = calls_of(record, ("unsetenv",))
            return Failure(expected, observed, unset or place, ONLY_IN_C if unset else "")
    return None


ONLY_IN_C = (
    "os.unsetenv changes the environment of the process, and os.environ keeps the variable. JAX "
    "reads os.environ: take it away there, with os.environ.pop(name, None)."
)


def _wrong(record: Record, one: Started) -> Failure | None:
    """The first setting that is not what was asked for."""
    found = (judge(record, one) for judge, _ in _SETTINGS)
    return next((failure for failure in found if failure), None)


_SETTINGS: tuple[tuple[Callable[[Record, Started], Failure | None], tuple[str, ...]], ...] = (
    (_no_pool, (ALLOCATOR,)),
    (_wrong_share, (OLD, NEW)),
    (_taken, (PREALLOCATE,)),
    (_left, (PREALLOCATE,)),
)
"""What judges each setting, and the variables that it hangs on."""


@EXERCISE.check(
    ground="observed",
    after=("pool_is_taken_whole",),
    hints=(
        "When the variables are set, ask JAX for the GPU and return it. Which GPUs are visible is "
        "not for `start` to say, nor what the shell has set for other programs.",
    ),
)
def gives_the_gpu(record: Record) -> Result:
    """`start` returns the GPU, and leaves all that is not JAX's or XLA's to the shell."""
    return (
        _first(record, _other_answer)
        or _first(record, _hidden)
        or _first(record, _hidden, empty=False)
    )


def _hidden(record: Record, one: Started) -> Failure | None:
    """The failure where `start` changed a variable that is none of its business."""
    changed = {**one.foreign}
    for name in (PLATFORMS, FLAGS):
        before, read = one.shell.get(name), (one.read or {}).get(name)
        after = one.variables.get(name) if read == before else read
        usual = name == PLATFORMS and (after is None or {*after.split(",")} & {"cuda", "gpu"})
        if after != before and not usual:
            changed[name] = after
    for name, after in changed.items():
        return Failure(
            f"`{one.call}` leaves {name} as it is in {in_words(one.shell)}",
            f"{name} is `{after}`" if after is not None else f"{name} is removed",
            (_removing(record) if after is None else []) or definition(record, "start"),
        )
    return None


def _other_answer(record: Record, one: Started) -> Result:
    """The failure where `start` returned something else."""
    if one.array:
        return Unable(
            f"the staged GPU cannot hold arrays ({one.array}): let `start` ask for jax.devices()"
        )
    if one.answer == GPU:
        return None
    expected = f"`{one.call}` returns the GPU"
    return Failure(expected, f"it returns {one.answer}", statements.result(record, "start"))


def _on_the_gpu(
    record: Record, figure: str, low: float, high: float, promise: str, *, grow: bool
) -> Result:
    """Whether a figure of a real process's allocator lies in limits, if there is a GPU.

    The limits are fractions of the reference's share. `promise` says what the figure shows.
    """
    name, share = on_the_gpu(grow), wanted(record).facts.get(REAL_SHARE)
    mine, theirs = seen(record).facts.get(name), wanted(record).facts.get(name)
    if mine is None and theirs is None:
        return None
    if not (mine and theirs) or not all(x.get(figure) and x.get(LIMIT) for x in (mine, theirs)):
        why = (mine or {}).get("problem") or (theirs or {}).get("problem") or f"no {figure}"
        return Unable(f"the GPU's allocator could not be asked in a process of its own: {why}")
    if low <= mine[figure] / theirs[LIMIT] <= high:
        return None
    expected = f"on this GPU, `start({share}, {grow})` {promise} {theirs[LIMIT]:,} bytes"
    return Failure(expected, f"{mine[figure]:,} bytes", definition(record, "start"))
