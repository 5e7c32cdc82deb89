# expect: nothing_beside
"""ex03: create arrays on the device where they are needed."""

import jax
import jax.numpy as jnp


@jax.jit
def _own(tree):
    return jax.tree.map(jnp.copy, tree)


def create(key, rows, device):
    """The parameters of a layer, made on `device` and committed there."""

    def layer(key):
        return {
            "weights": jax.random.normal(key, (rows, 16)),
            "bias": jnp.zeros(16),
            "scale": jnp.ones(16),
            "order": jnp.arange(rows, dtype=jnp.int32),
        }

    there = jax.sharding.SingleDeviceSharding(device)
    return _own(jax.jit(layer, out_shardings=there)(key))
