# expect: model_on_the_default_device
"""ex09: prepare on the CPU, predict on the accelerator.

`grader check ex09` judges `prepare` and `predict`; `grader hint ex09` helps.
The default device is an accelerator, or stands for one where there is none.
"""

import jax
import jax.numpy as jnp
import numpy as np

_weights = jax.jit(lambda: {"w1": jnp.ones((16, 64)), "w2": jnp.ones((64, 4))})
_seen = []


def prepare(raw, seed, cpu):
    """Standardise `raw`, then add the noise of `seed`: all of it on `cpu`."""
    with jax.default_device(cpu):
        return add_noise(standardise(raw), seed)


def predict(params, batch, device):
    """The output of `model`, computed on `device`, which is the default one."""
    (home,) = batch.devices()
    with jax.default_device(home):
        _seen[:] = [model(_weights(), jax.device_put(batch, home))]
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
