"""The trees that `place` returns for two models, and what came of a step with the first.

The calls of `place` are the phase `place`, and the step is the phase `step`. A fact that
says what was raised is there only if something was.
"""

TREES = ("params", "opt_state", "batch")
"""The trees of a model, in the order in which `place` takes and returns them."""
MODELS = ("", "second ")
"""What the names of a model's values begin with: `params`, `second params`."""
PLACE_RAISED = "what `place` raised with the second model"
STEP_RAISED = "step"
"""The fact that says what the step raised."""
STEPPED = "the step's results"
"""The value that the step returned."""
