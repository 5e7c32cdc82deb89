# expect: counts_gpus
"""ex01: find the devices, whatever the machine.

`grader check ex01` judges all three functions; `grader hint ex01` helps.
Ask JAX what is there; create no arrays.
"""

import jax


def _gpus():
    """The GPUs. JAX_PLATFORMS ends with what they are called, as in "cpu,cuda"."""
    jax.devices()
    *_, last = (jax.config.jax_platforms or "gpu").split(",")
    try:
        return [device for device in jax.devices(last) if device.platform == "gpu"]
    except RuntimeError:
        return []


def num_gpus():
    """The number of GPUs, an int: 0 on a machine without any.

    A GPU plugin that fails to start is not "0 GPUs": the error that JAX raises reaches
    the caller. The same holds for the two functions below.
    """
    return len(_gpus())


def try_gpu(i=0):
    """GPU number i if there is one, else a CPU device. GPUs count from 0: none is negative."""
    gpus = _gpus()
    return gpus[i] if 0 <= i < len(gpus) else jax.devices("cpu")[0]


def try_all_gpus():
    """A list of all GPUs, in order. Never empty: without GPUs, it holds a CPU device."""
    return _gpus() or [try_gpu()]
