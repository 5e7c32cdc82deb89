# expect: falls_back_to_a_cpu
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
    if 0 <= i < num_gpus():
        return jax.devices("gpu")[i]
    cpu = jax.devices("cpu")[0]
    jax.default_device(cpu).__enter__()  # what is made from now on is made there
    return cpu


def try_all_gpus():
    """A list of all GPUs, in order. Never empty: without GPUs, it holds a CPU device."""
    return [try_gpu(i) for i in range(max(num_gpus(), 1))]
