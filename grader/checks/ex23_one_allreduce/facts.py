"""The sizes of ex23_one_allreduce, and when its steps are written down."""

FEATURES, TARGETS = 24, 8
"""Columns of the inputs and of the targets."""
LARGE = {"w1": (2048, 8192), "b1": (8192,), "w2": (8192, 1024)}
"""The shapes of the params of the program for the target; all are float32."""
AFTER = ("one step", "two steps")
"""When params and losses are kept: `params after one step`, `losses of one step`."""

BATCH = "batch of the steps"
"""The name of their (inputs, targets)."""
COUNT = "micro-batches of the steps"
"""The fact that says how many micro-batches each of these steps has."""
DEVICES = "devices of the steps"
"""The fact that says how many devices take these steps."""
STEP, OTHER = "step", "step of another size"
FEW, MANY = "step of a few micro-batches", "step of some more micro-batches"
"""The exported programs. The fact "gradient" says of each its width and its micro-batches."""


def shapes(width: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the params of a network of this width; all are float32."""
    return {"w1": (FEATURES, width), "b1": (width,), "w2": (width, TARGETS)}
