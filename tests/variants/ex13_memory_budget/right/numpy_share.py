"""ex13: let two processes share one GPU.

`grader check ex13` judges `start`; `grader hint ex13` helps.
"""

import os

import jax
import numpy as np


def names():
    """The share, whether it is taken at once, and by whom it is handed out."""
    yield "XLA_CLIENT_MEM_FRACTION"
    for name in ("PREALLOCATE", "ALLOCATOR"):
        yield f"XLA_PYTHON_CLIENT_{name}"


def start(share, grow):
    """Set this process's part of the GPU's memory, and return the GPU, a jax.Device.

    Each process calls it once, before anything else but imports. `share` is the fraction
    of the memory that it may take, such as 0.3. With `grow`, its pool starts small and
    grows; without, it is taken whole at the start.
    Whatever the shell has set of these things is replaced.
    """
    share = np.float64(share)
    values = dict(zip(names(), (share, not grow, "bfc"), strict=True))
    os.environ.pop("XLA_PYTHON_CLIENT_MEM_FRACTION", None)
    for name, value in values.items():
        os.environ[name] = f"{value}"
    gpu, *_ = jax.devices("gpu")
    return gpu
