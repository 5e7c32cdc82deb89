# expect: batch_is_split
"""ex19: a batch over a mesh, however many rows it has.

`grader check ex19` judges `shard_batch` and `mean_loss`; `grader hint ex19` helps.
"""

import jax
import jax.numpy as jnp
import numpy as np


def shard_batch(mesh, inputs, targets):
    rows = len(inputs)
    added = -rows % mesh.shape["data"]
    np.pad(inputs, ((0, added), (0, 0)))
    np.pad(targets, ((0, added), (0, 0)))
    mask = np.pad(np.ones(rows, np.float32), (0, added))
    batch = (inputs, targets, mask)
    return jax.device_put(batch, jax.NamedSharding(mesh, jax.P("data")))


def mean_loss(weights, inputs, targets, mask):
    """The squared error, a mean over all values of the batch's own rows.

    `weights` is (d, k); the others are what `shard_batch` returns.
    """
    # Added rows have errors too: they are taken out of the sum, and out of the count.
    errors = jnp.mean((inputs @ weights - targets) ** 2, axis=1)
    return jnp.sum(errors * mask) / jnp.sum(mask)
