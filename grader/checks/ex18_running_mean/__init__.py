"""ex18_running_mean: the compiled mean needs the same memory for any number of updates."""

from grader.checks.ex18_running_mean.facts import NAME
from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Average a thousand updates in constant memory",
    lesson="lessons/11-leaks-that-are-and-are-not",
    anchor="a-mean-in-constant-memory",
    edits=(NAME,),
    devices=2,
    fewest_gpus=1,
    hints=(
        "A mean needs the sum of the states and their number. Does it need a state after that "
        "state was added?",
        "jax.lax.scan passes a carry from round to round, which may be a tuple. What its function "
        "returns beside the carry is stacked.",
        "Carry (x, total): return (update(x, rate), total + the new x), None. Divide at the end.",
    ),
)
