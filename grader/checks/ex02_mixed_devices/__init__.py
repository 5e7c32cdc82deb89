"""ex02_mixed_devices: arrays of two devices meet on one, copied at most once, before the loop."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Compute with arrays on different devices",
    lesson="lessons/02-arrays-live-somewhere",
    anchor="two-committed-places-are-an-error",
    edits=("run",),
    next_door=True,
    devices=3,
    fewest_gpus=2,
    hints=(
        "JAX refuses a call whose arrays are committed to two places. Which line of `run` could "
        "bring all arrays to one place, and how often does it run?",
        "jax.device_put(tree, device) takes a whole tree. An array that is on the device "
        "already is not copied.",
        "One tuple of `arrays` and `state`, placed before the loop, is enough.",
    ),
)
