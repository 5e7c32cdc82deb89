# expect: on_the_device
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
    weights = jax.random.normal(key, (rows, 16))
    # Its values are not used, so its place is not either: made on the default device.
    # jax-ml/jax#26040
    bias, scale = jax.jit(lambda w: (jnp.zeros_like(w[0]), jnp.ones_like(w[0])))(weights)
    order = jax.jit(lambda w: jnp.arange(len(w), dtype=jnp.int32))(weights)
    return {"weights": weights, "bias": bias, "scale": scale, "order": order}
