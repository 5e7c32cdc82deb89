"""How long a read takes in the runs that ex27_prefetch times, and how many are allowed ahead."""

AHEAD = 4
"""How many batches may be asked for and not yet trained on, as the exercise tells the learner."""
READ_IN_STEPS = 3
"""How long the read of a batch takes in the timed runs, in steps of the device."""


def depths(run: str) -> str:
    """The fact that lists how many calls of Python are under way at each call of `stop`."""
    return f"calls under way in {run}"
