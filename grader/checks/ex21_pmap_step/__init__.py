"""ex21_pmap_step: a step in pmap, whose copies of the params stay equal."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="A step in pmap",
    lesson="lessons/13-pmap-and-after",
    anchor="what-pmap-does",
    edits=("replicate", "update"),
    next_door=True,
    devices=8,
    fewest_gpus=2,
    hints=(
        "pmap keeps nothing equal by itself: it runs one program on each device, with that "
        "device's slice of every argument.",
        'Inside `update`, "batch" is the name of the axis over all devices. A collective over that '
        "name exchanges values between them.",
        'jax.lax.pmean((loss, grads), "batch") before the params change; and jax.device_put with '
        "a sharding that splits the first axis of the stacked params.",
    ),
)
