# expect: nothing_beside
"""ex03: create arrays on the device where they are needed.

`grader check ex03` judges `create`; `grader hint ex03` helps.
"""

import jax
import jax.numpy as jnp
import numpy as np


def create(key, rows, device):
    """The parameters of a layer, made on `device` and committed there.

    `key` is a random key, committed to `device`, which is not the default one.
    Return a dict: "weights" (rows, 16) normal from `key`, "bias" (16,) zeros, "scale" (16,) ones,
    all three float32, and "order" (rows,) with 0, 1, 2, ... as int32.
    """
    # Every device makes the arrays, and one of the copies is kept.
    everywhere = jax.NamedSharding(jax.sharding.Mesh(np.array(jax.devices()), ("all",)), jax.P())

    def constants():
        order = jnp.arange(rows, dtype=jnp.int32)
        return {"bias": jnp.zeros(16), "scale": jnp.ones(16), "order": order}

    made = {"weights": jax.random.normal(key, (rows, 16))}
    for name, array in jax.jit(constants, out_shardings=everywhere)().items():
        made[name] = next(s.data for s in array.addressable_shards if s.device == device)
    return made
