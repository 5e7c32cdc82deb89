"""How long a read takes in the runs that ex27_prefetch times."""

READ_IN_STEPS = 3
"""How long the read of a batch takes in the timed runs, in steps of the device."""
