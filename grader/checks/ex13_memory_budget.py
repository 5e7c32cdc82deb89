"""ex13_memory_budget: what JAX hands to the GPU's client, in fresh processes with a shell each.

The processes are staged (`grader.probes.allocating`): JAX's own code reads the learner's
settings. Where there is a GPU, a real process is asked what its allocator got.
"""

import linecache
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import msgspec

from grader.checking import Exercise, Failure, Misused, Observe, Result, Unable
from grader.evidence import culprit, definition, seen, wanted
from grader.record import Observed, Record

EMPTY, GPU = "an empty shell", "the GPU"
OLD, NEW = "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION"
PREALLOCATE, ALLOCATOR = "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_ALLOCATOR"
SHELLS: Mapping[str, Mapping[str, str]] = {
    EMPTY: {},
    **{f"a shell with {name}=.9": {name: ".9"} for name in (OLD, NEW)},
    **{f"a shell with {PREALLOCATE}={word}": {PREALLOCATE: word} for word in ("false", "true")},
    f"a shell with {ALLOCATOR}=platform": {ALLOCATOR: "platform"},
}
READ = "when-the-settings-are-read"
SPELLED = "what-the-settings-accept"
ROUNDING, REAL_SHARE = 0.006, 0.1  # a share may be written with two digits
LIMIT, POOL = "bytes_limit", "pool_bytes"  # figures of `Device.memory_stats()`


class Started(msgspec.Struct):
    """One process that called `start`: what it gave, and what JAX was told."""

    shell: str
    share: float
    grow: bool
    answer: str
    options: dict[str, Any] | None
    afterwards: dict[str, Any]  # what the environment says once `start` has returned
    variables: dict[str, str]
    line: int | None
    complaint: str
    array: str  # what JAX raised for an array, which the staged GPU cannot hold

    @property
    def call(self) -> str:
        return f"start({self.share}, {self.grow})"


def drive(submission: ModuleType, observe: Observe, rng: Any) -> None:
    """Start processes from each shell on a staged machine; on a real GPU, two more."""
    import jax

    from grader.probes import allocating

    started = []
    try:
        for shell in SHELLS:
            for grow in (True, False):
                share = round(float(rng.uniform(0.15, 0.45)), 2)
                found = allocating.started(submission, SHELLS[shell], share, grow)
                started.append({"shell": shell, "share": share, "grow": grow, **found})
    except allocating.Gone as gone:
        observe.fact("no stage", str(gone))
    except RuntimeError as error:
        raise (_left_out(shell, error) or error).with_traceback(error.__traceback__) from None
    observe.fact("started", started)
    if jax.devices()[0].platform == "gpu":
        source = "".join(linecache.getlines(str(submission.__file__)))
        for grow in (True, False):
            observe.fact(f"on the GPU, grow={grow}", allocating.reported(source, REAL_SHARE, grow))


def _left_out(shell: str, error: RuntimeError) -> Misused | None:
    """What it means that JAX, asked for a GPU by name, has none: a GPU is staged."""
    said = str(error).partition(",")[0]
    told = f"in {shell}: {said}. A GPU is there: JAX goes on without it where it refuses a variable"
    return Misused("`start` returns the GPU", told) if "backend" in said.lower() else None


EXERCISE = Exercise(
    title="Let two processes share one GPU",
    lesson="lessons/08-who-took-the-memory",
    anchor="what-the-shell-left",
    edits=("start",),
    drive=drive,
    allowed_modules=("os",),
    hints=(
        "Three environment variables decide: how large the pool may be, whether it is taken at "
        "once, and who hands out the memory. JAX reads them at one moment. Which?",
        "Importing JAX reads none of them. The first question for a device reads all of them.",
        f"Set {NEW} to a fraction, {PREALLOCATE} to `false` or `true`, {ALLOCATOR} to `default`; "
        f"remove {OLD}; then ask for jax.devices().",
    ),
)


def _started(observed: Observed) -> list[Started]:
    return msgspec.convert(observed.facts.get("started", []), list[Started])


def _no_stage(record: Record) -> Unable | None:
    """Why nothing can be said, if the reference's processes show no settings either."""
    why = seen(record).facts.get("no stage") or wanted(record).facts.get("no stage")
    if why:
        return Unable(f"a fresh process could not be staged: {why}")
    shown = all([one.options for one in _started(wanted(record))] or [None])
    return None if shown else Unable("the reference's settings did not reach the staged GPU")


def _first(record: Record, judge: Any, *, empty: bool = True) -> Result:
    """What `judge` says of the first process that it does not accept."""
    if gap := _no_stage(record):
        return gap
    found = (judge(record, one) for one in _started(seen(record)) if (one.shell == EMPTY) == empty)
    return next((failure for failure in found if failure), None)


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
    stopped = one.array and one.variables == SHELLS[one.shell]  # before anything was set
    in_time = one.afterwards == one.options and not stopped
    if one.options is None or in_time or not _wrong(record, one):
        return None
    return Failure(
        "the settings are there when JAX reads them, which it does once",
        f"in `{one.call}` JAX read {_words(one.options)} on this line; what is set after it counts "
        "for nothing",
        [culprit(record, one.line)] if one.line else definition(record, "start"),
    )


def _words(options: Mapping[str, Any]) -> str:
    fraction, early = options.get("memory_fraction"), options.get("preallocate")
    share = "no share" if fraction is None else f"share {fraction:g}"
    taken = {None: "no word on preallocation", False: "preallocation off"}
    text = taken.get(early, "preallocation on")
    return f"`{share}, {text}, allocator {options.get('allocator')}`"


@EXERCISE.check(
    ground="observed",
    after=("set_in_time",),
    hints=("A share is a share of a pool. `default` has one; leave it at that.",),
    anchor=SPELLED,
)
def one_pool(record: Record) -> Result:
    """JAX's own pool hands out the memory."""
    return _first(record, _no_pool)


def _no_pool(record: Record, one: Started) -> Failure | None:
    allocator = (one.options or {}).get("allocator")
    refused = ALLOCATOR in one.complaint  # a share that is refused is for `share_is_set`
    if allocator in ("default", "bfc") or (one.options is None and not refused):
        return None
    expected = f"after `{one.call}`, the allocator is JAX's own pool, `default`"
    observed = _refused(one) if refused else f"it is `{allocator}`, which is not that pool"
    return Failure(expected, observed, definition(record, "start"))


def _refused(one: Started) -> str:
    return f"its plugin raised {one.complaint.rstrip('.')}; JAX logs that and goes on, on a CPU"


@EXERCISE.check(
    ground="observed",
    after=("one_pool",),
    hints=(
        "The value is a fraction of 1, as text: 0.3, not 30 and not 30%.",
        f"{NEW} must be in os.environ itself: JAX reads it from there.",
    ),
    anchor=SPELLED,
)
def share_is_set(record: Record) -> Result:
    """JAX is told the share: a fraction of the GPU's memory."""
    on_gpu = _on_the_gpu(record, LIMIT, 0.98, 1.02, "may take", grow=True)
    return _first(record, _wrong_share) or on_gpu


def _wrong_share(record: Record, one: Started) -> Failure | None:
    told = (one.options or {}).get("memory_fraction")
    if told is not None and abs(told - one.share) < ROUNDING:
        return None
    said = "it is told no share, and takes its default"
    if told is not None:
        said = f"it is told {told:g}" + (f", {told:g} times the memory" if told > 1 else "")
    if one.complaint:
        said = _refused(one)
    expected = f"after `{one.call}`, JAX's client for the GPU is told memory_fraction {one.share}"
    return Failure(expected, said, definition(record, "start"))


@EXERCISE.check(
    ground="observed",
    after=("share_is_set",),
    hints=(
        "Which words mean no? JAX compares the text with three of them, and `no` is not one.",
        f"{PREALLOCATE} is off for `false`, `False` and `0`; for any other text it is on.",
    ),
    anchor=SPELLED,
)
def pool_grows(record: Record) -> Result:
    """With `grow`, the pool is not taken at the start."""
    on_gpu = _on_the_gpu(record, POOL, 0, 0.5, "starts with far less than", grow=True)
    return _first(record, _taken) or on_gpu


def _taken(record: Record, one: Started) -> Failure | None:
    if not one.grow or (one.options or {}).get("preallocate") is False:
        return None
    text = one.variables.get(PREALLOCATE)
    cause = "is not set, and the default is on" if text is None else f"is `{text}`, and that is on"
    expected = f"after `{one.call}`, preallocation is off"
    return Failure(expected, f"{PREALLOCATE} {cause}", definition(record, "start"))


@EXERCISE.check(ground="observed", after=("pool_grows",), anchor=SPELLED)
def pool_is_taken_whole(record: Record) -> Result:
    """Without `grow`, the pool is taken whole at the start."""
    on_gpu = _on_the_gpu(record, POOL, 0.9, 1.1, "starts with all of", grow=False)
    return _first(record, _left) or on_gpu


def _left(record: Record, one: Started) -> Failure | None:
    if one.grow or (one.options or {}).get("preallocate", True):
        return None
    text = one.variables.get(PREALLOCATE)
    expected = f"after `{one.call}`, preallocation is on"
    return Failure(expected, f"{PREALLOCATE} is `{text}`: off", definition(record, "start"))


@EXERCISE.check(
    ground="observed",
    after=("pool_is_taken_whole",),
    hints=(
        "A shell may have set any of the variables, under the old name too.",
        f"Give all three a value, whatever there was; and take {OLD} out of os.environ.",
    ),
)
def shell_is_replaced(record: Record) -> Result:
    """What the shell had set makes no difference."""
    return _first(record, _inherited, empty=False)


def _inherited(record: Record, one: Started) -> Failure | None:
    failure = _late(record, one) or _wrong(record, one)
    return failure and replace(failure, expected=f"started from {one.shell}: {failure.expected}")


def _wrong(record: Record, one: Started) -> Failure | None:
    """The first setting that is not what was asked for."""
    found = (judge(record, one) for judge in (_no_pool, _wrong_share, _taken, _left))
    return next((failure for failure in found if failure), None)


@EXERCISE.check(ground="observed", after=("pool_is_taken_whole",))
def gives_the_gpu(record: Record) -> Result:
    """`start` returns the GPU."""
    return _first(record, _other_answer)


def _other_answer(record: Record, one: Started) -> Result:
    if one.array:
        return Unable(f"the staged GPU holds no arrays ({one.array}): ask for jax.devices()")
    failed = Failure(f"`{one.call}` returns the GPU", one.answer, definition(record, "start"))
    return None if one.answer == GPU else failed


def _on_the_gpu(
    record: Record, figure: str, low: float, high: float, promise: str, *, grow: bool
) -> Result:
    """A figure of a real process's allocator, in limits; nothing where there is no GPU."""
    name = f"on the GPU, grow={grow}"
    mine, theirs = seen(record).facts.get(name), wanted(record).facts.get(name)
    if mine is None and theirs is None:
        return None
    if not (mine and theirs) or not all(x.get(figure) and x.get(LIMIT) for x in (mine, theirs)):
        why = (mine or {}).get("problem") or (theirs or {}).get("problem") or f"no {figure}"
        return Unable(f"the GPU's allocator could not be asked in a process of its own: {why}")
    if low <= mine[figure] / theirs[LIMIT] <= high:
        return None
    expected = f"on this GPU, `start({REAL_SHARE}, {grow})` {promise} {theirs[LIMIT]:,} bytes"
    return Failure(expected, f"{mine[figure]:,} bytes", definition(record, "start"))
