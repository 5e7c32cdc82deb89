"""ex01: find the devices, whatever the machine.

`grader check ex01` judges all three functions; `grader hint ex01` helps.
Ask JAX what is there; create no arrays.
"""

import functools

import jax
from jax.extend.backend import backends


class Hardware:
    """What JAX found; it cannot change while a process runs."""

    def __init__(self):
        self.cpus = jax.devices("cpu")
        found = [device for backend in backends().values() for device in backend.devices()]
        self.gpus = [device for device in found if isinstance(device, jax.Device)]
        self.gpus = [device for device in self.gpus if device.platform == "gpu"]


@functools.cache
def hardware():
    return Hardware()


def num_gpus():
    """The number of GPUs, an int: 0 on a machine without any.

    A GPU plugin that fails to start is not "0 GPUs": the error that JAX raises reaches
    the caller. So it does in the two functions below.
    """
    return len(hardware().gpus)


def try_gpu(i=0):
    """GPU number i where there is one, else a CPU device. They start at 0: none is negative."""
    gpus = hardware().gpus
    return gpus[i] if 0 <= i < len(gpus) else jax.devices("cpu")[0]


def try_all_gpus():
    """A list of all GPUs, in order. Never empty: without GPUs, it holds a CPU device."""
    return list(hardware().gpus or hardware().cpus)
