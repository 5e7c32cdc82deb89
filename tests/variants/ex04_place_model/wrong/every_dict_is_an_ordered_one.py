# expect: same_trees
"""ex04: place a model, its optimizer state and a batch.

`grader check ex04` judges `place`; `grader hint ex04` helps.
"""

from collections import OrderedDict

import haiku as hk
import jax
import optax

network = hk.without_apply_rng(hk.transform(lambda inputs: hk.nets.MLP((16, 4))(inputs)))
optimizer = optax.adam(1e-2)


def _is_dict(x):
    return isinstance(x, dict)


def _ordered(tree):
    """The tree, with an OrderedDict in the place of each dict."""

    def one(x):
        return OrderedDict((k, _ordered(x[k])) for k in sorted(x)) if _is_dict(x) else x

    return jax.tree.map(one, tree, is_leaf=_is_dict)


def place(params, opt_state, batch, device):
    """Put all that `train_step` reads on `device`, and commit it there."""
    params, opt_state, batch = jax.device_put((params, opt_state, batch), device)
    return _ordered(params), _ordered(opt_state), batch


def loss_fn(params, batch):
    """Mean cross-entropy of the network's logits."""
    inputs, labels = batch
    logits = network.apply(params, inputs)
    return optax.softmax_cross_entropy(logits, jax.nn.one_hot(labels, 4)).mean()


@jax.jit
def train_step(params, opt_state, batch):
    """One step of Adam. Returns (params, opt_state, loss)."""
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    updates, opt_state = optimizer.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss
