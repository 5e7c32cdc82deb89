# expect: nothing_old_is_kept
"""ex27: have the next batch on its way.

`grader check ex27` judges `train`; `grader hint ex27` helps.
"""

import jax
import jax.numpy as jnp

AHEAD = 4
"""Batches that may be asked for and not yet trained on. A read takes as long as three steps."""


def train(step, params, count, ask, put, stop):
    reads = [ask(index) for index in range(min(AHEAD, count))]
    batch = put(reads.pop(0).result())
    losses, old = [], []
    for index in range(count):
        old = [*old[-2:], (params, batch)]
        params, loss = step(params, batch)
        if index + AHEAD < count:
            reads.append(ask(index + AHEAD))
        if reads:
            batch = put(reads.pop(0).result())
        losses.append(float(loss))
        if stop(losses[-1]):
            break
    return params, losses


@jax.jit
def sgd_step(params, batch):
    """One step of gradient descent on a two-layer network."""
    inputs, targets = batch

    def loss_fn(params):
        hidden = jnp.tanh(inputs @ params["w1"] + params["b1"])
        return jnp.mean((hidden @ params["w2"] - targets) ** 2)

    loss, grads = jax.value_and_grad(loss_fn)(params)
    return jax.tree.map(lambda p, g: p - 0.05 * g, params, grads), loss
