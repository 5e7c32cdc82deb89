"""ex20_from_callback: a sharded array of a file, of which each device's block is read once."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="An array, read piece by piece",
    lesson="lessons/12-meshes-and-shardings",
    anchor="read-only-your-block",
    edits=("load",),
    next_door=True,
    devices=8,
    fewest_gpus=4,
    hints=(
        "What knows which rows and columns a device holds? Not its number: the sharding.",
        "JAX can call your function for each block, with the two slices to read.",
        "jax.make_array_from_callback(shape, sharding, callback): the callback gets the block's "
        "index, and returns its values.",
    ),
)
