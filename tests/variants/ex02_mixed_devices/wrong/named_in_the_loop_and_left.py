# expect: runs
"""ex02: compute with arrays that lie on different devices.

`grader check ex02` judges `run`; `grader hint ex02` helps.
"""

import jax
import jax.numpy as jnp


def run(step, arrays, state, steps, device):
    for value in arrays.values():
        value = jax.device_put(value, device)
    state = jax.device_put(state, device)
    for _ in range(steps):
        state = step(arrays, state)
    return state


@jax.jit
def layer(arrays, state):
    """The step that is taken: weights (n, n), bias (n,), scale (n,) and state (rows, n)."""
    return jnp.tanh(state @ arrays["weights"] * arrays["scale"] + arrays["bias"])
