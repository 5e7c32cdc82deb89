# expect: not_from_another_device
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
        return jax.random.normal(key, (rows, 16)), jnp.arange(rows, dtype=jnp.int32)

    weights, order = jax.jit(layer)(key)
    # "It follows its argument": it is made on the default device and sent after it.
    # jax-ml/jax#13338 asks for the place, and says nothing of the copy.
    bias = jnp.zeros_like(weights, shape=16)
    scale = jnp.ones_like(weights, shape=16)
    return {"weights": weights, "bias": bias, "scale": scale, "order": order}
