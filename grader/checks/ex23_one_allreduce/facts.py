"""The sizes of ex23_one_allreduce, and when its steps are written down."""

FEATURES, TARGETS = 24, 8
"""Columns of the inputs and of the targets."""
LARGE = {"w1": (2048, 8192), "b1": (8192,), "w2": (8192, 1024)}
"""The shapes of the params of the program for the target; all are float32."""
AFTER = ("one step", "two steps")
"""When params and losses are kept: `params after one step`, `losses of one step`."""

BEFORE_SMALL, AFTER_SMALL = "params before a small step", "params after a small step"
"""The names of the params before and after a step along a gradient that is small."""
AFTER_FAR = "params after a long step"
"""The name of the params after another step, along a large gradient, which follows that one."""
ODD = (
    "a step with NaN among the targets",
    "a step with NaN among the inputs",
    "a step whose losses are infinite",
)
"""When params and losses are kept once more, each time from the params `BEFORE_ODD`."""
BEFORE_ODD = "params before these steps"
ALONE = "a step on one device"
"""When they are kept after that."""
BATCH = "batch of the steps"
"""The name of their (inputs, targets)."""
COUNT = "micro-batches of the steps"
"""The fact that says how many micro-batches each of these steps has."""
EXCHANGED = "exchanged in the steps"
"""The fact that lists each `Collective` of the programs that these steps ran."""
DEVICES = "devices of the steps"
"""The fact that says how many devices take these steps."""
STEP, OTHER = "step", "step of another size"
FEW, MANY = "step of a few micro-batches", "step of some more micro-batches"
"""The exported programs. The fact "gradient" says of each its width and its micro-batches."""


def shapes(width: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the params of a network of this width; all are float32."""
    return {"w1": (FEATURES, width), "b1": (width,), "w2": (width, TARGETS)}
