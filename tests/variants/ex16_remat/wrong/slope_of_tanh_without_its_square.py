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


def activated(up, gate):
    """The hidden units."""
    hidden = jax.nn.gelu(up) * jax.nn.sigmoid(gate)
    return hidden / jnp.sqrt(jnp.mean(hidden**2, axis=-1, keepdims=True) + 1e-6)


@jax.custom_vjp
def small(x, weights):
    """`layer`, which keeps its products."""
    return layer(x, weights)


def forward(x, weights):
    """The result, and what the backward pass needs."""
    up, gate = x @ weights["up"], x @ weights["gate"]
    added = jnp.tanh(activated(up, gate) @ weights["down"])
    return x + added, (x, weights, up, gate, added)


def backward(kept, slope):
    """The gradients of x and of the weights."""
    kept, slope = jax.lax.optimization_barrier((kept, slope))
    x, weights, up, gate, added = kept
    hidden, pullback = jax.vjp(activated, up, gate)
    inner = slope * (1 - added)
    of_up, of_gate = pullback(inner @ weights["down"].T)
    of_x = slope + of_up @ weights["up"].T + of_gate @ weights["gate"].T
    return of_x, {"up": x.T @ of_up, "gate": x.T @ of_gate, "down": hidden.T @ inner}


small.defvjp(forward, backward)


def thrifty(x, weights):
    """The same as `layer(x, weights)`, but its backward pass fits in a budget.

    The program of `gradients` may use room for 4.5 arrays (n, h) a layer for intermediate
    results. Its work may be that of 10.5 matrix products a layer: 3 are the layer's own,
    its backward pass needs 6 more.
    """
    return small(x, weights)


@jax.jit
def gradients(params, inputs, targets):
    """The gradients of the mean squared error; `params` is a list of layers."""

    def loss_of(params):
        x = inputs
        for weights in params:
            x = thrifty(x, weights)
        return jnp.mean((x - targets) ** 2)

    return jax.grad(loss_of)(params)
