"""ex29_two_processes: two processes join, build one global array, and take its mean."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Two processes, one array",
    lesson="lessons/16-more-than-one-process",
    anchor="join-first",
    edits=("join", "global_batch", "mean"),
    hints=(
        "A process that never joins has JAX to itself, and gets no error.",
        "Join first, build the array from what each process has, and run the same programs in all "
        "processes.",
        "jax.distributed.initialize, jax.make_array_from_process_local_data, batch.mean().",
    ),
)
