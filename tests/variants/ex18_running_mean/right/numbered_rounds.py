"""ex18: average a thousand updates in constant memory.

`grader check ex18` judges `mean_of_updates`; `grader hint ex18` helps.
"""

import jax
import jax.numpy as jnp
import numpy as np


def update(x, rate):
    """The next state, an array like `x`."""
    return x - rate * (x - jnp.tanh(x @ x.T) @ x / x.shape[0])


@jax.jit
def mean_of_updates(x, rates):
    def add(carry, part):
        x, mean = carry
        k, rate = part
        x = update(x, rate)
        return (x, mean + (x - mean) / k), None

    numbers = np.arange(1, rates.shape[0] + 1, dtype=np.float32)
    (_, mean), _ = jax.lax.scan(add, (x, jnp.zeros_like(x)), (numbers, rates))
    return mean
