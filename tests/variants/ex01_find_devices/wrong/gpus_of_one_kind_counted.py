# expect: counts_gpus
"""ex01: find the devices, whatever the machine.

`grader check ex01` judges all three functions; `grader hint ex01` helps.
Ask JAX what is there; create no arrays.
"""

import jax


def alike():
    """The GPUs that can share one program: those of one kind; none without a GPU."""
    jax.devices()
    try:
        gpus = jax.devices("gpu")
    except RuntimeError:
        return []
    return [gpu for gpu in gpus if gpu.device_kind == gpus[0].device_kind]


def num_gpus():
    """The number of GPUs, an int: 0 on a machine without any.

    A GPU plugin that fails to start is not "0 GPUs": the error that JAX raises reaches
    the caller. The same holds for the two functions below.
    """
    return len(alike())


def try_gpu(i=0):
    """GPU number i if there is one, else a CPU device. GPUs count from 0: none is negative."""
    gpus = alike()
    return gpus[i] if 0 <= i < len(gpus) else jax.devices("cpu")[0]


def try_all_gpus():
    """A list of all GPUs, in order. Never empty: without GPUs, it holds a CPU device."""
    return alike() or jax.devices("cpu")
