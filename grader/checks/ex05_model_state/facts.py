"""The models that are kept as values, and the losses of the training.

A kept model is a dict. Its keys are a variable's type and path, `BatchStat norm.mean`. The training
has rounds: before each one, the model gets new values.
"""

STEPS = "steps"
"""The fact that holds how many rounds there were, and how many steps in all."""
THROUGH_HOST = "programs that use the host"
"""The fact that counts, for `place` and `train_step`, compiled programs with host memory."""
MODELS = tuple(
    f"the {word} model" for word in ("first", "second", "third", "fourth", "fifth", "sixth")
)
"""The models that `place` returned, as many as PLACED says."""
PLACED = "how many models are placed"
FIRST = "model after a step"
"""The other model, which the drive placed, after the first step of the first round."""
AT_THE_END = "model at the end"
"""That model after all steps; its values are not kept."""


def before(number: int) -> str:
    """The model as it was before a round."""
    return f"model before round {number}"


def trained(number: int) -> str:
    """The model after a round."""
    return f"trained model in round {number}"


def losses(number: int) -> str:
    """The list of what the steps of a round returned."""
    return f"losses in round {number}"


def settings(placed: str) -> str:
    """What a placed model holds beside its variables: path -> a bool, a number or a name."""
    return f"settings of {placed}"
