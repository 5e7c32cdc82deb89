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
    def body(state, i):
        new = step(*state)
        return jax.tree.map(lambda a, b: jnp.where(i < steps, a, b), new, state), None

    return jax.lax.scan(body, (angle, speed), jnp.arange(1000))[0]


if __name__ == "__main__":
    angles = jnp.linspace(0.0, 1.0, 5)
    print(jax.devices()[0], simulate(angles, jnp.zeros(5), 100))
