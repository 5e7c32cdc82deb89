"""ex06_honest_timer: a timer tells what the work of one call costs, and nothing besides."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Time a program honestly",
    lesson="lessons/04-the-inner-loop",
    anchor="a-call-returns-before-the-work-is-done",
    edits=("seconds_per_call",),
    next_door=True,
    allowed_modules=("time",),
    hints=(
        "What happens in the first call, and in no other? What happens in every call, but is not "
        "the program's work?",
        "Before the clock starts: place the inputs, call once, and wait. While it runs: call, "
        "and wait for the result.",
        "args = jax.device_put(args), then jax.block_until_ready(function(*args)), then the "
        "clock, and the same line in the loop.",
    ),
)
