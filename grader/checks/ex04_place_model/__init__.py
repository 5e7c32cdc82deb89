"""ex04_place_model: all that a step reads lies on one device, committed, and copied there once."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Place a model, its optimizer state and a batch",
    lesson="lessons/03-models-and-their-state",
    anchor="one-call-moves-the-tree",
    edits=("place",),
    next_door=True,
    devices=8,
    fewest_gpus=3,
    hints=(
        "Parameters, optimizer state and a batch are trees of arrays. Which function of JAX "
        "takes a whole tree, and a device?",
        "jax.device_put(tree, device) copies every leaf once, straight to the device, and "
        "commits it.",
        "It takes any tree, and a tuple of the three is a tree, too.",
    ),
)
