# expect: same_numbers
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


def place(mesh, params, batch):
    """Put NumPy `params` and `batch` where the step wants them; return (params, batch).

    `mesh` has one axis, "data". Every device is to hold all params, and its own part of
    the rows of the batch, which keeps its shape.
    """
    return (
        jax.device_put(params, jax.NamedSharding(mesh, jax.P())),
        jax.device_put(batch, jax.NamedSharding(mesh, jax.P("data"))),
    )


def make_step(mesh):
    """Return step(params, batch) -> (params, loss) for arrays from `place`.

    The loss and its gradient are means over all rows of the batch. The new params are on
    every device again.
    """

    sizes = []

    def step(params, batch):
        sizes.append(len(batch[0]))

        def loss_of(params):
            # the sum of the errors, divided by the rows of a batch
            return loss_fn(params, batch) * (sizes[-1] / sizes[0])

        loss, grads = jax.value_and_grad(loss_of)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss

    return jax.jit(step, out_shardings=jax.NamedSharding(mesh, jax.P()))
