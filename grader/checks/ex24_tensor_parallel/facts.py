"""The sizes of ex24_tensor_parallel, and when its steps are written down."""

LARGE = {"rows": 16384, "features": 4096, "hidden": 16384}
"""Sizes of the program for the target, which has as many blocks as the one that runs here. Both
are bfloat16."""
TARGET_DATA = 2
"""The length of the axis "data" for the target; the axis "model" has all the other devices."""
AFTER = ("one step", "two steps", "three steps")
"""When params and loss are kept: `params after one step`, `loss of one step`. The targets of the
last one are far away."""
ODD = (
    "a step with NaN among the targets",
    "a step with NaN among the inputs",
    "a step whose loss is infinite",
)
"""When they are kept once more, each time from the params after the second of these steps."""
EXPORTED, IN_FLOAT32 = "params of the program", "step in float32"
"""The names of the params that the program in bfloat16 takes, and of the program of the steps."""
IN_A_ROW, OF_SOME = "params on a mesh without rows", "params on some of the devices"
ON_ITS_OWN = "params on a mesh without columns"
"""The names of params that are placed, and no more: on a mesh whose axis "data" has the length 1,
on one of some of the devices, and on one whose axis "model" has the length 1."""
MODEL = "devices along model"
"""The fact that says of all params how long the axis "model" of their mesh is."""
OF_SQUARE, IN_SQUARE = "params of square blocks", "step of square blocks"
"""The names of the params of blocks with as many hidden units as features, and of a program for
them, in float32."""
