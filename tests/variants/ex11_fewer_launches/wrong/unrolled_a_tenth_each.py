# expect: one_copy_of_the_step
"""ex11: many small launches become one.

`grader check ex11` judges `simulate`; `grader hint ex11` helps.
"""

import functools

import jax
import jax.numpy as jnp


def step(angle, speed):
    """One step of 0.01 s of many pendulums; returns the new (angle, speed)."""
    speed = speed - 0.01 * jnp.sin(angle)
    return angle + 0.01 * speed, speed


@functools.partial(jax.jit, static_argnames="steps")
def simulate(angle, speed, steps):
    """`steps` steps (an int) from `angle` and `speed` (n,); returns the last (angle, speed)."""
    # Ten rounds, whatever the number of steps: a round of a loop costs time, too.
    state, _ = jax.lax.scan(
        lambda state, _: (step(*state), None),
        (angle, speed),
        length=steps,
        unroll=max(1, steps // 10),
    )
    return state


if __name__ == "__main__":
    angles = jnp.linspace(0.0, 1.0, 5)
    print(jax.devices()[0], simulate(angles, jnp.zeros(5), 100))
