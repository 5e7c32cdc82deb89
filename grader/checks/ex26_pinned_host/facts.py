"""The functions and rounds of ex26_pinned_host, which name what is kept: `to_host 0`."""

ROUNDS = (0, 1)
"""Each function is called once in each round, with a tree of another size."""
FUNCTIONS = ("to_device", "to_host")
"""The functions that take a tree of arrays, in the order of their calls. Each names a phase."""
