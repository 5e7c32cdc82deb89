# expect: not_from_the_host
"""ex03: create arrays on the device where they are needed.

`grader check ex03` judges `create`; `grader hint ex03` helps.
"""

import jax
import numpy as np
import jax.numpy as jnp


def create(key, rows, device):
    """Make."""
    table = np.arange(rows, dtype=np.float32)

    def layer(key):
        return {
            "weights": jax.random.normal(key, (rows, 16)),
            "bias": jnp.zeros(16),
            "scale": jnp.ones(16),
            "order": jnp.asarray(table).astype(jnp.int32),
        }

    return jax.jit(layer, out_shardings=jax.sharding.SingleDeviceSharding(device))(key)
