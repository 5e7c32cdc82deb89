"""ex01: find the devices, whatever the machine.

`grader check ex01` judges all three functions; `grader hint ex01` helps.
Ask JAX what is there; create no arrays.
"""

import jax


def num_gpus():
    """The number of GPUs, an int: 0 on a machine without any.

    A GPU plugin that fails to start is not "0 GPUs": the error that JAX raises reaches
    the caller. The same holds for the two functions below.
    """
    # The first question starts all plugins. One that cannot connect raises outside the `try`.
    jax.devices()
    try:
        return len(jax.devices("gpu"))
    # A broken plugin and a missing GPU raise the same type. After the first question only
    # one meaning is left: JAX has no GPU that it can use.
    except RuntimeError:
        return 0


def try_gpu(i=0):
    """GPU number i if there is one, else a CPU device. GPUs count from 0: none is negative."""
    # -1 is an index of a list, but no GPU has that number.
    if 0 <= i < num_gpus():
        return jax.devices("gpu")[i]
    # By name: plain jax.devices() lists the default backend, which may be the GPU's.
    return jax.devices("cpu")[0]


def try_all_gpus():
    """A list of all GPUs, in order. Never empty: without GPUs, it holds a CPU device."""
    # try_gpu(0) is the CPU device where there is no GPU, so the list has at least one entry.
    return [try_gpu(i) for i in range(max(num_gpus(), 1))]


BUCKETS = (3, 8, 16, 20, 64, 100, 128, 150, 200, 256, 300, 500, 512, 1000, 1024, 2048, 4096, 10_000)
BYTES, TINY, HUGE = (1 << 14, 1 << 20, 1 << 24, 100_000_000), 1e-12, 1e30
