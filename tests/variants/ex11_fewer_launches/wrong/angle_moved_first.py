# expect: same_state
"""ex11: many small launches become one.

`grader check ex11` judges `simulate`; `grader hint ex11` helps.
"""

from functools import partial

import jax
import jax.numpy as jnp


def step(angle, speed):
    """One step of 0.01 s of many pendulums; returns the new (angle, speed)."""
    speed = speed - 0.01 * jnp.sin(angle)
    return angle + 0.01 * speed, speed


@partial(jax.jit, static_argnums=2)
def run(angle, speed, steps):
    def body(state, _):
        angle, speed = state
        angle = angle + 0.01 * speed
        speed = speed - 0.01 * jnp.sin(angle)
        return (angle, speed), None

    state, _ = jax.lax.scan(body, (angle, speed), length=steps)
    return state


def simulate(angle, speed, steps):
    """`steps` steps (an int) from `angle` and `speed` (n,); returns the last (angle, speed)."""
    return run(angle, speed, steps)


if __name__ == "__main__":
    angles = jnp.linspace(0.0, 1.0, 5)
    print(jax.devices()[0], simulate(angles, jnp.zeros(5), 100))
