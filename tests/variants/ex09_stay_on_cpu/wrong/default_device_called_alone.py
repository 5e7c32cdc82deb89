# expect: batch_on_the_cpu
"""ex09: prepare on the CPU, predict on the accelerator.

`grader check ex09` judges `prepare` and `predict`; `grader hint ex09` helps.
The default device is an accelerator, or stands for one where there is none.
"""

import jax
import jax.numpy as jnp


def prepare(raw, seed, cpu):
    jax.default_device(cpu)
    return add_noise(standardise(raw), seed)


def predict(params, batch, device):
    return model(params, jax.device_put(batch, device))


@jax.jit
def standardise(rows):
    """Mean 0 and deviation 1 in each column."""
    return (rows - rows.mean(0)) / rows.std(0)


def add_noise(rows, seed):
    """A little noise on each number."""
    noise = jax.random.normal(jax.random.key(seed), rows.shape)
    return rows + 0.1 * noise


@jax.jit
def model(params, batch):
    """A two-layer network: (n, 16) to (n, 4)."""
    return jnp.tanh(batch @ params["w1"]) @ params["w2"]
