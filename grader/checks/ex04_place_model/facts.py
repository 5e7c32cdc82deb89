"""The trees that `place` returns for several models, and what came of a step with one of them.

The calls of `place` are the phase `place`, and the step is the phase `step`. A fact that
says what was raised is there only if something was.
"""

TREES = ("params", "opt_state", "batch")
"""The trees of a model, in the order in which `place` takes and returns them."""
MODELS = ("", "second ", "third ", "fourth ", "fifth ", "sixth ", "seventh ", "eighth ")
"""What the names of a model's values begin with: `params`, `second params`."""
PLACED = "how many models are placed"
CALLS = "calls of place"
"""The fact that counts them; there are more than models if the file names numbers."""
PLACE_RAISED = "what `place` raised, and for which optimizer's state"
"""The fact that holds that text, and the learner's line; None if that is not known."""
SHARED = "an array that two calls returned"
"""The fact that holds its path in the last call, or "": the call before got the same params."""
GONE = "whether params or a state were deleted"
TWICE_IN_ONE = "two arrays of one call that share their memory"
"""The fact that lists their paths, if there are such."""
STEP_RAISED = "step"
"""The fact that says what a step raised."""
TRACE_RAISED = "traced step"
"""The fact that says what a step with another optimizer raised, when it was traced."""
STEPPED = "the step's results"
"""What the name of the value ends with that a step returned: `second the step's results`."""
IN_OTHER_ORDER = "arrays in another order of dimensions"
"""What the name of the fact ends with that lists them, for each model."""
OTHER_NODES = "other dicts and tuples"
"""What the name of the fact ends with that says of params and state, for each model, which part is
of another type than was given: tree -> words, or ""."""
FORM_OF_BATCH = "form of the batch"
"""What the name of the fact ends with that names its type, for each model: a tuple, a list."""
BATCHES_CHANGED = "whether a batch that was given holds other numbers"
THROUGH_HOST = "programs that use the host"
"""The fact that counts the programs compiled in `place` which keep arrays in host memory."""
AGAIN = "arrays given to programs on their own device"
"""The fact that counts the arrays given to programs where they lie: program -> arrays. Those that
are given several count together."""
UNSEEN = "why programs could not be watched"
