"""ex14: update state in place.

`grader check ex14` judges `step`; `grader hint ex14` helps.
"""

import jax
import jax.numpy as jnp
import optax


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
    losses = row_losses(state["params"], batch)
    grads = jax.grad(lambda params: row_losses(params, batch).mean())(state["params"])
    momentum = optax.tree.add(grads, optax.tree.scale(0.9, state["momentum"]))
    params = optax.apply_updates(state["params"], optax.tree.scale(-0.05, momentum))
    return {"count": state["count"] + 1, "momentum": momentum, "params": params}, losses
