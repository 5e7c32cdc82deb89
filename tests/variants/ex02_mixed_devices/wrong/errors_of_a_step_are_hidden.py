# expect: every_step_is_called
"""ex02: compute with arrays that lie on different devices.

`grader check ex02` judges `run`; `grader hint ex02` helps.
"""

import jax
import jax.numpy as jnp
import contextlib


def run(step, arrays, state, steps, device):
    """Take `steps` steps from `state`, all of them on `device`; return the last state.

    `step(arrays, state)` returns the next state. `arrays` is a dict. Its arrays and
    `state` lie on different devices, some committed, some not.
    Call `step` once for each step, and give it arrays on `device` only.
    """
    arrays, state = jax.device_put((arrays, state), device)
    with contextlib.suppress(FloatingPointError):
        for _ in range(steps):
            state = step(arrays, state)
    return state


@jax.jit
def layer(arrays, state):
    """The step that is taken: weights (n, n), bias (n,), scale (n,) and state (rows, n)."""
    return jnp.tanh(state @ arrays["weights"] * arrays["scale"] + arrays["bias"])
