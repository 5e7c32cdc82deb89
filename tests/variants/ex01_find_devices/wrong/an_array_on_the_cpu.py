# expect: creates_no_array
"""ex01: find the devices, whatever the machine.

`grader check ex01` judges all three functions; `grader hint ex01` helps.
Ask JAX what is there; create no arrays.
"""

import jax


def num_gpus():
    """The number of GPUs, an int: 0 on a machine without any."""
    jax.devices()
    try:
        return len(jax.devices("gpu"))
    except RuntimeError:
        return 0


def try_gpu(i=0):
    """GPU number i if there is one, else a CPU device."""
    if 0 <= i < num_gpus():
        return jax.devices("gpu")[i]
    (device,) = jax.device_put(0.0, jax.devices("cpu")[0]).devices()
    return device


def try_all_gpus():
    """A list of all GPUs, in order."""
    return [try_gpu(i) for i in range(max(num_gpus(), 1))]
