"""ex03: create arrays on the device where they are needed.

`grader check ex03` judges `create`; `grader hint ex03` helps.
"""

from functools import partial
import jax
import jax.numpy as jnp


@partial(jax.jit, static_argnames="rows")
def _layer(key, *, rows):
    bias = jnp.zeros(16)
    order = jnp.cumsum(jnp.ones(rows, jnp.int32)) - 1
    return jax.random.normal(key, (rows, 16)), bias, bias + 1, order


def create(key, rows, device):
    """The parameters of a layer, made on `device` and committed there.

    `key` is a random key, committed to `device`, which is not the default one.
    Return a dict: "weights" (rows, 16) normal from `key`, "bias" (16,) zeros, "scale" (16,) ones,
    all three float32, and "order" (rows,) with 0, 1, 2, ... as int32.
    """

    names = "weights", "bias", "scale", "order"
    return dict(zip(names, jax.device_put(_layer(key, rows=rows), device)))
