# expect: runs
"""ex13: let two processes share one GPU.

`grader check ex13` judges `start`; `grader hint ex13` helps.
"""

import json
import os

import jax


def start(share, grow):
    """Set this process's part of the GPU's memory, and return the GPU, a jax.Device.

    Each process calls it once, before anything else but imports. `share` is the fraction
    of the memory that it may take, such as 0.3. With `grow`, its pool starts small and
    grows; without, it is taken whole at the start.
    Whatever the shell has set of these things is replaced.
    """
    # JSON writes numbers and truth values as JAX reads them: 0.3, true, false.
    settings = {"XLA_CLIENT_MEM_FRACTION": share, "XLA_PYTHON_CLIENT_PREALLOCATE": not grow}
    os.environ.pop("XLA_PYTHON_CLIENT_MEM_FRACTION", None)
    os.environ.pop("XLA_PYTHON_CLIENT_ALLOCATOR", None)
    os.environ.update({name: json.dumps(value) for name, value in settings.items()})
    return jax.devices()[0]
