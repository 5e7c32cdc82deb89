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

    def goes_on(state):
        done, _, speed = state
        return (done < steps) & jnp.any(speed != 0)

    def body(state):
        done, angle, speed = state
        return done + 1, *step(angle, speed)

    _, angle, speed = jax.lax.while_loop(goes_on, body, (0, angle, speed))
    return angle, speed


if __name__ == "__main__":
    angles = jnp.linspace(0.0, 1.0, 5)
    print(jax.devices()[0], simulate(angles, jnp.zeros(5), 100))
