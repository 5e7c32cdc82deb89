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
    def add(carry, rate):
        x, mean = carry
        x = update(x, rate)
        return (x, (mean + x) / 2), None
    (_, mean), _ = jax.lax.scan(add, (x, jnp.zeros_like(x)), rates)
    return mean
