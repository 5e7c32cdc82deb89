"""ex27_prefetch: while a step runs, the next batch is copied and those after it are read."""

from grader.checks.ex27_prefetch.facts import READ_IN_STEPS
from grader.judging.checking import Exercise, LoopTiming

EXERCISE = Exercise(
    title="Have the next batch on its way",
    lesson="lessons/15-host-memory-and-pinned-transfers",
    anchor="the-order-of-lines-decides",
    edits=("train",),
    next_door=True,
    flops=3e6,  # a timed step takes 30 ms there
    loop_timing=LoopTiming(
        at_most=1.75,
        function="train",
        apart=lambda _: READ_IN_STEPS,
        window_seconds=0.042,
    ),
    hints=(
        "`ask`, `put` and `step` return before their work is done. `.result()` and float() "
        "wait. Which work is under way while the loop waits for a loss?",
        "Between the call of `step` and the read of its loss, the host is free: ask for one "
        "more batch there, and put the next one.",
        "Before the loop, ask for AHEAD batches and put the first. In the loop: step, ask for "
        "one more, put the oldest of those asked for, and only then float(loss).",
    ),
)
