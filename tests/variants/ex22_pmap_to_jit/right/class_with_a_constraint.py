"""ex22: the same data-parallel step, without pmap.

`grader check ex22` judges `place` and `make_step`; `grader hint ex22` helps.
"""

import jax
import jax.numpy as jnp


def loss_fn(params, batch):
    """The mean squared error over the rows of `batch`."""
    inputs, targets = batch
    hidden = jnp.tanh(inputs @ params["w1"] + params["b1"])
    return jnp.mean((hidden @ params["w2"] - targets) ** 2)


class DataParallel:
    """The places of params and batch on a mesh, and the step between them."""

    def __init__(self, mesh):
        self.copied = jax.NamedSharding(mesh, jax.P())
        self.split = jax.NamedSharding(mesh, jax.P("data"))

    def step(self, params, batch):
        batch = jax.lax.with_sharding_constraint(batch, self.split)
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        new = jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
        return jax.lax.with_sharding_constraint(new, self.copied), loss


def place(mesh, params, batch):
    """Put NumPy `params` and `batch` where the step wants them; return (params, batch).

    `mesh` has one axis, "data". Every device is to hold all params, and its own part of
    the rows of the batch, which keeps its shape.
    """
    places = DataParallel(mesh)
    return jax.device_put((params, batch), (places.copied, places.split))


def make_step(mesh):
    """Return step(params, batch) -> (params, loss) for arrays from `place`.

    The loss and its gradient are means over all rows of the batch. The new params are on
    every device again.
    """

    return jax.jit(DataParallel(mesh).step)
