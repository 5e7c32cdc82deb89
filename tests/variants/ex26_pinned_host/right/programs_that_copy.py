"""ex26: stage arrays in pinned host memory, and bring them back.

`grader check ex26` judges `to_host`, `to_device` and `predict`; `grader hint ex26` helps.
"""

import jax
import jax.numpy as jnp


def copied(tree, kind):
    """A program for each array, which does nothing, but hands it out in another memory."""

    def copy(x):
        return jax.jit(lambda y: y, out_shardings=x.sharding.with_memory_kind(kind))(x)

    return jax.tree.map(copy, tree)


def to_host(tree):
    """The same tree of arrays, each in the pinned host memory of its own devices.

    An array that is sharded over devices stays sharded over them in the same way.
    """
    return copied(tree, "pinned_host")


def to_device(tree):
    """The same tree of arrays, each back in the memory of the devices it belongs to."""
    return copied(tree, "device")


@jax.jit
def predict(params, inputs):
    """The network's outputs (n, 4), in device memory.

    `params` are in pinned host memory, `inputs` (n, 16) in device memory. The compiled
    program itself brings the params to the device.
    """
    w1, b1, w2 = (jax.device_put(params[k], jax.memory.Space.Device) for k in ("w1", "b1", "w2"))
    return jnp.tanh(inputs @ w1 + b1) @ w2
