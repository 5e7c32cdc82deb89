# expect: runs
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
    rows = len(inputs)
    added = -rows % mesh.shape["data"]
    mask = np.ones(rows, np.float32)
    batch = [np.pad(x, [(0, added)] + [(0, 0)] * (x.ndim - 1)) for x in (inputs, targets, mask)]
    return tuple(jax.device_put(batch, jax.NamedSharding(mesh, jax.P("data"))))


def mean_loss(weights, inputs, targets, mask):
    """The squared error, a mean over all values of the batch's own rows.

    `weights` is (d, k); the others are what `shard_batch` returns.
    """
    rows = jax.P("data")

    @jax.shard_map(
        mesh=weights.sharding.mesh, in_specs=(jax.P(), rows, rows, rows), out_specs=jax.P()
    )
    def over_all(weights, inputs, targets, mask):
        errors = jnp.mean((inputs @ weights - targets) ** 2, axis=1)
        return jax.lax.psum(jnp.sum(errors * mask), "data") / jax.lax.psum(mask.sum(), "data")

    return over_all(weights, inputs, targets, mask)
