"""ex22_pmap_to_jit: one jitted step over a mesh, which exchanges the gradients and no more."""

from grader.judging.checking import Exercise, ProgramTiming

EXERCISE = Exercise(
    title="The same step, without pmap",
    lesson="lessons/13-pmap-and-after",
    anchor="pmap-as-jit",
    edits=("place", "make_step"),
    devices=8,
    program_timing=ProgramTiming("step", at_most=2.0),
    hints=(
        "pmap splits the batch, copies the params and runs a program. Which of these does a "
        "sharding do?",
        "Under jax.jit no axis has a name: the step sees the whole batch, and a mean over its rows "
        "is the mean over all devices already. What is left for pmean to do?",
        "NamedSharding(mesh, P('data')) splits dimension 0; NamedSharding(mesh, P()) splits "
        "nothing.",
        "Write the step for the whole batch, without pmean, and jit it: the compiler sees how "
        "its arguments are split, and adds the all-reduce that a mean over all rows needs.",
    ),
)
