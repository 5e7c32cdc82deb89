# expect: same_gradients
"""ex16: fit a deep network's backward pass in a budget.

`grader check ex16` judges `thrifty`; `grader hint ex16` helps.
"""

import jax
import jax.numpy as jnp


def layer(x, weights):
    """One layer, from (n, d) to (n, d), with h hidden units in between."""
    up, gate = x @ weights["up"], x @ weights["gate"]
    hidden = jax.nn.gelu(up) * jax.nn.sigmoid(gate)
    hidden = hidden / jnp.sqrt(jnp.mean(hidden**2, axis=-1, keepdims=True) + 1e-6)
    return x + jnp.tanh(hidden @ weights["down"])


def thrifty(x, weights):
    """The same as `layer(x, weights)`, but its backward pass fits in a budget.

    The program of `gradients` may use room for 4.5 arrays (n, h) a layer for intermediate
    results. Its work may be that of 10.5 matrix products a layer: 3 are the layer's own,
    its backward pass needs 6 more.
    """
    # Taken out, so that nothing but the checkpoint holds them for the backward pass.
    taken = {name: weights.pop(name) for name in ("up", "gate", "down")}
    return jax.checkpoint(layer, policy=jax.checkpoint_policies.dots_saveable)(x, taken)


@jax.jit
def gradients(params, inputs, targets):
    """The gradients of the mean squared error; `params` is a list of layers."""

    def loss_of(params):
        x = inputs
        for weights in params:
            x = thrifty(x, weights)
        return jnp.mean((x - targets) ** 2)

    return jax.grad(loss_of)(params)
