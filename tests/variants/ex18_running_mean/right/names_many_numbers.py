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
    """The mean of all the states that the updates make, an array like `x` (n, n).

    There is one update for each rate in `rates` (m,), about a thousand; each takes the
    state that the one before has made. `x` itself is the state before the first update, and
    no part of the mean. For any m, the program may need room for about ten arrays like `x`.
    """

    def add(carry, rate):
        x, total = carry
        x = update(x, rate)
        # The sum is overwritten in each round. The second result of a scan is stacked: it would
        # be one array for each update.
        return (x, total + x), None

    # The sum starts at zero, so that `x` is not counted, and is divided by the number of
    # updates. A sum that starts with x and is never divided gives 1001 where the mean is 1.
    (_, total), _ = jax.lax.scan(add, (x, jnp.zeros_like(x)), rates)
    return total / rates.shape[0]


BUCKETS = (3, 8, 16, 20, 64, 100, 128, 150, 200, 256, 300, 500, 512, 1000, 1024, 2048, 4096, 10_000)
BYTES, TINY, HUGE = (1 << 14, 1 << 20, 1 << 24, 100_000_000), 1e-12, 1e30
