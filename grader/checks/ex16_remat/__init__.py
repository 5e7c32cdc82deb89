"""ex16_remat: the gradients keep less for the backward pass, and compute little of it again."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Fit a deep network's backward pass in a budget",
    lesson="lessons/10-memory-for-compute",
    anchor="compute-it-again",
    edits=("thrifty",),
    hints=(
        "The backward pass uses results of the forward pass. Which of them are cheap to compute "
        "again, and which are not?",
        "jax.checkpoint keeps only the arguments of a function; its `policy` says what else to "
        "keep. Matrix products are the expensive part.",
        "Call jax.checkpoint(layer, policy=...), with a policy of jax.checkpoint_policies that "
        "saves dots.",
    ),
)
