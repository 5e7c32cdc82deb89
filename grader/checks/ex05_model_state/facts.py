"""The models that are kept as values, and the losses of the training.

A kept model is a dict. Its keys are a variable's type and path, `BatchStat norm.mean`.
"""

STEPS = "steps"
"""The fact that holds how many steps were taken: those whose numbers are compared, and all."""
PLACED = ("the first model", "the second model")
"""The models that `place` returned."""
FIRST, TRAINED = "model after a step", "trained model"
"""The other model, which the drive placed, after its first step and after the last compared one."""
AT_THE_END = "model at the end"
"""That model after all steps; its values are not kept."""
LOSSES = "losses"
"""The list of what the compared steps returned."""


def settings(placed: str) -> str:
    """What a placed model holds beside its variables: path -> bool, int or float."""
    return f"settings of {placed}"
