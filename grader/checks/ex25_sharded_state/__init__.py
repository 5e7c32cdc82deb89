"""ex25_sharded_state: each device holds its share of params and optimizer state, and no more."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="A state that no device holds whole",
    lesson="lessons/14-collectives-you-can-count",
    anchor="share-the-state",
    edits=("layout", "make_step"),
    devices=8,
    hints=(
        "Params, mean and square are three trees of equal shapes. One rule can place all three.",
        "P('data') splits dimension 0, and P(None, 'data') splits dimension 1. Which of the two "
        "can be divided by 8?",
        "For each leaf, put 'data' at a dimension d where leaf.shape[d] % mesh.size == 0. Where "
        "there is none, use P().",
    ),
)
