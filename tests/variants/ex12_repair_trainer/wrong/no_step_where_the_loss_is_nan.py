# expect: same_step
"""ex12: repair a trainer.

It runs, and its loss falls. It has six faults: two in `step`, four in `train`.
`grader check ex12` judges each apart; `grader hint ex12` helps.
"""

import haiku as hk
import jax
import jax.numpy as jnp
import optax


def forward(inputs):
    """Logits (n, 4) for inputs (n, 16); half of the hidden units are dropped.

    Inputs are centred by a running mean of all inputs seen, which is Haiku's state.
    """
    mean = hk.get_state("mean", [16], init=jnp.zeros)
    hk.set_state("mean", 0.9 * mean + 0.1 * inputs.mean(0))
    hidden = jax.nn.relu(hk.Linear(32)(inputs - mean))
    return hk.Linear(4)(hk.dropout(hk.next_rng_key(), 0.5, hidden))


network = hk.transform_with_state(forward)
optimizer = optax.sgd(0.1, momentum=0.9)


@jax.jit
def step(model, key, batch):
    """One step of gradient descent. The network gets `key` as it is, for its dropout.

    `model` is (params, state, opt_state), `batch` is (inputs, labels).
    Return (model, loss).
    """
    params, state, opt_state = model

    def loss_fn(params):
        logits, new_state = network.apply(params, state, key, batch[0])
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]).mean()
        return loss, new_state

    (loss, new_state), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
    updates, opt_state = optimizer.update(grads, opt_state)
    new = optax.apply_updates(params, updates), new_state, opt_state
    model = jax.tree.map(lambda x, old: jnp.where(jnp.isfinite(loss), x, old), new, model)
    return model, loss


def train(step, model, key, batches):
    """Call `step` once for each batch. Return (model, losses).

    `batches` is an iterator, of unknown length, over pairs (inputs, labels) of NumPy arrays.
    `model` is on the default device, where it belongs; losses are floats.
    """
    losses = []
    for batch in batches:
        key, subkey = jax.random.split(key)
        model, loss = step(model, subkey, batch)
        losses.append(loss)
    return model, [float(loss) for loss in jax.device_get(losses)]
