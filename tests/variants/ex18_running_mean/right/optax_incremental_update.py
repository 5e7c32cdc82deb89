"""ex18: average a thousand updates in constant memory.

`grader check ex18` judges `mean_of_updates`; `grader hint ex18` helps.
"""

import jax
import jax.numpy as jnp


def update(x, rate):
    """The next state, an array like `x`."""
    return x - rate * (x - jnp.tanh(x @ x.T) @ x / x.shape[0])


import optax


@jax.jit
def mean_of_updates(x, rates):
    def body(k, carry):
        x, mean = carry
        x = update(x, rates[k])
        return x, optax.incremental_update(x, mean, 1 / (k + 1))

    return jax.lax.fori_loop(0, rates.shape[0], body, (x, jnp.zeros_like(x)))[1]
