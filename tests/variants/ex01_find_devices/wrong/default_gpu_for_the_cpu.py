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
    # The first question starts all plugins. One that fails raises here, outside the `try`.
    jax.devices()
    try:
        return len(jax.devices("gpu"))
    # A broken plugin and a missing GPU raise the same type. After the first question only
    # one meaning is left: all plugins work, and none has a GPU.
    except RuntimeError:
        return 0


def try_gpu(i=0):
    if 0 <= i < num_gpus():
        return jax.devices("gpu")[i]
    default = jax.config.jax_default_device
    if default is not None and getattr(default, "platform", "") == "gpu":
        return default
    return jax.devices("cpu")[0]


def try_all_gpus():
    """A list of all GPUs, in order. Never empty: without GPUs, it holds a CPU device."""
    # try_gpu(0) is the CPU device where there is no GPU, so the list has at least one entry.
    return [try_gpu(i) for i in range(max(num_gpus(), 1))]
