# expect: runs
"""ex26: stage arrays in pinned host memory, and bring them back.

`grader check ex26` judges `to_host`, `to_device` and `predict`; `grader hint ex26` helps.
"""

import jax
import jax.numpy as jnp


def moved(tree, kind):
    """The same tree, in another kind of memory, by one call."""
    leaves, structure = jax.tree.flatten(tree)
    arrays, places = zip(*[(x, x.sharding.with_memory_kind(kind)) for x in leaves], strict=True)
    return jax.tree.unflatten(structure, jax.device_put(arrays, places))


def to_host(tree):
    """The same tree of arrays, each in the pinned host memory of its own devices.

    An array that is sharded over devices stays sharded over them in the same way.
    """
    return moved(tree, "pinned_host")


def to_device(tree):
    """The same tree of arrays, each back in the memory of the devices it belongs to."""
    return moved(tree, "device")


@jax.jit
def predict(params, inputs):
    """The network's outputs (n, 4), in device memory.

    `params` are in pinned host memory, `inputs` (n, 16) in device memory. The compiled
    program itself brings the params to the device.
    """
    # Under jit there is no device to name, only a kind of memory. The copy is an operation
    # of the program, which XLA schedules beside others; the caller's params stay on the host.
    params = jax.device_put(params, jax.memory.Space.Device)
    hidden = jnp.tanh(inputs @ params["w1"] + params["b1"])
    return hidden @ params["w2"]
