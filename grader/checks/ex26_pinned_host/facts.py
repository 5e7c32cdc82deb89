"""The functions of ex26_pinned_host, which name what is kept: `to_host 0`."""

ROUNDS = "rounds"
"""The name of the fact that says how often each function is called with a fresh tree."""
FUNCTIONS = ("to_device", "to_host")
"""The functions that take a tree of arrays. Each names a phase."""
PROGRAMS = ("predict", "predict of more rows")
"""The programs of `predict`."""


def on_host(program: str) -> str:
    """The name of the fact that lists what a program computes in host memory."""
    return f"on host in {program}"
