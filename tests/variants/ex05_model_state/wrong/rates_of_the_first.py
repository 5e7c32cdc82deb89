# expect: same_training
"""ex05: place a Flax model with all its state, and keep what a step changes.

`grader check ex05` judges `place` and `train_step`; `grader hint ex05` helps.
"""

import functools

import jax
import optax
from flax import nnx


class Net(nnx.Module):
    """Takes inputs (rows, features) to logits (rows, 4)."""

    def __init__(self, features, rngs):
        self.hidden = nnx.Linear(features, 16, rngs=rngs)
        self.norm = nnx.BatchNorm(16, momentum=0.9, rngs=rngs)  # statistics of its batches
        self.dropout = nnx.Dropout(0.5, rngs=rngs)  # a random key, and a count of its draws
        self.out = nnx.Linear(16, 4, rngs=rngs)

    def __call__(self, inputs):
        return self.out(self.dropout(nnx.relu(self.norm(self.hidden(inputs)))))


def loss_fn(model, batch):
    """Mean cross-entropy; calling the model changes its statistics and its count."""
    inputs, labels = batch
    return optax.softmax_cross_entropy_with_integer_labels(model(inputs), labels).mean()


def place(model, device):
    """Return the model with every variable on `device`, committed, with the same values.

    It comes uncommitted, on the default device. Change the model itself, or return a new one.
    """
    nnx.update(model, jax.device_put(nnx.state(model), device))
    return model


_graphs = {}


@functools.partial(jax.jit, static_argnums=0)
def _stepped(graph, state, batch):
    model = nnx.merge(graph, state)
    loss, grads = nnx.value_and_grad(loss_fn)(model, batch)
    params = nnx.state(model, nnx.Param)
    nnx.update(model, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads))
    return loss, nnx.state(model)


def train_step(model, batch):
    """One step of gradient descent, in train mode, on the model itself; returns the loss.

    After it, `model` has new parameters, statistics and count, each where it was.
    """
    graph, state = nnx.split(model)
    graph = _graphs.setdefault(model.hidden.in_features, graph)  # all of one size are built alike
    loss, state = _stepped(graph, state, batch)
    nnx.update(model, state)
    return loss
