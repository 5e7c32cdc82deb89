# expect: share_is_set
"""ex13: let two processes share one GPU.

`grader check ex13` judges `start`; `grader hint ex13` helps.
"""

import os

import jax


def start(share, grow):
    os.environ.pop("XLA_PYTHON_CLIENT_MEM_FRACTION", None)
    os.environ["XLA_CLIENT_MEMORY_FRACTION"] = str(share)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false" if grow else "true"
    os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "default"
    return jax.devices()[0]
