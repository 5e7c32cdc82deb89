"""The names of what ex28_offload_state keeps: each call of `init`, and the programs of `step`."""

CALLS = "calls of init"
"""The name of the fact that says how often `init` is called."""
PROGRAMS = ("step", "step of more layers")
"""The programs of `step`."""


def state(call: int) -> str:
    """The name of the state that the call number `call` of `init` returns, from 1."""
    return f"state of call {call}"


def paths(program: str) -> str:
    """The name of the fact that lists the arrays of params and state that a program takes."""
    return f"paths of {program}"


def results(program: str) -> str:
    """The name of the fact that lists the arrays that a program returns."""
    return f"results of {program}"


def on_host(program: str) -> str:
    """The name of the fact that lists what a program computes in host memory."""
    return f"on host in {program}"


def batch_donated(program: str) -> str:
    """The name of the fact that says whether a program may write over its batch."""
    return f"batch donated in {program}"


def left(name: str) -> str:
    """The name of the fact that says how many bytes of other arrays a call of `init` left alive."""
    return f"left beside {name}"


def twice(state: str) -> str:
    """The name of the fact that names two arrays of a state which share one memory, if any do."""
    return f"one memory twice in {state}"


def weak(state: str) -> str:
    """The name of the fact that lists the arrays of a state that are weakly typed."""
    return f"weakly typed in {state}"
