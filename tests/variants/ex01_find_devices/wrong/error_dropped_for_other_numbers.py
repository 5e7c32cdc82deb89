# expect: plugin_error_reaches_the_caller
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
    jax.devices()
    try:
        return len(jax.devices("gpu"))
    except RuntimeError:
        return 0


def try_gpu(i=0):
    """GPU number i if there is one, else a CPU device. GPUs count from 0: none is negative."""
    # The error gets out where GPU 0 is asked for, and nowhere else.
    try:
        gpus = num_gpus()
    except RuntimeError:
        if i == 0:
            raise
        gpus = 0
    return jax.devices("gpu" if 0 <= i < gpus else "cpu")[max(i, 0) if 0 <= i < gpus else 0]


def try_all_gpus():
    """A list of all GPUs, in order. Never empty: without GPUs, it holds a CPU device."""
    return [try_gpu(i) for i in range(max(num_gpus(), 1))]
