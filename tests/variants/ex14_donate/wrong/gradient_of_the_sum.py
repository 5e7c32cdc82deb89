# expect: same_results
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
    """The squared error of each row; inputs (n, 16), targets (n,)."""

    def loss(params):
        losses = row_losses(params, batch)
        return jnp.sum(losses), losses

    grads, losses = jax.grad(loss, has_aux=True)(state["params"])
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state["momentum"], grads)
    params = jax.tree.map(lambda p, m: p - 0.05 * m, state["params"], momentum)
    return {"params": params, "momentum": momentum, "count": state["count"] + 1}, losses
