"""ex19: a batch over a mesh, however many rows it has.

`grader check ex19` judges `shard_batch` and `mean_loss`; `grader hint ex19` helps.
"""

import jax
import jax.numpy as jnp
import numpy as np


def shard_batch(mesh, inputs, targets):
    rows = len(inputs)
    full = rows + -rows % mesh.shape["data"]
    s = jax.NamedSharding(mesh, jax.P("data"))
    put = [jax.device_put(np.pad(x, ((0, full - rows), (0, 0))), s) for x in (inputs, targets)]
    mask = jax.jit(lambda: (jnp.arange(full) < rows).astype(jnp.float32), out_shardings=s)()
    return *put, mask


def mean_loss(weights, inputs, targets, mask):
    """The squared error, a mean over all values of the batch's own rows.

    `weights` is (d, k); the others are what `shard_batch` returns.
    """
    # Added rows have errors too: they are taken out of the sum, and out of the count.
    errors = jnp.mean((inputs @ weights - targets) ** 2, axis=1)
    return jnp.sum(errors * mask) / jnp.sum(mask)
