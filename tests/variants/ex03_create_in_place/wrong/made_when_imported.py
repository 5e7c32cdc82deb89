# expect: not_from_another_device
"""ex03: create arrays on the device where they are needed.

`grader check ex03` judges `create`; `grader hint ex03` helps.
"""

import jax
import jax.numpy as jnp


BIAS = {device: jax.device_put(jnp.zeros(16), device) for device in jax.devices()}
SCALE = {device: jax.device_put(jnp.ones(16), device) for device in jax.devices()}


def create(key, rows, device):
    """The parameters of a layer, made on `device` and committed there.

    `key` is a random key, committed to `device`, which is not the default one.
    Return a dict: "weights" (rows, 16) normal from `key`, "bias" (16,) zeros, "scale" (16,) ones,
    all three float32, and "order" (rows,) with 0, 1, 2, ... as int32.
    """
    def layer(key):
        return jax.random.normal(key, (rows, 16)), jnp.arange(rows, dtype=jnp.int32)

    weights, order = jax.jit(layer)(key)
    # Early is not in place: these were made on the default device, and copied.
    return {"weights": weights, "bias": BIAS[device], "scale": SCALE[device], "order": order}
