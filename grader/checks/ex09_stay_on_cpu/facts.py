"""The calls of ex09_stay_on_cpu, each with its number, and what is noted of them.

Calls of `prepare` and of `predict` are numbered apart.
"""

PREPARED = "places of the calls of prepare"
"""The fact that holds, call by call, the device `cpu` and the default device."""
PREDICTED = "places of the calls of predict"
"""As PREPARED, and whether the batch is committed or uncommitted."""
COMMITMENTS = ("committed", "uncommitted")
"""How the batches that `predict` gets are placed on the CPU."""
N_LESS_ONE = "the batch of which the deviation divides by n - 1, and not by n"
"""A known mistake: what `prepare` would return."""
THROUGH_HOST = "programs of predict that use the host"
"""The fact that counts the programs compiled in `predict` that keep arrays in host memory."""
UNSEEN = "why nobody can say where programs ran"
"""The fact that is not empty if the launches of the two functions were not seen."""


GONE = "what predict deleted"
"""The fact that lists the calls of `predict` of which an array that was given is gone, and what."""


WRITTEN, REFUSED = (
    "the array holds other numbers",
    "in the last call, whose `raw` cannot be written to, `prepare` tried it",
)
"""What `overwritten` may say."""


def settings_after(function: str, call: int) -> str:
    """The fact that lists the settings of JAX, but the default device, that a call changed."""
    return f"settings after {function} {call}"


def phase(function: str, call: int) -> str:
    """The phase of a call; no other one's begins like it."""
    return f"{function} {call:03}"


def batch(call: int) -> str:
    """The name of the value that a call of `prepare` returns."""
    return f"batch {call}"


def prediction(call: int) -> str:
    """The name of the value that a call of `predict` returns."""
    return f"prediction {call}"


def ran_on(function: str, call: int) -> str:
    """The name of the list of devices on which a call ran programs."""
    return f"where {function} {call} ran"


def baked(call: int) -> str:
    """The name of the fact that has the bytes of the largest constant of programs of `prepare`."""
    return f"largest constant in prepare {call}"


def renewed(call: int) -> str:
    """The fact that lists the names under which a call of `predict` puts other params, or none."""
    return f"names of params that predict {call} changed"


def made_after(function: str, call: int) -> str:
    """The name of a new array that was made after a call."""
    return f"made after {function} {call}"


def overwritten(call: int) -> str:
    """The name of the fact whether a call of `prepare` changed its `raw`, or an earlier one.

    For a moment is enough, if it ran a program in that moment."""
    return f"raw overwritten in prepare {call}"
