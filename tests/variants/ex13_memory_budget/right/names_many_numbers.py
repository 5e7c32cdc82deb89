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
    # The old name of the next variable. If both are set, the plugin fails, and JAX uses a CPU.
    os.environ.pop("XLA_PYTHON_CLIENT_MEM_FRACTION", None)
    os.environ["XLA_CLIENT_MEM_FRACTION"] = str(share)
    # Only "false", "False" and "0" turn it off. Any other text, "no" too, leaves it on.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false" if grow else "true"
    # "platform" keeps no pool: each array gets its memory from the driver.
    os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "default"
    # Asking for a device creates the client. JAX reads the variables now, and never again.
    return jax.devices()[0]


BUCKETS = (3, 8, 16, 20, 64, 100, 128, 150, 200, 256, 300, 500, 512, 1000, 1024, 2048, 4096, 10_000)
BYTES, TINY, HUGE = (1 << 14, 1 << 20, 1 << 24, 100_000_000), 1e-12, 1e30
