# expect: same_arrays
"""ex03: create arrays on the device where they are needed.

`grader check ex03` judges `create`; `grader hint ex03` helps.
"""

import jax
import jax.numpy as jnp


def create(key, rows, device):
    """The parameters of a layer, made on `device` and committed there.

    `key` is a random key, committed to `device`, which is not the default one.
    Return a dict: "weights" (rows, 16) normal from `key`, "bias" (16,) zeros, "scale" (16,) ones,
    all three float32, and "order" (rows,) with 0, 1, 2, ... as int32.
    """

    def layer(key):
        weights = jax.random.normal(key, (rows, 16))
        return {
            "weights": jax.lax.reduce_precision(weights, exponent_bits=8, mantissa_bits=19),
            "bias": jnp.zeros(16),
            "scale": jnp.ones(16),
            "order": jnp.arange(rows, dtype=jnp.int32),
        }

    return jax.jit(layer, out_shardings=jax.sharding.SingleDeviceSharding(device))(key)
