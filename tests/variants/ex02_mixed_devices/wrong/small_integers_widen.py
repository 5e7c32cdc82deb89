# expect: same_state
"""ex02: compute with arrays that lie on different devices.

`grader check ex02` judges `run`; `grader hint ex02` helps.
"""

import jax
import jax.numpy as jnp


def run(step, arrays, state, steps, device):
    """Take `steps` steps from `state`, all of them on `device`; return the last state.

    `step(arrays, state)` returns the next state. `arrays` is a dict. Its arrays and
    `state` lie on different devices, some committed, some not.
    Call `step` once for each step, and give it arrays on `device` only.
    """
    small = (jnp.int8, jnp.int16, jnp.uint16, jnp.uint32)

    def there(array):
        placed = jax.device_put(array, device)
        return placed.astype(jnp.int32) if placed.dtype in small else placed

    arrays, state = jax.tree.map(there, (arrays, state))
    for _ in range(steps):
        state = step(arrays, state)
    return state


@jax.jit
def layer(arrays, state):
    """The step that is taken: weights (n, n), bias (n,), scale (n,) and state (rows, n)."""
    return jnp.tanh(state @ arrays["weights"] * arrays["scale"] + arrays["bias"])
