"""The layers that `create` makes, and what is kept of each.

A layer's name is the name of the value that `create` returned, and of the phase of the call.
"""

ROUNDS = ("first layer", "second layer", "third layer", "fourth layer", "fifth layer")
ONCE_MORE = "sixth layer"
"""A layer that is made like the two before it, and of which only `shared` is kept."""
CALLS = "calls of create"
"""The fact that counts them; there are more than layers if the file names numbers."""
MADE_BEFORE = "arrays alive before the first layer"
"""The fact that counts the bytes that the file had made when it was imported, in JAX's arrays."""


def programs(layer: str) -> str:
    """The fact that counts the programs JAX compiled while the layer was made."""
    return f"{layer}: programs"


def numbers(layer: str) -> str:
    """The fact that lists the constants of those programs: each one's text and its count.

    What the host made inside jit stands there, and went to the device with the program.
    """
    return f"{layer}: numbers"


def key(layer: str) -> str:
    """The fact that lists the two numbers behind the layer's key, as a program writes them."""
    return f"{layer}: key"


def through_host(layer: str) -> str:
    """The fact whether those programs use host memory, or compute on the host."""
    return f"{layer}: through the host"


def ran_on(layer: str) -> str:
    """The fact that lists the devices on which programs ran while the layer was made."""
    return f"{layer}: where programs ran"


def made_twice(layer: str) -> str:
    """The fact that lists the arrays of which a program was given an equal one, elsewhere."""
    return f"{layer}: made twice"


def deleted(layer: str) -> str:
    """The fact that counts the bytes of arrays that a program was given, and that are deleted."""
    return f"{layer}: made and deleted"


def spare(layer: str) -> str:
    """The fact that counts the bytes of arrays that were made with the layer, and are kept."""
    return f"{layer}: kept beside it"


def shared(layer: str) -> str:
    """The fact that names an array which lies where one of an earlier layer does: both paths."""
    return f"{layer}: shared with an earlier one"


def turned(layer: str) -> str:
    """The fact that lists the arrays whose dimensions lie in memory in another order."""
    return f"{layer}: in another order"


def default_left(layer: str) -> str:
    """The fact that is there if the default device was another one after the call."""
    return f"{layer}: another default device"


UNSEEN = "why nobody can say where programs ran"
