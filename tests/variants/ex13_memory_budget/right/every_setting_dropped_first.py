"""ex13: let two processes share one GPU.

`grader check ex13` judges `start`; `grader hint ex13` helps.
"""

import os

import jax


def settings(share, grow):
    """The environment of one process."""
    return {
        "XLA_CLIENT_MEM_FRACTION": str(share),
        "XLA_PYTHON_CLIENT_PREALLOCATE": str(not grow),
    }


def start(share, grow):
    """Set this process's part of the GPU's memory, and return the GPU, a jax.Device.

    Each process calls it once, before anything else but imports. `share` is the fraction
    of the memory that it may take, such as 0.3. With `grow`, its pool starts small and
    grows; without, it is taken whole at the start.
    Whatever the shell has set of these things is replaced.
    """
    for name in [name for name in os.environ if name.startswith("XLA_")]:
        if name != "XLA_FLAGS":
            del os.environ[name]
    for name, value in settings(share, grow).items():
        os.environ[name] = value
    return jax.devices()[0]
