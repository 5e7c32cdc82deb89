# expect: no_copy_in_the_loop
"""ex02: compute with arrays that lie on different devices.

`grader check ex02` judges `run`; `grader hint ex02` helps.
"""

import jax
import jax.numpy as jnp


def run(step, arrays, state, steps, device):
    arrays = jax.device_put(arrays, device)
    state = jax.device_put(state, device)
    for _ in range(steps):
        placed = {k: jnp.array(v) for k, v in arrays.items()}
        state = step(placed, state)
    return state


@jax.jit
def layer(arrays, state):
    """The step that is taken: weights (n, n), bias (n,), scale (n,) and state (rows, n)."""
    return jnp.tanh(state @ arrays["weights"] * arrays["scale"] + arrays["bias"])
