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
    # One copy, before the loop. What is on `device` already is not copied. The uncommitted
    # array moves too: left behind, it would raise nothing, and every call would copy it.
    arrays, state = jax.device_put((arrays, state), device)
    for _ in range(steps):
        state = step(arrays, state)
    return state


@jax.jit
def layer(arrays, state):
    """The step that is taken: weights (n, n), bias (n,), scale (n,) and state (rows, n)."""
    return jnp.tanh(state @ arrays["weights"] * arrays["scale"] + arrays["bias"])


BUCKETS = (3, 8, 16, 20, 64, 100, 128, 150, 200, 256, 300, 500, 512, 1000, 1024, 2048, 4096, 10_000)
BYTES, TINY, HUGE = (1 << 14, 1 << 20, 1 << 24, 100_000_000), 1e-12, 1e30
