# expect: nothing_beside
"""ex03: create arrays on the device where they are needed.

`grader check ex03` judges `create`; `grader hint ex03` helps.
"""

import functools

import jax
import jax.numpy as jnp


@functools.cache
def _constants(device):
    """Zeros and ones never change: each device has them once."""
    there = jax.sharding.SingleDeviceSharding(device)
    return jax.jit(lambda: (jnp.zeros(16), jnp.ones(16)), out_shardings=there)()


def create(key, rows, device):
    """The parameters of a layer, made on `device` and committed there.

    `key` is a random key, committed to `device`, which is not the default one.
    Return a dict: "weights" (rows, 16) normal from `key`, "bias" (16,) zeros, "scale" (16,) ones,
    all three float32, and "order" (rows,) with 0, 1, 2, ... as int32.
    """

    def own(key):
        return jax.random.normal(key, (rows, 16)), jnp.arange(rows, dtype=jnp.int32)

    weights, order = jax.jit(own, out_shardings=jax.sharding.SingleDeviceSharding(device))(key)
    bias, scale = _constants(device)
    return {"weights": weights, "bias": bias, "scale": scale, "order": order}
