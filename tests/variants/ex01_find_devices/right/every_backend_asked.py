"""ex01: find the devices, whatever the machine.

`grader check ex01` judges all three functions; `grader hint ex01` helps.
Ask JAX what is there; create no arrays.
"""

from jax.extend.backend import backends
import jax


def num_gpus():
    """The number of GPUs, an int: 0 on a machine without any.

    A GPU plugin that fails to start is not "0 GPUs": the error that JAX raises reaches
    the caller. The same holds for the two functions below.
    """

    return sum(1 for _ in _every())


def _every():
    jax.devices()
    for name, client in backends().items():
        if client.platform in ("gpu", "cuda", "rocm"):
            yield from client.devices()


def try_gpu(i=0):
    """GPU number i if there is one, else a CPU device. GPUs count from 0: none is negative."""

    import itertools
    if i < 0:
        return jax.devices("cpu")[0]
    return next(itertools.islice(_every(), i, None), jax.devices("cpu")[0])


def try_all_gpus():
    """A list of all GPUs, in order. Never empty: without GPUs, it holds a CPU device."""

    return [*_every()] or [jax.devices("cpu")[0]]
