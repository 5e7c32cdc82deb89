"""ex26_pinned_host: arrays wait in pinned host memory, and return to the memory they left."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Stage arrays in pinned host memory",
    lesson="lessons/15-host-memory-and-pinned-transfers",
    anchor="memory-kinds",
    edits=("to_host", "to_device", "predict"),
    next_door=True,
    devices=4,
    fewest_gpus=1,
    hints=(
        "A device can address several kinds of memory: jax.devices()[0].addressable_memories().",
        "The kind is a part of an array's sharding: print x.sharding.memory_kind.",
        "One device_put that changes both the devices and the kind may raise `Memory kind "
        "mismatch`. Keep each array's own sharding, and change only its kind.",
        "jax.device_put takes x.sharding.with_memory_kind('pinned_host') as the place.",
    ),
)
