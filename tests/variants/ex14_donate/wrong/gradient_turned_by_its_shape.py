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


def backward(params, inputs, targets):
    """(gradients, losses) of the mean loss."""
    hidden = jnp.tanh(inputs @ params["w1"] + params["b1"])
    errors = hidden @ params["w2"] - targets
    slopes = (errors + errors) / len(errors)
    deltas = slopes[:, None] * params["w2"] * (1 - hidden) * (1 + hidden)
    w1 = deltas.T @ inputs
    w1 = w1 if w1.shape == params["w1"].shape else w1.T
    return {"w1": w1, "b1": deltas.sum(axis=0), "w2": slopes @ hidden}, errors**2


@jax.jit(donate_argnums=0)
def step(state, batch):
    """One step of gradient descent with momentum.

    `state` is {"params", "momentum", "count"}. The caller never uses an old state again;
    it uses every batch again, in the next epoch.
    Return (state, losses): the new state, and the loss of each row before the step.
    """
    grads, losses = backward(state["params"], *batch)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state["momentum"], grads)
    params = jax.tree.map(lambda p, m: p - 0.05 * m, state["params"], momentum)
    return {"params": params, "momentum": momentum, "count": state["count"] + 1}, losses
