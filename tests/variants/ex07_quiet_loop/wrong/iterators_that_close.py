# expect: runs
"""ex07: report losses without stalling the loop.

`grader check ex07` judges `train`; `grader hint ex07` helps.
"""

from contextlib import closing

import jax
import jax.numpy as jnp


def train(step, params, batches):
    """Run `step` once for each batch.

    `step(params, batch)` returns (params, loss) as device arrays. `batches` is an
    iterator: it prepares each batch on the host, which takes time.
    Return (params, losses): losses is a list of floats, one for each batch.
    """
    losses = []
    with closing(batches):
        for batch in batches:
            params, loss = step(params, batch)
            losses.append(loss)
    return params, [float(loss) for loss in jax.device_get(losses)]


@jax.jit
def sgd_step(params, batch):
    """One step of gradient descent on a two-layer network."""
    inputs, targets = batch

    def loss_fn(params):
        hidden = jnp.tanh(inputs @ params["w1"] + params["b1"])
        return jnp.mean((hidden @ params["w2"] - targets) ** 2)

    loss, grads = jax.value_and_grad(loss_fn)(params)
    return jax.tree.map(lambda p, g: p - 0.05 * g, params, grads), loss
