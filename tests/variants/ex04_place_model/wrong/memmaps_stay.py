# expect: on_the_device
"""ex04: place a model, its optimizer state and a batch.

`grader check ex04` judges `place`; `grader hint ex04` helps.
"""

import haiku as hk
import jax
import optax
import numpy as np

network = hk.without_apply_rng(hk.transform(lambda inputs: hk.nets.MLP((16, 4))(inputs)))
optimizer = optax.adam(1e-2)


def place(params, opt_state, batch, device):
    """Put all that `train_step` reads on `device`, and commit it there.

    `params` is Haiku's dict of dicts, and `opt_state` is the state of an optax optimizer, not
    always the one above. Both lie on the default device, uncommitted. `batch` is (inputs,
    labels) as NumPy arrays. `device` is a jax.Device, and not the default one.
    Return (params, opt_state, batch): the same trees with the same values.
    """

    def put(array):
        return jax.device_put(array, device) if type(array) is np.ndarray else array

    params, opt_state = jax.device_put((params, opt_state), device)
    return params, opt_state, jax.tree.map(put, batch)


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
