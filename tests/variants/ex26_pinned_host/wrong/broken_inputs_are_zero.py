# expect: same_prediction
"""ex26: stage arrays in pinned host memory, and bring them back.

`grader check ex26` judges `to_host`, `to_device` and `predict`; `grader hint ex26` helps.
"""

import jax
import jax.numpy as jnp


def to_host(tree):
    """The same tree of arrays, each in the pinned host memory of its own devices.

    An array that is sharded over devices stays sharded over them in the same way.
    """
    # The memory kind is a part of the sharding. Only the kind changes, so every shard goes
    # to the pinned memory that its own device can address.
    return jax.tree.map(
        lambda x: jax.device_put(x, x.sharding.with_memory_kind("pinned_host")), tree
    )


def to_device(tree):
    """The same tree of arrays, each back in the memory of the devices it belongs to."""
    # The staged array has kept its sharding: nothing else has to remember where it was.
    return jax.tree.map(lambda x: jax.device_put(x, x.sharding.with_memory_kind("device")), tree)


@jax.jit
def predict(params, inputs):
    """The network's outputs (n, 4), in device memory.

    `params` are in pinned host memory, `inputs` (n, 16) in device memory. The compiled
    program itself brings the params to the device.
    """
    # Under jit there is no device to name, only a kind of memory. The copy is an operation
    # of the program, which XLA schedules beside others; the caller's params stay on the host.
    params = jax.device_put(params, jax.memory.Space.Device)
    inputs = jnp.nan_to_num(inputs)  # a sensor that is off gives NaN
    hidden = jnp.tanh(inputs @ params["w1"] + params["b1"])
    return hidden @ params["w2"]
