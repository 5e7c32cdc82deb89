# expect: nothing_beside
"""ex03: create arrays on the device where they are needed.

`grader check ex03` judges `create`; `grader hint ex03` helps.
"""

import jax
import jax.numpy as jnp

MADE = {}


def create(key, rows, device):
    """The parameters of a layer, made on `device` and committed there.

    `key` is a random key, committed to `device`, which is not the default one.
    Return a dict: "weights" (rows, 16) normal from `key`, "bias" (16,) zeros, "scale" (16,) ones,
    all three float32, and "order" (rows,) with 0, 1, 2, ... as int32.
    """
    known = (id(key), rows, device)
    if known not in MADE:
        place = jax.sharding.SingleDeviceSharding(device)
        MADE[known] = key, jax.jit(lambda key: layer(key, rows), out_shardings=place)(key)
    _, made = MADE[known]
    return dict(made)


def layer(key, rows):
    """The four arrays of a layer."""
    return {
        "weights": jax.random.normal(key, (rows, 16)),
        "bias": jnp.zeros(16),
        "scale": jnp.ones(16),
        "order": jnp.arange(rows, dtype=jnp.int32),
    }
