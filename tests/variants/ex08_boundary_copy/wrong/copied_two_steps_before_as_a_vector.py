# expect: one_batch_at_a_time
"""ex08: copy each batch to the device once, and nothing else.

`grader check ex08` judges `train`; `grader hint ex08` helps.
"""

import collections

import jax
import jax.numpy as jnp


@jax.jit
def _formed(inputs):
    return jnp.reshape(inputs, (-1, 16))


def train(step, params, stats, batches):
    params, stats = jax.device_put((params, stats))
    errors, ahead = [], collections.deque()

    def one(params):
        inputs, targets = ahead.popleft()
        batch = {"inputs": _formed(inputs), "targets": targets}
        errors.append(error_of(params, stats, batch))
        return step(params, stats, batch)

    for batch in batches:
        ahead.append(jax.device_put((batch["inputs"].reshape(-1), batch["targets"])))
        if len(ahead) > 2:
            params = one(params)
    while ahead:
        params = one(params)
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
