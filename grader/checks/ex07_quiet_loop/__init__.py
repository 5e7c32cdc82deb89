"""ex07_quiet_loop: the loop runs ahead of the device, and losses are read at the end."""

from grader.checks.ex07_quiet_loop.facts import PREPARING
from grader.judging.checking import Exercise, LoopTiming

EXERCISE = Exercise(
    title="Report losses without stalling the loop",
    lesson="lessons/04-the-inner-loop",
    anchor="reading-stops-the-loop",
    edits=("train",),
    next_door=True,
    flops=3e6,  # a timed step takes 30 ms there
    loop_timing=LoopTiming(
        at_most=2,
        function="train",
        apart=lambda steps: PREPARING * (steps + 1),
        window_seconds=0.012,
    ),
    hints=(
        "A call of a jitted function returns before the device has finished. "
        "Which line of the loop makes Python wait for it? Not only float() does: so does a call "
        "whose result has a shape that depends on values, such as jnp.nonzero(x) or x[x > 0].",
        "An array can be kept without being read. What if the list held arrays, not floats?",
        "Fill a list with the arrays; after the loop, one jax.device_get(list) reads them all, "
        "as NumPy arrays. float() of each comes last.",
    ),
)
