# expect: staged_in_pinned_host
"""ex26: stage arrays in pinned host memory, and bring them back.

`grader check ex26` judges `to_host`, `to_device` and `predict`; `grader hint ex26` helps.
"""

import jax
import jax.numpy as jnp


def to_host(tree):
    """The same tree."""
    jax.tree.map(lambda x: x.copy_to_host_async(), tree)
    return tree


def to_device(tree):
    """The same tree of arrays, each back in the memory of the devices it belongs to."""
    return jax.tree.map(lambda x: jax.device_put(x, x.sharding.with_memory_kind("device")), tree)


@jax.jit
def predict(params, inputs):
    """The network's outputs (n, 4), in device memory."""
    params = jax.device_put(params, jax.memory.Space.Device)
    hidden = jnp.tanh(inputs @ params["w1"] + params["b1"])
    return hidden @ params["w2"]
