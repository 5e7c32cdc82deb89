"""ex08_boundary_copy: each batch is copied to the device once, and constants once in a run."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Copy at the boundary, and nowhere else",
    lesson="lessons/04-the-inner-loop",
    anchor="one-copy-for-each-batch",
    edits=("train",),
    next_door=True,
    hints=(
        "A jitted function accepts a NumPy array. What does it do with it, on every call?",
        "jax.device_put takes a dict, copies it to the device, and returns a dict of arrays "
        "that stay there.",
        "Copy `params` and `stats` before the loop, and each batch at the top of the loop's body.",
    ),
)
