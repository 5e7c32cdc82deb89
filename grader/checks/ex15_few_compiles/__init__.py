"""ex15_few_compiles: batches of many sizes are served by programs of a few sizes."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Serve batches of any size with few compiles",
    lesson="lessons/09-what-jit-does-to-memory",
    anchor="each-shape-is-a-program",
    edits=("predict_all",),
    devices=2,
    fewest_gpus=1,
    hints=(
        "A program is compiled for the shapes of its arguments. How many different shapes does "
        "the model get?",
        "Round each size up to one of a few sizes, and fill up with rows that do not count.",
        "Pad with NumPy to 16, 32, 64, 128 or 256 rows, pass a mask that is zero for the padding, "
        "and cut the predictions after np.asarray.",
    ),
)
