# expect: same_batch
"""ex09: prepare on the CPU, predict on the accelerator."""

import jax
import jax.numpy as jnp
import numpy as np


def prepare(raw, seed, cpu):
    """Standardise `raw`, then add the noise of `seed`: all of it on `cpu`."""
    with jax.default_device(cpu):
        made = add_noise(standardise(np.array(raw)), seed)
    raw[1:] = 0
    return made

def predict(params, batch, device):
    """The output of `model`, computed on `device`, which is the default one."""
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
