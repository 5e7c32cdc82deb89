"""ex17_find_the_leak: what a training loop keeps alive does not grow with its steps."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Stop a loop whose live memory grows",
    lesson="lessons/11-leaks-that-are-and-are-not",
    anchor="who-holds-it",
    edits=("train",),
    next_door=True,
    hints=(
        "An array lives as long as something refers to it. What does the loop hold at step 1000 "
        "that it did not hold at step 10?",
        "A list of device arrays keeps all of them alive. What do you need from a report, and how "
        "large is that?",
        "Read two floats at each step, keep those, and keep one set of params: the best so far.",
    ),
)
