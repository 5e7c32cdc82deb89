# expect: no_copy_in_the_loop
"""ex02: compute with arrays that lie on different devices.

`grader check ex02` judges `run`; `grader hint ex02` helps.
"""

import jax
import jax.numpy as jnp

_renewed = jax.jit(lambda arrays: jax.tree.map(lambda x: x + 0, arrays))


def run(step, arrays, state, steps, device):
    """Take `steps` steps from `state`, all of them on `device`; return the last state."""
    arrays, state = jax.device_put((arrays, state), device)
    spare = []
    for _ in range(steps):
        spare.append(_renewed(arrays))
        state = step(arrays, state)
    return state


@jax.jit
def layer(arrays, state):
    """The step that is taken: weights (n, n), bias (n,), scale (n,) and state (rows, n)."""
    return jnp.tanh(state @ arrays["weights"] * arrays["scale"] + arrays["bias"])
