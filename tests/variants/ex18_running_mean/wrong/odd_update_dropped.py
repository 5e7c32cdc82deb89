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
    """The mean of all the states that the updates make, an array like `x` (n, n).

    There is one update for each rate in `rates` (m,), about a thousand; each takes the
    state that the one before has made. `x` itself is the state before the first update, and
    no part of the mean. For any m, the program may need room for about ten arrays like `x`.
    """
    pairs = rates.shape[0] // 2

    def add_two(carry, two):
        x, total = carry
        first = update(x, two[0])
        second = update(first, two[1])
        return (second, total + first + second), None

    start = update(x, rates[0]) if not pairs else x
    by_two = rates[: 2 * pairs].reshape(pairs, 2)
    (last, total), _ = jax.lax.scan(add_two, (x, jnp.zeros_like(x)), by_two)
    return (total if pairs else start) / rates.shape[0]
