"""The shapes of a block of ex31_dgx_trainer, and the names of what is kept of each call."""

PLACED = "calls of place"
"""The name of the fact that says how often `place` and `place_batch` are called."""

STEP, FEW = "step", "step of few blocks"
"""The exported programs, of which only the first one is compiled for the target."""


def told(what: str, program: str) -> str:
    """The name of a fact of an exported program."""
    return f"{what} of {program}"


def block_shapes(width: int) -> dict[str, tuple[int, int]]:
    """The float32 params of one block whose d is `width`."""
    return {"up": (width, 4 * width), "down": (4 * width, width)}


def params(call: int) -> str:
    """The name of the params that one call of `place` returns."""
    return f"params of {call}"


def state(call: int) -> str:
    """The name of the state that one call of `place` returns."""
    return f"state of {call}"


def batch(call: int) -> str:
    """The name of what one call of `place_batch` returns."""
    return f"batch of {call}"


HIDES = "hides an error"
"""The fact that says whether `train` returned though its iterator had raised an error."""


def axes(call: int) -> str:
    """The name of the fact that lists the names of the mesh's axes, in their order."""
    return f"axes of {call}"


def left(call: int) -> str:
    """The name of the fact that says how many bytes of other arrays `place` left alive."""
    return f"left beside {call}"


def left_of_batch(call: int) -> str:
    """The name of the fact that says how many bytes of other arrays `place_batch` left alive."""
    return f"left beside the batch of {call}"


def programs(placed: str) -> str:
    """The name of the fact that says what the programs that placed params or a batch hold and
    exchange, in bytes; `placed` is the name of these."""
    return f"programs of the {placed}"


def twice(call: int) -> str:
    """The name of the fact that names two arrays of the state which share one memory, if any do."""
    return f"one memory twice in {call}"


def weak(call: int) -> str:
    """The name of the fact that lists the arrays of the state that are weakly typed."""
    return f"weakly typed in {call}"
