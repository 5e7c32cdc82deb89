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
    count = rates.shape[0]

    def body(i, carry):
        state, total = carry
        state = update(state, rates[i])
        return state, (total + state) / count

    return jax.lax.fori_loop(0, count, body, (x, jnp.zeros_like(x)))[1]
