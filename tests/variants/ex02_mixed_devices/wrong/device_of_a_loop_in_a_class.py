# expect: runs
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
    mover = Mover()
    arrays, state = mover.move(arrays, device), jax.device_put(state, device)
    for _ in range(steps):
        state = step(arrays, state)
    return state


class Mover:
    """Moves arrays, and knows where they came from."""

    def __init__(self):
        self.left = set()

    def move(self, arrays, device):
        """Copy all arrays to `device`."""
        found = set().union(*(array.devices() for array in arrays.values()))
        for device in sorted(found, key=lambda one: one.id):
            self.left.add(device)  # and from here on, `device` is where some array was
        return {name: jax.device_put(array, device) for name, array in arrays.items()}


@jax.jit
def layer(arrays, state):
    """The step that is taken: weights (n, n), bias (n,), scale (n,) and state (rows, n)."""
    return jnp.tanh(state @ arrays["weights"] * arrays["scale"] + arrays["bias"])
