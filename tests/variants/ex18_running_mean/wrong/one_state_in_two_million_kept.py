# expect: constant_memory
"""ex18: average a thousand updates in constant memory.

`grader check ex18` judges `mean_of_updates`; `grader hint ex18` helps.
"""

import jax
import jax.numpy as jnp


def update(x, rate):
    """The next state, an array like `x`."""
    return x - rate * (x - jnp.tanh(x @ x.T) @ x / x.shape[0])


@jax.jit
def mean_of_updates(x, rates):
    def add(carry, rate):
        x, total = carry
        x = update(x, rate)
        return (x, total + x), None
    m = rates.shape[0]
    k = max(1, m // 2_000_000)
    keep = (m // k) * k
    def outer(carry, part):
        carry, _ = jax.lax.scan(add, carry, part)
        return carry, carry[0]
    carry, kept = jax.lax.scan(outer, (x, jnp.zeros_like(x)), rates[:keep].reshape(k, -1))
    (_, total), _ = jax.lax.scan(add, carry, rates[keep:])
    return total / m + 0 * kept.sum(0)
