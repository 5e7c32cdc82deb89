# expect: one_launch
"""ex11: many small launches become one.

`grader check ex11` judges `simulate`; `grader hint ex11` helps.
"""

import jax
import numpy as np
import jax.numpy as jnp


def step(angle, speed):
    """One step of 0.01 s of many pendulums; returns the new (angle, speed)."""
    speed = speed - 0.01 * jnp.sin(angle)
    return angle + 0.01 * speed, speed


def simulate(angle, speed, steps):
    """`steps` steps (an int) from `angle` and `speed` (n,); returns the last (angle, speed)."""
    angle, speed = np.asarray(angle), np.asarray(speed)
    for _ in range(steps):  # jax-ml/jax#4537: NumPy launches nothing, and uses no device
        speed = speed - np.float32(0.01) * np.sin(angle)
        angle = angle + np.float32(0.01) * speed
    return jnp.asarray(angle), jnp.asarray(speed)


if __name__ == "__main__":
    angles = jnp.linspace(0.0, 1.0, 5)
    print(jax.devices()[0], simulate(angles, jnp.zeros(5), 100))
