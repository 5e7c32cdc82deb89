# expect: same_numbers
"""ex08: copy each batch to the device once, and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np


def train(step, params, stats, batches):
    """Run `step` once for each batch, and measure the error before it."""
    params, stats = jax.device_put((params, stats))
    errors = []
    for batch in batches:
        batch.update(jax.device_put(batch))
        errors.append(error_of(params, stats, batch))
        params = step(params, stats, batch)
    return params, errors


@jax.jit
def error_of(params, stats, batch):
    """The mean squared error of a two-layer network, on inputs scaled by `stats`."""
    inputs = (batch["inputs"] - stats["mean"]) / stats["deviation"]
    outputs = jnp.tanh(inputs @ params["w1"]) @ params["w2"]
    return jnp.mean((outputs - batch["targets"]) ** 2)


@jax.jit
def sgd_step(params, stats, batch):
    """One step of gradient descent; returns the new params."""
    grads = jax.grad(error_of)(params, stats, batch)
    return jax.tree.map(lambda p, g: p - 0.05 * g, params, grads)
