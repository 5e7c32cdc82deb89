# expect: arguments_stay
"""ex18: average a thousand updates in constant memory.

`grader check ex18` judges `mean_of_updates`; `grader hint ex18` helps.
"""

import functools

import jax
import jax.numpy as jnp


def update(x, rate):
    """The next state, an array like `x`."""
    return x - rate * (x - jnp.tanh(x @ x.T) @ x / x.shape[0])


@functools.partial(jax.jit, donate_argnums=0)
def mean_of_updates(x, rates):
    """The mean of all the states that the updates make, an array like `x` (n, n).

    There is one update for each rate in `rates` (m,), about a thousand; each takes the
    state that the one before has made. `x` itself is the state before the first update, and
    no part of the mean. For any m, the program may need room for about ten arrays like `x`.
    """
    # x makes room for the running sum, which is one array less.
    count = rates.size

    def unfinished(carry):
        return carry[0] < count

    def add(carry):
        i, x, total = carry
        x = update(x, rates[i])
        return i + 1, x, total + x

    start = (0, x, jnp.zeros_like(x))
    _, _, total = jax.lax.while_loop(unfinished, add, start)
    return total / count
