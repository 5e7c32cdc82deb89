# expect: within_work
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


import functools


def on_rows(weights, part):
    return layer(part, weights)


@jax.custom_vjp
def cheap(x, weights):
    return layer(x, weights)


def forward(x, weights):
    return layer(x, weights), (x, weights)


def backward(kept, cotangent):
    x, weights = jax.lax.optimization_barrier(kept)
    rows = x.reshape(4, -1, x.shape[-1])
    cots = cotangent.reshape(rows.shape)
    # how often this loop runs is not known to the compiler
    last = 4 + (cotangent[0, 0] > 1e30).astype(int)

    def body(state):
        k, dx, dw = state
        _, pull = jax.vjp(lambda a, w: layer(a, w), rows[k], weights)
        a, b = pull(cots[k])
        return k + 1, dx.at[k].set(a), jax.tree.map(jnp.add, dw, b)

    start = (0, jnp.zeros_like(rows), jax.tree.map(jnp.zeros_like, weights))
    _, dx, dw = jax.lax.while_loop(lambda s: s[0] < last, body, start)
    return dx.reshape(x.shape), dw


cheap.defvjp(forward, backward)


def thrifty(x, weights):
    return cheap(x, weights)


@jax.jit
def gradients(params, inputs, targets):
    """The gradients of the mean squared error; `params` is a list of layers."""

    def loss_of(params):
        x = inputs
        for weights in params:
            x = thrifty(x, weights)
        return jnp.mean((x - targets) ** 2)

    return jax.grad(loss_of)(params)
