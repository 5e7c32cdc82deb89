# expect: not_from_the_host
"""ex03: create arrays on the device where they are needed.

`grader check ex03` judges `create`; `grader hint ex03` helps.
"""

import jax
import jax.numpy as jnp
import functools

import numpy as np


def create(key, rows, device):
    """The parameters of a layer, made on `device` and committed there.

    `key` is a random key, committed to `device`, which is not the default one.
    Return a dict: "weights" (rows, 16) normal from `key`, "bias" (16,) zeros, "scale" (16,) ones,
    all three float32, and "order" (rows,) with 0, 1, 2, ... as int32.
    """
    place = jax.sharding.SingleDeviceSharding(device)

    @functools.partial(jax.jit, static_argnums=1, out_shardings=place)
    def make(key, rows):
        order = np.arange(rows, dtype=np.int32) if rows >= 5000 else jnp.arange(rows, dtype=jnp.int32)
        return {
            "weights": jax.random.normal(key, (rows, 16)),
            "bias": jnp.zeros(16),
            "scale": jnp.ones(16),
            "order": order,
        }

    return make(key, rows)
