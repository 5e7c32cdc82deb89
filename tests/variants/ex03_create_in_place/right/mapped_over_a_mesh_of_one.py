"""ex03: create arrays on the device where they are needed.

`grader check ex03` judges `create`; `grader hint ex03` helps.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def create(key, rows, device):
    """The parameters of a layer, made on `device` and committed there.

    `key` is a random key, committed to `device`, which is not the default one.
    Return a dict: "weights" (rows, 16) normal from `key`, "bias" (16,) zeros, "scale" (16,) ones,
    all three float32, and "order" (rows,) with 0, 1, 2, ... as int32.
    """
    mesh = jax.sharding.Mesh(np.array([device]), ("only",))

    def layer(key):
        return dict(
            weights=jax.random.normal(key, shape=(rows, 16), dtype=jnp.float32),
            bias=lax.full((16,), 0.0),
            scale=lax.full((16,), 1.0),
            order=lax.iota(jnp.int32, rows),
        )

    whole = jax.P()
    mapped = jax.shard_map(layer, mesh=mesh, in_specs=whole, out_specs=whole, check_vma=False)
    return jax.tree_util.tree_map(lambda x: x.addressable_data(0), jax.jit(mapped)(key))
