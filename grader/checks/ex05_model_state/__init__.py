"""ex05_model_state: variables of every kind are placed, and a step keeps what it changes."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Place all the state of a model, and keep what a step changes",
    lesson="lessons/03-models-and-their-state",
    anchor="a-model-with-more-than-parameters",
    edits=("place", "train_step"),
    next_door=True,
    allowed_modules=("flax.nnx",),
    devices=8,
    fewest_gpus=2,
    hints=(
        "A model of Flax has variables of several kinds, and only some are parameters. Which kinds "
        "does each function return, and which does it lose?",
        "nnx.state(model) is the whole state: a tree, for one jax.device_put.",
        "nnx.update writes a state into a model. A function under jax.jit works on a copy of the "
        "model, and has to return the new state. Under nnx.jit, the state is written back into "
        "the model.",
    ),
)
