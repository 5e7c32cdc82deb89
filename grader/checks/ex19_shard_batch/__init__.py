"""ex19_shard_batch: full and ragged batches, split over a mesh, each row counted once."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Shard a batch, the ragged one too",
    lesson="lessons/12-meshes-and-shardings",
    anchor="the-ragged-batch",
    edits=("shard_batch", "mean_loss"),
    next_door=True,
    devices=8,
    fewest_gpus=4,
    hints=(
        "Into how many parts does P('data') split the rows on a mesh of 8 devices? On one of "
        "4 x 2?",
        "Add rows with NumPy before jax.device_put. mesh.shape['data'] is the number of parts.",
        "The batch lacks -rows % parts rows. A mean over its own rows is the sum of mask * error, "
        "divided by the sum of mask.",
    ),
)
