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


def products(x, both):
    """x @ both, from a triangular system: [[1, 0], [-x, 1]] [u, v] = [both, 0]."""
    n, d = x.shape
    lower = jnp.eye(n + d, dtype=x.dtype).at[d:, :d].set(-x)
    right = jnp.concatenate([both, jnp.zeros((n, both.shape[1]), both.dtype)])
    solved = jax.lax.linalg.triangular_solve(
        lower, right, left_side=True, lower=True, unit_diagonal=True
    )
    return solved[d:]


def between(up, gate):
    hidden = jax.nn.gelu(up) * jax.nn.sigmoid(gate)
    return hidden / jnp.sqrt(jnp.mean(hidden**2, axis=-1, keepdims=True) + 1e-6)


@jax.custom_vjp
def thrifty(x, weights):
    """The same as `layer(x, weights)`, but its backward pass keeps little."""
    return layer(x, weights)


def forward(x, weights):
    last = between(x @ weights["up"], x @ weights["gate"]) @ weights["down"]
    return x + jnp.tanh(last), (x, weights, last)


def backward(kept, g):
    x, weights, last, g = jax.lax.optimization_barrier((*kept, g))
    both = products(x, jnp.concatenate([weights["up"], weights["gate"]], axis=1))
    up, gate = jnp.split(both, 2, axis=1)
    hidden, pull = jax.vjp(between, up, gate)
    d_last = g * (1 - jnp.tanh(last) ** 2)
    d_up, d_gate = pull(d_last @ weights["down"].T)
    d_x = g + d_up @ weights["up"].T + d_gate @ weights["gate"].T
    d_weights = {"up": x.T @ d_up, "gate": x.T @ d_gate, "down": hidden.T @ d_last}
    return d_x, d_weights


thrifty.defvjp(forward, backward)



@jax.jit
def gradients(params, inputs, targets):
    """The gradients of the mean squared error; `params` is a list of layers."""

    def loss_of(params):
        x = inputs
        for weights in params:
            x = thrifty(x, weights)
        return jnp.mean((x - targets) ** 2)

    return jax.grad(loss_of)(params)
