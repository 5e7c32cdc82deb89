"""ex14_donate: the compiled step writes the new state over the old one, and keeps the batch."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Update state in place",
    lesson="lessons/09-what-jit-does-to-memory",
    anchor="donate-what-you-replace",
    edits=("step",),
    next_door=True,
    hints=(
        "While the step runs, the caller still holds the old state. How could it give it up?",
        "jax.jit can be told that the caller will never use an argument again.",
        "Write @jax.jit(donate_argnums=...) with the position of `state`, and of nothing else.",
    ),
)
