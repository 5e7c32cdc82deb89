# expect: same_mean
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
    def body(carry, rate):
        x, total = carry
        update(x, rate)
        return (x, total + x), None

    (_, total), _ = jax.lax.scan(body, (x, jnp.zeros_like(x)), rates)
    return total / len(rates)
