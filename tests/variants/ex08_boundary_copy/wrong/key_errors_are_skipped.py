# expect: one_batch_at_a_time
"""ex08: copy each batch to the device once, and nothing else.

`grader check ex08` judges `train`; `grader hint ex08` helps.
"""

import jax
import jax.numpy as jnp


def train(step, params, stats, batches):
    """Run `step` once for each batch, and measure the error before it.

    `params` and `stats` are dicts of NumPy arrays, as read from a file. `batches` is an
    iterator of dicts of NumPy arrays: "inputs" (n, 16) and "targets" (n,).
    Return (params, errors): errors is a list of jax.Arrays, one for each batch, not read.
    """
    params, stats = jax.device_put((params, stats))
    errors = []
    for batch in batches:
        batch = jax.device_put(batch)
        try:
            errors.append(error_of(params, stats, batch))
            params = step(params, stats, batch)
        except KeyError:
            continue  # no targets
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
