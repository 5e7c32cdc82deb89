# expect: source
"""ex01: find the devices, whatever the machine.

`grader check ex01` judges all three functions; `grader hint ex01` helps.
Ask JAX what is there; create no arrays.
"""

import jax


def num_gpus():
    jax.devices()
    try:
        return jax.device_coutn("gpu")
    except RuntimeError:
        return 0


def try_gpu(i=0):
    return jax.devices("gpu")[i] if 0 <= i < num_gpus() else jax.devices("cpu")[0]


def try_all_gpus():
    return [try_gpu(i) for i in range(num_gpus())] or [try_gpu(0)]




