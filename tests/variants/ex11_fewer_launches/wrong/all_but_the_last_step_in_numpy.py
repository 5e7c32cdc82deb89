# expect: one_launch
"""ex11: many small launches become one.

`grader check ex11` judges `simulate`; `grader hint ex11` helps.
"""

import jax
import jax.numpy as jnp
import numpy as np


def step(angle, speed):
    """One step of 0.01 s of many pendulums; returns the new (angle, speed)."""
    speed = speed - 0.01 * jnp.sin(angle)
    return angle + 0.01 * speed, speed


# jit is around the loop, not around the step: each call from Python is a launch, and this
# is called once a run. `steps` is an argument of the program: a new number compiles nothing.
@jax.jit
def _last(angle, speed):
    return step(angle, speed)


def simulate(angle, speed, steps):
    a, s = np.asarray(angle), np.asarray(speed)
    for _ in range(steps - 1):
        s = s - np.float32(0.01) * np.sin(a)
        a = a + np.float32(0.01) * s
    return _last(a, s)


if __name__ == "__main__":
    angles = jnp.linspace(0.0, 1.0, 5)
    print(jax.devices()[0], simulate(angles, jnp.zeros(5), 100))
