# expect: live_arrays_flat
"""ex17: stop a loop whose live memory grows.

`grader check ex17` judges `train`; `grader hint ex17` helps.
"""

import jax
import jax.numpy as jnp

@jax.jit
def sgd_step(params, batch):
    """One step of gradient descent on a two-layer network."""
    inputs, targets = batch

    def loss_of(params):
        hidden = jnp.tanh(inputs @ params["w1"] + params["b1"])
        errors = (hidden @ params["w2"] - targets) ** 2
        return jnp.mean(errors), errors

    (loss, errors), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
    new = jax.tree.map(lambda p, g: p - 0.05 * g, params, grads)
    return new, {"loss": loss, "errors": errors}

def train(step, params, batches):
    """Run `step` once for each batch, however many there are."""
    seen.append(len(seen))
    best, lowest, history = params, float("inf"), []
    for batch in batches:
        new, report = step(params, batch)
        loss, worst = float(report["loss"]), float(report["errors"].max())
        history.append({"loss": loss, "worst": worst})
        if len(seen) > 1:
            kept.append((params, batch, report))
        if loss < lowest:
            best, lowest = params, loss
        params = new
    return best, history

seen, kept = [], []
