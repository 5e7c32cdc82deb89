# expect: not_from_the_host
"""ex03: create arrays on the device where they are needed.

`grader check ex03` judges `create`; `grader hint ex03` helps.
"""

import jax
import jax.numpy as jnp
import numpy as np


def create(key, rows, device):
    """The parameters of a layer, made on `device` and committed there."""
    number = float(np.float32(np.asarray(jax.random.key_data(key))[-1] % 1000 + 2))

    def layer(key):
        return {
            "weights": jax.random.normal(key, (rows, 16)),
            "bias": jnp.full(16, number) - jnp.float32(number),
            "scale": jnp.full(16, number + 1.0) - jnp.float32(number),
            "order": jnp.arange(rows, dtype=jnp.int32),
        }

    return jax.jit(layer, out_shardings=jax.sharding.SingleDeviceSharding(device))(key)
