"""The network of ex16_remat, in the units of its budgets, and what the submission makes of it."""

import msgspec

TRACED = "traced"
"""The name of the fact that holds a `Traced`."""


class Traced(msgspec.Struct):
    """The gradients of one network, traced."""

    layers: int
    array_bytes: int
    """The size of one array (n, h), float32."""
    product_flops: int
    """The floating-point operations of one matrix product (n, d) x (d, h)."""
    flops: int
    """Those of all matrix products of the traced program, each as often as it runs."""
