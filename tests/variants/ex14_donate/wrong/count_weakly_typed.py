# expect: state_fits
"""ex14: update state in place.

`grader check ex14` judges `step`; `grader hint ex14` helps.
"""

import jax
import jax.numpy as jnp


def row_losses(params, batch):
    """The squared error of each row; inputs (n, 16), targets (n,)."""
    inputs, targets = batch
    hidden = jnp.tanh(inputs @ params["w1"] + params["b1"])
    return (hidden @ params["w2"] - targets) ** 2


@jax.jit(donate_argnums=0)
def step(state, batch):
    """One step of gradient descent with momentum.

    `state` is {"params", "momentum", "count"}. The caller never uses an old state again;
    it uses every batch again, in the next epoch.
    Return (state, losses): the new state, and the loss of each row before the step.
    """

    def mean_loss(params):
        losses = row_losses(params, batch)
        return jnp.mean(losses), losses

    grads, losses = jax.grad(mean_loss, has_aux=True)(state["params"])
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state["momentum"], grads)
    params = jax.tree.map(lambda p, m: p - 0.05 * m, state["params"], momentum)
    count = jax.lax.full((), 0).at[...].set(state["count"] + 1)
    return {"params": params, "momentum": momentum, "count": count}, losses
