# expect: runs
"""ex13: let two processes share one GPU.

`grader check ex13` judges `start`; `grader hint ex13` helps.
"""

import os

import jax


def start(share, grow):
    """Set this process's part of the GPU's memory, and return the GPU, a jax.Device.

    Each process calls it once, before anything else but imports. `share` is the fraction
    of the memory that it may take, such as 0.3. With `grow`, its pool starts small and
    grows; without, it is taken whole at the start.
    Whatever the shell has set of these things is replaced.
    """
    os.environ.pop("XLA_PYTHON_CLIENT_MEM_FRACTION", None)
    os.environ["XLA_CLIENT_MEM_FRACTION"] = str(share)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false" if grow else "true"
    os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "default"
    shown = [int(n) for n in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if n]
    print(f"{share} of GPU {shown[0]}" if shown else f"{share} of the first GPU")
    return jax.devices()[0]
