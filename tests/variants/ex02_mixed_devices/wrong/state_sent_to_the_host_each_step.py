# expect: not_through_the_host
"""ex02: compute with arrays that lie on different devices.

`grader check ex02` judges `run`; `grader hint ex02` helps.
"""

import jax
import jax.numpy as jnp


def run(step, arrays, state, steps, device):
    arrays, state = jax.device_put((arrays, state), device)
    for _ in range(steps):
        state.copy_to_host_async()
        state = step(arrays, state)
    return state



@jax.jit
def layer(arrays, state):
    """The step that is taken: weights (n, n), bias (n,), scale (n,) and state (rows, n)."""
    return jnp.tanh(state @ arrays["weights"] * arrays["scale"] + arrays["bias"])
