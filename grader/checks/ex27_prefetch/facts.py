"""How long a read takes in the runs that ex27_prefetch times, and how many are allowed ahead."""

AHEAD = 4
"""How many batches may be asked for and not yet trained on, as the exercise tells the learner."""
READ_IN_STEPS = 3
"""How long the read of a batch takes in the timed runs, in steps of the device."""


HIDES = "hides an error"
"""The fact that says whether `train` returned though a read had raised an error."""


GIVEN_LAST = "what the last step was given"
"""What a loop returns that takes over the params of a step too late: the name of these."""


def depths(run: str) -> str:
    """The fact that lists how many calls of Python are under way at each call of `stop`."""
    return f"calls under way in {run}"
