# expect: same_arrays
"""ex03: create arrays on the device where they are needed.

`grader check ex03` judges `create`; `grader hint ex03` helps.
"""

import jax
import jax.numpy as jnp


def create(key, rows, device):
    def make(key):
        return {
            "weights": jax.random.normal(key, (rows, 16)),
            "bias": jnp.zeros(16),
            "scale": jnp.ones(16),
            "order": jnp.arange(rows, dtype=jnp.int32),
        }

    return jax.jit(make, out_shardings=jax.sharding.SingleDeviceSharding(device))
