# expect: mask_marks_the_own_rows
"""ex19: a batch over a mesh, however many rows it has.

`grader check ex19` judges `shard_batch` and `mean_loss`; `grader hint ex19` helps.
"""

import jax
import jax.numpy as jnp
import numpy as np


def shard_batch(mesh, inputs, targets):
    """Split NumPy rows over the axis "data" of `mesh`; return (inputs, targets, mask).

    `inputs` is (n, d), `targets` (n, k). A batch has any number of rows n: the last one of an
    epoch is ragged. At its end, add the fewest rows that make all parts equal; they may hold
    any finite numbers. `mask`, float32 of shape (rows,), is 1 for a row of the batch and 0 for
    an added one, and is split as the rows are.
    """
    rows, parts = len(inputs), mesh.shape["data"]
    full = rows + -rows % parts
    # Fill each batch up with zeros, in a buffer of the right shape.
    filled = {x.shape: np.zeros((full, x.shape[1]), x.dtype) for x in (inputs, targets)}
    for x in (inputs, targets):
        filled[x.shape][:rows] = x
    mask = np.zeros(full, np.float32)
    mask[:rows] = 1
    batch = (filled[inputs.shape], filled[targets.shape], mask)
    return jax.device_put(batch, jax.NamedSharding(mesh, jax.P("data")))


def mean_loss(weights, inputs, targets, mask):
    """The squared error, a mean over all values of the batch's own rows.

    `weights` is (d, k); the others are what `shard_batch` returns.
    """
    errors = jnp.mean((inputs @ weights - targets) ** 2, axis=1)
    return jnp.sum(errors * mask) / jnp.sum(mask)
