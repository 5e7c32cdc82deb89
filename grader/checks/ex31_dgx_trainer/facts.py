"""The shapes of a block, and the size of the axis "model", of ex31_dgx_trainer."""

MODEL_DEVICES = 2
"""The size of the axis "model"."""


def block_shapes(width: int) -> dict[str, tuple[int, int]]:
    """The float32 params of one block whose d is `width`."""
    return {"up": (width, 4 * width), "down": (4 * width, width)}
