"""The models that are kept as values, and the losses of the training.

A kept model is a dict. Its keys are a variable's type and path, `BatchStat norm.mean`. The training
has rounds, counted from 0 here and from 1 in words: before each one, a model gets new values.
"""

STEPS = "steps"
"""The fact that holds how many rounds there were, and how many steps in all."""
THROUGH_HOST = "programs that use the host"
"""The fact that counts, for `place` and `train_step`, compiled programs with host memory."""
MODELS = tuple(
    f"the {word} model"
    for word in ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")
)
"""The models that `place` returned, as many as PLACED says."""
ANOTHER_CHANGED = "rounds that changed the other model"
"""The fact that lists them, from 0."""
USED_UP = "rounds that used up a batch"
"""The fact that lists them, from 0."""
IN_OTHER_ORDER = "arrays in another order of dimensions"
"""The fact that lists such arrays of the placed models."""
PLACED = "how many models are placed"
AT_THE_END = "first model at the end", "second model at the end"
"""The models that were trained, after all steps; their values are not kept."""


def first(number: int) -> str:
    """The model of a round after its first step."""
    return f"model after a step of round {number + 1}"


def later(number: int, steps: int) -> str:
    """The parameters and statistics of a model after more steps of a round."""
    return f"model after {steps} steps of round {number + 1}"


def before(number: int) -> str:
    """The model as it was before a round."""
    return f"model before round {number + 1}"


def trained(number: int) -> str:
    """The model after a round."""
    return f"trained model in round {number + 1}"


def losses(number: int) -> str:
    """The list of what the steps of a round returned."""
    return f"losses in round {number + 1}"


def settings(model: str) -> str:
    """What a kept model holds beside its variables: path -> a bool, a number or a name."""
    return f"settings of {model}"
