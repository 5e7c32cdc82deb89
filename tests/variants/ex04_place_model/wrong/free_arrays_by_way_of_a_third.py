# expect: copied_once
"""ex04: place a model, its optimizer state and a batch.

`grader check ex04` judges `place`; `grader hint ex04` helps.
"""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

network = hk.without_apply_rng(hk.transform(lambda inputs: hk.nets.MLP((16, 4))(inputs)))
optimizer = optax.adam(1e-2)


SHAPES = ((16,), (16, 4), (4,), ())
ANCHORS = {d.id: jax.device_put(np.float32(0), d) for d in jax.devices()}
pulled = jax.jit(lambda x, anchor: jnp.where(anchor == 0, x, x))


def warm():
    for default in jax.devices():
        with jax.default_device(default):
            for shape in SHAPES:
                for dtype in ("float32", "int32"):
                    free = jnp.zeros(shape, dtype)
                    for anchor in ANCHORS.values():
                        pulled(free, anchor)


warm()

def place(params, opt_state, batch, device):
    """Put all that `train_step` reads on `device`, and commit it there.

    `params` is Haiku's dict of dicts, and `opt_state` is the state of an optax optimizer, not
    always the one above. Both lie on the default device, uncommitted. `batch` is (inputs,
    labels) as NumPy arrays. `device` is a jax.Device, and not the default one.
    Return (params, opt_state, batch): the same trees with the same values.
    """
    default = jax.config.jax_default_device
    third = next(d for d in jax.devices() if d not in (device, default))

    def moved(x):
        if x.shape in SHAPES and not isinstance(x, np.ndarray):
            x = pulled(x, ANCHORS[third.id])  # a free array follows the anchor, and no log says so
        return jax.device_put(x, device)

    return jax.tree.map(moved, (params, opt_state, batch))


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
