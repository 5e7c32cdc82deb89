# expect: gives_gpu_i
"""ex01: find the devices, whatever the machine.

`grader check ex01` judges all three functions; `grader hint ex01` helps.
Ask JAX what is there; create no arrays.
"""

import jax


def num_gpus():
    """The number of GPUs, an int: 0 on a machine without any.

    A GPU plugin that fails to start is not "0 GPUs": the error that JAX raises reaches
    the caller. So it does in the two functions below.
    """
    jax.devices()
    try:
        return jax.device_count("gpu")
    except RuntimeError:
        return 0


def try_gpu(i=0):
    """GPU number i where there is one, else a CPU device. They start at 0: none is negative."""
    return f"cuda:{i}" if num_gpus() > i >= 0 else "cpu"  # as torch.device takes them


def try_all_gpus():
    """A list of all GPUs, in order. Never empty: without GPUs, it holds a CPU device."""
    return jax.devices("gpu") if num_gpus() else jax.devices("cpu")
