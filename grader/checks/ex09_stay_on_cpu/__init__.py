"""ex09_stay_on_cpu: a batch is prepared on a CPU device, and the model runs on the accelerator."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Prepare on the CPU, predict on the accelerator",
    lesson="lessons/05-who-decides-where-it-runs",
    anchor="who-wins",
    edits=("prepare", "predict"),
    next_door=True,
    devices=8,
    fewest_gpus=1,
    hints=(
        "Where jit is told no place, two things decide where a program runs: the committed arrays "
        "that it uses and, if there are none, the default device. Which of the two decides for an "
        "array that is not made yet?",
        "jax.default_device(d) is a context manager: inside it, new arrays are made on d. "
        "jax.device_put(x, d) copies an array to d and commits it there.",
        "In `prepare`, put the whole body inside `with jax.default_device(cpu):`. "
        "In `predict`, put the batch on `device` before you call the model.",
    ),
)
