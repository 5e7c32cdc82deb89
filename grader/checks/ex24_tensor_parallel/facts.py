"""The sizes of ex24_tensor_parallel, and when its steps are written down."""

LARGE = {"rows": 16384, "features": 4096, "hidden": 16384}
"""Sizes of the program for the target, which has as many blocks as the one that runs here. Both
are bfloat16."""
TARGET_DATA = 2
"""The length of the axis "data" for the target; the axis "model" has all the other devices."""
AFTER = ("one step", "two steps")
"""When params and loss are kept: `params after one step`, `loss of one step`."""
EXPORTED = "params of the program"
"""The name of the params that the exported program takes."""
