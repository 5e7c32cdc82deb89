"""ex26: stage arrays in pinned host memory, and bring them back.

`grader check ex26` judges `to_host`, `to_device` and `predict`; `grader hint ex26` helps.
"""

import jax
import jax.numpy as jnp


class Stage:
    """Moves trees to one kind of memory of the devices that they are on."""

    def __init__(self, kind):
        self.kind = kind

    def __call__(self, tree):
        leaves, structure = jax.tree.flatten(tree)
        moved = [jax.device_put(x, x.sharding.with_memory_kind(self.kind)) for x in leaves]
        return jax.tree.unflatten(structure, moved)


def to_host(tree):
    """The same tree of arrays, each in the pinned host memory of its own devices.

    An array that is sharded over devices stays sharded over them in the same way.
    """
    return Stage("pinned_host")(tree)


def to_device(tree):
    """The same tree of arrays, each back in the memory of the devices it belongs to."""
    return Stage("device")(tree)


def network(params, inputs):
    moved = jax.tree.map(lambda x: jax.device_put(x, jax.memory.Space.Device), params)
    hidden = jnp.tanh(inputs @ moved["w1"] + moved["b1"])
    return hidden @ moved["w2"]


predict = jax.jit(network)
