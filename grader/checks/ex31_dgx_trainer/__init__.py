"""ex31_dgx_trainer: every part of a trainer for eight GPUs, each judged by itself."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="A trainer for eight GPUs",
    lesson="lessons/18-the-dgx-trainer",
    anchor="one-trainer",
    edits=("place", "place_batch", "make_step", "train"),
    devices=8,
    fewest_gpus=4,
    hints=(
        "Each check is about one function alone. Take them one by one.",
        "Start with the places: one spec for the batch, and one for each param. The state has the "
        "same specs in another memory. Then come the step and the loop.",
        "The link of each check leads to the paragraph of the lesson about that part. The code "
        "there does the same for other sizes.",
    ),
)
