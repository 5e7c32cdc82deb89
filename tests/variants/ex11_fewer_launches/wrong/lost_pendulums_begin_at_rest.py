# expect: same_state
"""ex11: many small launches become one.

`grader check ex11` judges `simulate`; `grader hint ex11` helps.
"""

import jax
import jax.numpy as jnp


def step(angle, speed):
    """One step of 0.01 s of many pendulums; returns the new (angle, speed)."""
    speed = speed - 0.01 * jnp.sin(angle)
    return angle + 0.01 * speed, speed


@jax.jit
def simulate(angle, speed, steps):
    """`steps` steps (an int) from `angle` and `speed` (n,); returns the last (angle, speed)."""
    angle, speed = (jnp.where(jnp.isnan(x), jnp.zeros_like(x), x) for x in (angle, speed))
    return jax.lax.fori_loop(0, steps, lambda _, state: step(*state), (angle, speed))


if __name__ == "__main__":
    angles = jnp.linspace(0.0, 1.0, 5)
    print(jax.devices()[0], simulate(angles, jnp.zeros(5), 100))
