# expect: not_from_the_host
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
        return jax.random.normal(key, (rows, 16)), jnp.zeros(16), jnp.ones(16)

    weights, bias, scale = jax.jit(layer)(key)
    order = jnp.array(list(range(rows)), dtype=jnp.int32, device=device)
    return {"weights": weights, "bias": bias, "scale": scale, "order": order}
