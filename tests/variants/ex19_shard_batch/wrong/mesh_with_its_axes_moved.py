# expect: batch_is_split
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
    added = -len(inputs) % mesh.shape["data"]
    mask = np.ones(len(inputs), np.float32)
    batch = [np.pad(x, [(0, added)] + [(0, 0)] * (x.ndim - 1)) for x in (inputs, targets, mask)]
    # The axis that splits the rows comes first, and the others, along which copies lie, after it.
    at = mesh.axis_names.index("data")
    others = [name for name in mesh.axis_names if name != "data"]
    rows_first = jax.sharding.Mesh(np.moveaxis(mesh.devices, at, 0), ("data", *others))
    return tuple(jax.device_put(batch, jax.NamedSharding(rows_first, jax.P("data"))))


def mean_loss(weights, inputs, targets, mask):
    """The squared error, a mean over all values of the batch's own rows.

    `weights` is (d, k); the others are what `shard_batch` returns.
    """
    errors = jnp.mean((inputs @ weights - targets) ** 2, axis=1)
    return jnp.sum(errors * mask) / jnp.sum(mask)
