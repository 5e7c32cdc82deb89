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
    m = rates.shape[0]
    chunk = 2000
    full = m // chunk

    def run(x, rates):
        return jax.lax.scan(lambda x, rate: (update(x, rate), None), x, rates)[0]

    def add(carry, rate):
        x, total = carry
        x = update(x, rate)
        return (x, total + x), None

    def outer(x, rates):
        return run(x, rates), x

    x1, kept = jax.lax.scan(outer, x, rates[: full * chunk].reshape(full, chunk))
    total = jnp.zeros_like(x)

    def again(total, part):
        start, rates = part
        return jax.lax.scan(add, (start, total), rates)[0][1], None

    total, _ = jax.lax.scan(again, total, (kept, rates[: full * chunk].reshape(full, chunk)))
    (_, total), _ = jax.lax.scan(add, (x1, total), rates[full * chunk :])
    return total / m
