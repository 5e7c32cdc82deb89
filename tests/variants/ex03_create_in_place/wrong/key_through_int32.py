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
        words = jnp.abs(jax.random.key_data(key).astype(jnp.int32))  # whole numbers, as int32
        key = jax.random.wrap_key_data(words.astype(jnp.uint32))
        return {
            "weights": jax.random.normal(key, (rows, 16)),
            "bias": jnp.zeros(16),
            "scale": jnp.ones(16),
            "order": jnp.arange(rows, dtype=jnp.int32),
        }

    return jax.jit(layer, out_shardings=jax.sharding.SingleDeviceSharding(device))(key)
