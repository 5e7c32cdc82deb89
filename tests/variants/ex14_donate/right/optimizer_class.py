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


class Momentum:
    """Gradient descent with momentum; knows nothing of donation."""

    def __init__(self, rate, decay):
        self.rate, self.decay = rate, decay

    def step(self, state, batch):
        def mean_loss(params):
            losses = row_losses(params, batch)
            return jnp.mean(losses), losses

        (_, losses), grads = jax.value_and_grad(mean_loss, has_aux=True)(state["params"])
        new = dict(state, count=state["count"] + 1)
        new["momentum"] = jax.tree.map(lambda m, g: self.decay * m + g, state["momentum"], grads)
        new["params"] = jax.tree.map(lambda p, m: p - self.rate * m, state["params"], new["momentum"])
        return new, losses


step = jax.jit(Momentum(0.05, 0.9).step, donate_argnums=0)
