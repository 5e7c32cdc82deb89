# expect: one_copy_of_the_state
"""ex14: update state in place.

`grader check ex14` judges `step`; `grader hint ex14` helps.
"""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree


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
    # One long vector for the optimizer: every array is copied into it, and out again.
    params, unravel = ravel_pytree(state["params"])
    momentum = 0.9 * ravel_pytree(state["momentum"])[0] + ravel_pytree(grads)[0]
    new = {"params": unravel(params - 0.05 * momentum), "momentum": unravel(momentum)}
    return new | {"count": state["count"] + 1}, losses
