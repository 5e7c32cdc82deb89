"""The runs of `run`, and the names of what is kept of each.

A run is a phase of its name, too.
"""

from grader.records.record import Leaf

ROUNDS = ("the first run", "the second run", "the third run", "the fourth run", "the fifth run")
THROUGH_HOST = "programs that use the host"
"""The fact that counts the compiled programs which keep arrays in host memory."""
BESIDE = "arrays given to programs beside the steps"
"""The fact that counts, for each run, what programs got beside the steps, from the first one on."""
MADE = "programs beside the steps that get no array"
"""The fact that counts, for each run, such programs from the first step on."""
HIDES = "hides an error"
"""The fact whether `run` returns although a step has raised."""
BEFORE = "arrays on the device given to programs before the steps"
"""The fact that counts, for each run, what programs got before the first step, where it lay."""
CHANGED = "what the caller no longer has"
"""The fact that lists, for each run, the names of arrays that were replaced, deleted or put in, or
that stand elsewhere in the order of the dict."""
IN_OTHER_ORDER = "arrays in another order of dimensions"
"""The fact that lists, for each run, the paths of such arrays that the first step is given."""
SPARE = "bytes that no step gets"
"""The fact that counts, for each run, the bytes that it has made beside them by its first step."""
UNSEEN = "why programs could not be watched"
STEPS = "steps"
"""The fact that lists how many steps each run is asked for."""


def kept_calls(steps: int) -> range:
    """The calls of `step` whose arguments are kept, if `run` makes so many; from 0."""
    return range(2 * steps)


def argument(leaf: Leaf) -> str:
    """`state` or `arrays['bias']`: what `run` calls a leaf of what `step` is given."""
    part, rest = leaf.path[:3], leaf.path[3:]
    return f"`{'arrays' if part == '[0]' else 'state'}{rest}`"


def start(target: str) -> str:
    """The value (arrays, state): what `run` is given."""
    return f"{target}, start"


def given(target: str, call: int) -> str:
    """The value (arrays, state): what one call of `step` is given."""
    return f"{target}, step {call}"


def first(target: str) -> str:
    """The value (arrays, state), with its numbers: what the first step is given."""
    return f"arrays and state of {target}"


def gave(target: str) -> str:
    """The value [state, ...]: what the calls of `step` return."""
    return f"{target}, gave"


def result(target: str) -> str:
    """The value that `run` returns: the last state."""
    return f"state on {target}"


def calls(target: str) -> str:
    """The fact that counts the calls of `step`."""
    return f"calls on {target}"
