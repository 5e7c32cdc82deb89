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
    """The mean of all the states that the updates make, an array like `x` (n, n).

    There is one update for each rate in `rates` (m,), about a thousand; each takes the
    state that the one before has made. `x` itself is the state before the first update, and
    no part of the mean. For any m, the program may need room for about ten arrays like `x`.
    """

    @jax.checkpoint  # nothing is differentiated here
    def stacked(x, rates):
        _, states = jax.lax.scan(lambda x, rate: (update(x, rate),) * 2, x, rates)
        return jnp.mean(states, axis=0)

    return stacked(x, rates)
