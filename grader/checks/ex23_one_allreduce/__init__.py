"""ex23_one_allreduce: the devices exchange one gradient for all micro-batches together."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Send the gradient once",
    lesson="lessons/14-collectives-you-can-count",
    anchor="one-all-reduce",
    edits=("make_step",),
    devices=8,
    hints=(
        "Where does the exchange stand: in the loop over micro-batches, or after it?",
        "The mean over devices of a sum is the sum of the means. Add up first, on each device.",
        "Take pmean out of `add`, and apply it to `total` after the scan.",
    ),
)
