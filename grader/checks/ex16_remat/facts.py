"""The networks of ex16_remat, in the units of its budgets."""

import msgspec

RESULT = "thrifty of one layer"
"""The name of the program of `thrifty` itself."""
CHANGED = "weights that thrifty changed"
"""The name of the fact that lists the weights that are not in their dict any more, as they were."""
NETWORKS = "networks"
"""The name of the fact that holds a list of `Network`."""


def program(number: int) -> str:
    """The name of the program that is exported for the network `number`, from 1."""
    return f"gradients of network {number}"


class Network(msgspec.Struct):
    """A network of drawn sizes."""

    layers: int
    shape: tuple[int, int]
    """That of its inputs: rows n and width d."""
    array_bytes: int
    """The size of one array (n, h), float32."""
    product_flops: int
    """The floating-point operations of one matrix product (n, d) x (d, h)."""
