"""ex23: send the gradient once.

`grader check ex23` judges `make_step`; `grader hint ex23` helps.
"""

from functools import partial

import jax
import optax
from jax import numpy as jnp
from jax.sharding import PartitionSpec as P


def loss_fn(params, inputs, targets):
    """The mean squared error over rows: inputs (rows, 24), targets (rows, 8)."""
    hidden = jnp.tanh(inputs @ params["w1"] + params["b1"])
    return jnp.mean((hidden @ params["w2"] - targets) ** 2)


def make_step(mesh):
    """Return step(params, inputs, targets) -> (params, losses).

    `mesh` has one axis, "data". Every device has all params, and its own rows of each of n
    micro-batches: inputs are (n, rows, 24), split in dimension 1. A device computes one
    micro-batch after the other, in the memory of one. The step follows the mean gradient of
    all rows on all devices. `losses` has one number a device: the mean loss of its own rows.
    """
    def local(params, inputs, targets):
        count = inputs.shape[0]

        def body(index, carry):
            total, losses = carry
            found = jax.value_and_grad(loss_fn)(params, inputs[index], targets=targets[index])
            return optax.tree.add(total, found[1]), losses + found[0]

        start = jax.tree.map(jnp.zeros_like, params), jnp.zeros(())
        total, losses = jax.lax.fori_loop(0, count, body, start)
        total = jax.lax.psum(total, axis_name="data")
        scale = 0.1 / (count * mesh.shape["data"])
        new = {name: params[name] - scale * total[name] for name in params}
        return new, jnp.expand_dims(losses / count, 0)

    spec = P(None, "data")
    mapped = partial(jax.shard_map, mesh=mesh, in_specs=(P(), spec, spec), check_vma=False)
    return jax.jit(mapped(local, out_specs=(P(), P("data"))))
