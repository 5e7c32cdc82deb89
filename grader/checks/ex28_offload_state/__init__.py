"""ex28_offload_state: Adam's state waits in host memory, and visits the device piece by piece."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Keep the optimizer's state in host memory",
    lesson="lessons/15-host-memory-and-pinned-transfers",
    anchor="inside-a-jitted-step",
    edits=("init", "step"),
    devices=8,
    fewest_gpus=1,
    hints=(
        "A memory kind is a part of a sharding: where does `init` leave each array, and where "
        "does `step`?",
        "jax.device_put works inside a jitted step too: with jax.memory.Space.Device before "
        "the update, with jax.memory.Space.Host after it.",
        "In `init`, device_put each array with NamedSharding(mesh, spec, "
        "memory_kind='pinned_host'): the param's spec for the averages, P() for the count. In "
        "`step`, device_put one state at a time, after an optimization_barrier of its gradient "
        "and of the state that went back before it.",
    ),
)
