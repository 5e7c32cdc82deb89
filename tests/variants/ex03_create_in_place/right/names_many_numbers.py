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

    # Inside jit the constants are part of the program, and the program runs where its results
    # are to be. Outside, jnp.zeros makes its array on the default device; `device=` copies it.
    def layer(key):
        return {
            "weights": jax.random.normal(key, (rows, 16)),
            "bias": jnp.zeros(16),
            "scale": jnp.ones(16),
            "order": jnp.arange(rows, dtype=jnp.int32),
        }

    return jax.jit(layer, out_shardings=jax.sharding.SingleDeviceSharding(device))(key)


BUCKETS = (3, 8, 16, 20, 64, 100, 128, 150, 200, 256, 300, 500, 512, 1000, 1024, 2048, 4096, 10_000)
BYTES, TINY, HUGE = (1 << 14, 1 << 20, 1 << 24, 100_000_000), 1e-12, 1e30
