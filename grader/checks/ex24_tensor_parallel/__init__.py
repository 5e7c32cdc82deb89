"""ex24_tensor_parallel: weights are split so that a step sends no more than its budget."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Split a network over two axes",
    lesson="lessons/14-collectives-you-can-count",
    anchor="split-the-weights",
    edits=("layout", "make_step"),
    devices=8,
    fewest_gpus=4,
    hints=(
        "How can `up` be split so that a device's part of the product needs no other part?",
        "`down` multiplies these hidden units. Split it so that each device uses only its own.",
        "Split the hidden dimension of both matrices: the columns of `up`, the rows of `down`.",
    ),
)
