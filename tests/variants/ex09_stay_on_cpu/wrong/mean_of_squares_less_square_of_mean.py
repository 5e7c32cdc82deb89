# expect: same_batch
"""ex09: prepare on the CPU, predict on the accelerator.

`grader check ex09` judges `prepare` and `predict`; `grader hint ex09` helps.
The default device is an accelerator, or stands for one where there is none.
"""

import jax
import jax.numpy as jnp


def prepare(raw, seed, cpu):
    """Standardise `raw`, then add the noise of `seed`: all of it on `cpu`.

    `raw` is a NumPy array (n, 16). `cpu` is a jax.Device, and not the default one.
    Return a jax.Array (n, 16) on `cpu`; no array visits the default device.
    jax.config stays as it is: a `with` block can set a default device too.
    """
    with jax.default_device(cpu):
        return add_noise(_standardised(raw), seed)


@jax.jit
def _standardised(rows):
    """As `standardise`, in a single pass over the rows."""
    rows = jnp.asarray(rows, jnp.float32)
    mean = rows.mean(0)
    return (rows - mean) / jnp.sqrt(jnp.square(rows).mean(0) - jnp.square(mean))


def predict(params, batch, device):
    """The output of `model`, computed on `device`, which is the default one.

    `params` lie on `device`, uncommitted. `batch` lies on a CPU: sometimes committed to
    it, sometimes not. It is copied once, and nothing else is.
    """
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
