"""The sizes that ex25_sharded_state is driven with, and the names of what is kept of it."""

from typing import NamedTuple

import msgspec


class Sizes(NamedTuple):
    """The sizes of a network."""

    features: int
    width: int
    outputs: int


class Program(msgspec.Struct):
    """An exported program."""

    sizes: Sizes
    rows: int
    """Rows of its batch on one device."""
    devices: int


STEP, OTHER = "step", "step on other devices"
"""The exported programs, of which only the first one is compiled for the target."""
EXCHANGED, STEPPED = "exchanged in the steps", "program of the steps"
"""The facts that list each `Collective` of what the steps ran, and what `Program` that was."""
PROGRAMS = "programs"
"""The fact that says of each of them what `Program` it is."""
LARGE, LARGE_ROWS = Sizes(1500, 8192, 100), 8192
"""The network for the target; rows of its batch in all."""
SOME, EVEN = "state on some of the devices", "state of other sizes"
"""The names of states that `layout` places: on an odd number of devices, and one whose every
dimension can be divided, on an even number."""
AGAIN = "state of other sizes, on as many devices"
"""The name of another state, of which the width alone can be divided, on another mesh of as many
devices."""
DONATED = "donated on one device"
"""The fact that says whether a step for a mesh of one device donates its state."""
ON = "devices of each state"
"""The fact that says on how many devices each state lies, in the order in which they are judged."""
LOST, GONE = "a step with NaN among the targets", "a step with NaN among the inputs"
FAR_AWAY = "a step whose loss is infinite"
BLANK = "a step whose loss is 0"
ALONE = "a step on one device"
ODD = (LOST, GONE, FAR_AWAY, BLANK, ALONE)
"""When values are kept once more, each time of another state."""
AFTER = ("one step", "two steps")
"""When values are kept: `state after one step`, `loss of one step`, and so on."""


def param_shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter; all of them are float32."""
    features, width, outputs = sizes
    return {
        "first": (features, width),
        "bias": (width,),
        "middle": (width, width),
        "last": (width, outputs),
        "scale": (outputs,),
    }
