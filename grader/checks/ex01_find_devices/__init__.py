"""ex01_find_devices: which GPUs are there, asked on this machine and on staged ones."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Find the devices, whatever the machine",
    lesson="lessons/01-what-hardware-do-i-have",
    anchor="count-what-is-there",
    edits=("num_gpus", "try_gpu", "try_all_gpus"),
    allowed_modules=("jax.extend.backend",),
    hints=(
        'On a machine without GPUs, jax.devices("gpu") raises. What does jax.devices() do there?',
        "A RuntimeError has two meanings here: no GPU, or a plugin that failed. When are plugins "
        "started, and which call can tell the two apart?",
        "Call jax.devices() first, outside any `try`. After it, a RuntimeError from "
        'jax.devices("gpu") can only mean that JAX found no GPU that it can use: then the answers '
        "are 0, a CPU device, and a list with a CPU device in it.",
    ),
)
