"""ex13: let two processes share one GPU.

`grader check ex13` judges `start`; `grader hint ex13` helps.
"""

import os

import jax


def use(*, fraction, preallocate):
    """Write the settings down, each under its name."""
    values = {
        "MEM_FRACTION": None,
        "PREALLOCATE": str(int(preallocate)),
        "ALLOCATOR": "DEFAULT",
    }
    for name, value in values.items():
        if value is None:
            os.environ.pop(f"XLA_PYTHON_CLIENT_{name}", None)
        else:
            os.environ[f"XLA_PYTHON_CLIENT_{name}"] = value
    os.environ["XLA_CLIENT_MEM_FRACTION"] = format(fraction, "g")


def start(share, grow):
    """Set this process's part of the GPU's memory, and return the GPU, a jax.Device.

    Each process calls it once, before anything else but imports. `share` is the fraction
    of the memory that it may take, such as 0.3. With `grow`, its pool starts small and
    grows; without, it is taken whole at the start.
    Whatever the shell has set of these things is replaced.
    """
    use(fraction=share, preallocate=not grow)
    return next(iter(jax.devices()))
