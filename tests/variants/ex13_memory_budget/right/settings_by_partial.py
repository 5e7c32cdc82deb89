"""ex13: let two processes share one GPU.

`grader check ex13` judges `start`; `grader hint ex13` helps.
"""

import operator
import os
from functools import partial

import jax


NAMES = (
    "XLA_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
)
put = partial(operator.setitem, os.environ)


def start(share, grow):
    """Set this process's part of the GPU's memory, and return the GPU, a jax.Device.

    Each process calls it once, before anything else but imports. `share` is the fraction
    of the memory that it may take, such as 0.3. With `grow`, its pool starts small and
    grows; without, it is taken whole at the start.
    Whatever the shell has set of these things is replaced.
    """
    put(NAMES[0], f"{share}")
    put(NAMES[1], "0" if grow else "1")
    put(NAMES[2], "default")
    for name in ("XLA_PYTHON_CLIENT_MEM_FRACTION",):
        os.environ.pop(name, None)
    gpu, *_ = jax.local_devices()
    return gpu
