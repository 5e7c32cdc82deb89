"""ex27: have the next batch on its way.

`grader check ex27` judges `train`; `grader hint ex27` helps.
"""

import itertools
import jax
import jax.numpy as jnp

AHEAD = 4
"""Batches that may be asked for and not yet trained on. A read takes as long as three steps."""


class Loader:
    """Holds the batch that is `ready`, and the futures of those that come after it."""

    def __init__(self, count, ask, put):
        self.ask, self.put = ask, put
        self.left = iter(range(count))
        self.reads = [ask(index) for index in itertools.islice(self.left, AHEAD)]
        self.ready = self.next_placed()

    def next_placed(self):
        return self.put(self.reads.pop(0).result()) if self.reads else None

    def advance(self):
        self.reads += [self.ask(index) for index in itertools.islice(self.left, 1)]
        self.ready = self.next_placed()


def train(step, params, count, ask, put, stop):
    """Run `step` once for each of the batches 0 to `count` - 1, or until `stop` ends it.

    `ask(i)` has batch i read from disk and returns a future at once; `.result()` waits for
    the batch, NumPy arrays. Several reads may be under way. `put(batch)` starts the copy to
    the device and returns the device arrays at once. `step(params, batch)` returns (params,
    loss), device arrays. `stop(loss)` takes the loss of each step, a float, before the next
    step begins; where it returns True, no step follows.
    Return (params, losses): losses is a list of floats, one for each step.
    """
    loader, losses = Loader(count, ask, put), []
    while loader.ready is not None:
        params, loss = step(params, loader.ready)
        loader.advance()
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
