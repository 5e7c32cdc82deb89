"""ex08: copy each batch to the device once, and nothing else.

`grader check ex08` judges `train`; `grader hint ex08` helps.
"""

import jax
import jax.numpy as jnp


class Loader:
    """Copies batches to the device, two ahead."""

    def __init__(self, batches):
        self.batches = iter(batches)
        self.waiting = []

    def __iter__(self):
        return self

    def __next__(self):
        while len(self.waiting) < 2 and self.more():
            pass
        if not self.waiting:
            raise StopIteration
        return self.waiting.pop(0)

    def more(self):
        for batch in self.batches:
            self.waiting.append(jax.device_put(batch))
            return True
        return False


def train(step, params, stats, batches):
    """Run `step` once for each batch, and measure the error before it."""
    params, stats = jax.device_put([params, stats])
    errors = []
    for batch in Loader(batches):
        params = jax.device_put(params)  # already there: nothing happens
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
