# expect: same_mean
"""ex18: average a thousand updates in constant memory.

`grader check ex18` judges `mean_of_updates`; `grader hint ex18` helps.
"""

import jax
import jax.numpy as jnp


def update(x, rate):
    """The next state, an array like `x`."""
    return x - rate * (x - jnp.tanh(x @ x.T) @ x / x.shape[0])


FIRST = jax.sharding.SingleDeviceSharding(jax.devices()[0])


@jax.jit(out_shardings=FIRST)
def mean_of_updates(x, rates):
    """The mean of all the states that the updates make, an array like `x` (n, n).

    There is one update for each rate in `rates` (m,), about a thousand; each takes the
    state that the one before has made. `x` itself is the state before the first update, and
    no part of the mean. For any m, the program may need room for about ten arrays like `x`.
    """

    def add(carry, rate):
        x, total = carry
        x = update(x, rate)
        return (x, total + x), None

    (_, total), _ = jax.lax.scan(add, (x, jnp.zeros_like(x)), rates)
    return total / rates.shape[0]
