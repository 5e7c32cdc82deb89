"""The two layers that `create` makes, and what is kept of each.

A layer's name is the name of the value that `create` returned, and of the phase of the call.
"""

ROUNDS = ("first layer", "second layer")


def programs(layer: str) -> str:
    """The fact that counts the programs JAX compiled while the layer was made."""
    return f"{layer}: programs"


def tables(layer: str) -> str:
    """The fact whether those programs hold a table of `rows` integers, whole or in pieces.

    The host made such a table, and it went to the device with the program.
    """
    return f"{layer}: tables"


def spread(layer: str) -> str:
    """The fact that says on how many devices those programs run, at most."""
    return f"{layer}: devices of a program"
