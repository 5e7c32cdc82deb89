"""ex23: send the gradient once.

`grader check ex23` judges `make_step`; `grader hint ex23` helps.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree


def loss_fn(params, inputs, targets):
    """The mean squared error over rows: inputs (rows, 24), targets (rows, 8)."""
    hidden = jnp.tanh(inputs @ params["w1"] + params["b1"])
    return jnp.mean((hidden @ params["w2"] - targets) ** 2)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Sum:
    """A sum of vectors, and what is still missing in it."""

    total: jax.Array
    missing: jax.Array

    def plus(self, vector):
        """This sum, with one more vector."""
        vector = vector - self.missing
        total = self.total + vector
        return Sum(total, (total - self.total) - vector)


def make_step(mesh):
    """Return step(params, inputs, targets) -> (params, losses).

    `mesh` has one axis, "data". Every device has all params, and its own rows of each of n
    micro-batches: inputs are (n, rows, 24), split in dimension 1. A device computes one
    micro-batch after the other, in the memory of one. The step follows the mean gradient of
    all rows on all devices. `losses` has one number a device: the mean loss of its own rows.
    """

    def step(params, inputs, targets):
        old, unravel = ravel_pytree(params)

        def add(gradients, micro_batch):
            loss, grads = jax.value_and_grad(loss_fn)(params, *micro_batch)
            return gradients.plus(ravel_pytree(grads)[0]), loss

        start = Sum(jnp.zeros_like(old), jnp.zeros_like(old))
        gradients, losses = jax.lax.scan(add, start, (inputs, targets))
        devices = jax.lax.axis_size("data")
        gradient = jax.lax.psum(gradients.total, "data") / (devices * len(inputs))
        return unravel(old - 0.1 * gradient), jnp.mean(losses, keepdims=True)

    rows = jax.P(None, "data")
    specs = {"in_specs": (jax.P(), rows, rows), "out_specs": (jax.P(), jax.P("data"))}
    # check_vma=False: shard_map adds no sum of its own.
    return jax.jit(jax.shard_map(step, mesh=mesh, check_vma=False, **specs))
