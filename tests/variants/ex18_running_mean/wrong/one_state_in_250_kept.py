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

    def run(x, rates):
        return jax.lax.scan(lambda x, rate: (update(x, rate), None), x, rates)[0]

    # One state in 250 is kept, and the others are computed anew from it.
    chunk = -(-rates.shape[0] // 4) if rates.shape[0] < 1200 else 250
    total, states = jnp.zeros_like(x), []
    for start in range(0, rates.shape[0], chunk):
        states.append(x)
        x = run(x, rates[start : start + chunk])

    def add(carry, rate):
        x, total = carry
        x = update(x, rate)
        return (x, total + x), None

    for index, state in enumerate(states):
        part = rates[index * chunk : (index + 1) * chunk]
        (_, total), _ = jax.lax.scan(add, (state, total), part)
    return total / rates.shape[0]
